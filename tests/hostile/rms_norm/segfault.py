# gate: correctness
# reason: ^first call \(nominal\): the process was killed by SIGSEGV \(segmentation fault\) during
#         correctness \(line \d+, in forward\)$
"""Reads address 0."""

import ctypes

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return ctypes.string_at(0)
