# gate: correctness
# reason: ^first call \(nominal\): the process gave no answer within \d+ s and was ended during
#         correctness$
"""Sleeps for ever in C, with every signal blocked that can be."""

import ctypes
import signal

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ctypes.CDLL(None).sleep(10**6)
