# gate: correctness
# reason: ^first call \(nominal\): output 'out' has shape \(1152, 7\), not \(7, 1152\)$
"""Transposes its output."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.t().contiguous()
