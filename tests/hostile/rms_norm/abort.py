# gate: correctness
# reason: ^first call \(nominal\): the process was killed by SIGABRT \(aborted\) during
#         correctness \(line \d+, in forward\)$
"""Aborts."""

import os

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os.abort()
