# gate: correctness
# reason: ^first call \(nominal\): the process was killed by SIGKILL \(killed\) during
#         correctness$
"""Kills everything in its process group."""

import os
import signal

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.killpg(0, signal.SIGKILL)
