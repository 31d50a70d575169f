# gate: correctness
# reason: ^first call \(nominal\): output 'out' is on meta, not on cpu$
"""Allocates its output where nothing is stored."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return torch.empty_like(x, device="meta")
