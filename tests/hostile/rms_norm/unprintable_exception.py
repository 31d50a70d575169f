# gate: correctness
# reason: ^first call \(nominal\): raised an exception that cannot be shown$
"""The exception cannot be turned into text."""

import torch


class Mute(Exception):
    def __str__(self):
        raise SystemExit(0)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise Mute
