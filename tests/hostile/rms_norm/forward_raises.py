# gate: correctness
# reason: ^first call \(nominal\): RuntimeError: not today \(line \d+, in forward\)$
"""forward raises."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise RuntimeError("not today")
