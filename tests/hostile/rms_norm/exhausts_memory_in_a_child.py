# gate: correctness
# reason: ^first call \(nominal\): the process exceeded the memory limit of 1 GiB during
#         correctness$
"""Allocates without end, in several processes."""

import os
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        for _ in range(3):
            if os.fork() == 0:
                kept = bytearray(900 << 20)
                for page in range(0, len(kept), 4096):
                    kept[page] = 1
                time.sleep(60)
        time.sleep(60)
