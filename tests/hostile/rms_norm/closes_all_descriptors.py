# gate: correctness
# reason: ^first call \(nominal\): the process closed the descriptors that its answers go through
#         during correctness$
"""Closes every descriptor it finds."""

import os

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.closerange(0, 1 << 16)
        return x.clone()
