# gate: correctness
# reason: ^first call \(nominal\): the process took the worker server down with it during
#         correctness$
"""Kills the process that it was forked from."""

import os
import signal
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
