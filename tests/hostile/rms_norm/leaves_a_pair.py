# gate: correctness
# reason: ^forward left \d+ process\(es\) behind:
"""Leaves two processes, each of which starts the other again when it is killed."""

import os
import time
from pathlib import Path

import numba
import numpy as np
import torch


def guard(other):
    """Watch `other` for ever; where it has died, fork, and let the two watch each other."""
    os.setsid()
    me = os.getpid()
    while True:
        if other == me or not Path(f"/proc/{other}/cwd/.").exists():
            other = os.fork() or guard(me)
        time.sleep(0.0005)


@numba.njit
def norm(x, weight, out, eps):
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        scale = 1 / np.sqrt(total / x.shape[1] + eps)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * weight[j]


def rms_norm(x, weight, eps):
    out = torch.empty(x.shape)
    norm(x.float().numpy(), weight.float().numpy(), out.numpy(), eps)
    return out.to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        if not hasattr(self, "done"):
            self.done = os.fork()
            if self.done == 0:
                guard(os.getpid())
        return rms_norm(x, weight, self.eps)
