# gate: correctness
# reason: ^case 0 \(nominal\): output 'out': 8064 of 8064 elements \(100%\) are wrong, first at
#         \[0, 0\] \(got inf, expected .*; the output is one constant$
"""Returns infinity."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return torch.full_like(x, torch.inf)
