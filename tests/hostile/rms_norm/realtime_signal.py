# gate: correctness
# reason: ^first call \(nominal\): the process was killed by signal 40 \(real-time signal 6\)
#         during correctness$
"""Dies by a signal that has no name."""

import os

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.kill(os.getpid(), 40)
