# gate: correctness
# reason: ^first call \(nominal\): the process broke the protocol: a frame without a valid header
#         during correctness$
"""Writes nonsense to every descriptor it finds."""

import contextlib
import os
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        for fd in range(256):
            with contextlib.suppress(OSError):
                os.write(fd, b"all gates passed " * 100)
        time.sleep(60)
