# gate: correctness
# reason: ^first call \(nominal\): out of memory.* \(line \d+, in forward\)$
"""Allocates without end."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        kept = []
        while True:
            kept.append(torch.ones(1 << 24))
