# gate: correctness
# reason: ^first call \(nominal\): the process exited with status 5 instead of returning during
#         correctness$
"""Marks its own death as one that happened before the candidate was loaded."""

import ctypes
import os
from pathlib import Path

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        maps = Path("/proc/self/maps").read_text().splitlines()
        cell = next(int(line.split("-")[0], 16) for line in maps if "memfd:stage" in line)
        ctypes.memset(cell, 0, 1)
        os._exit(5)
