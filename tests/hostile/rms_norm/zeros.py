# gate: correctness
# reason: ^case 0 \(nominal\): output 'out': \d+ of 8064 elements .* are wrong, first at \[\d,
#         \d+\] \(got 0, expected .*; the output is all zeros$
"""Returns zeros."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return torch.zeros_like(x)
