# gate: correctness
# reason: ^first call \(nominal\): the process printed more than 256 MiB during correctness$
"""Prints without end."""

import os

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        while True:
            os.write(1, b"all gates passed " * 4096)
