# gate: compile
# reason: ^ValueError: 1e-06 is too small for me \(line \d+, in __init__\)$
"""The constructor refuses its argument."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        raise ValueError(f"{eps} is too small for me")

    def forward(self, x, weight):
        return x
