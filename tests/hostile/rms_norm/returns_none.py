# gate: correctness
# reason: ^first call \(nominal\): output 'out' is None, not a plain torch.Tensor$
"""Forgets to return."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        x.clone()
