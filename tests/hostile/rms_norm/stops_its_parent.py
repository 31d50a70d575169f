# gate: correctness
# reason: ^first call \(nominal\): the process exited with status 3 instead of returning during
#         correctness$
"""Stops the process that should bury it."""

import os
import signal

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.kill(os.getppid(), signal.SIGSTOP)
        os._exit(3)
