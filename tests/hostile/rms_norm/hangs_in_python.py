# gate: correctness
# reason: ^first call \(nominal\): the process gave no answer within \d+ s and was ended during
#         correctness \(line \d+, in forward\)$
"""Waits for ever, deaf to SIGTERM."""

import signal

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass
