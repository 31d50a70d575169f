# gate: correctness
# reason: ^first call \(nominal\): RecursionError: maximum recursion depth exceeded.* \(line \d+,
#         in forward\)$
"""Calls itself without end."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return self.forward(x, weight)
