# gate: correctness
# reason: ^first call \(nominal\): KeyboardInterrupt \(line \d+, in forward\)$
"""Pretends that the user pressed Ctrl-C."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise KeyboardInterrupt
