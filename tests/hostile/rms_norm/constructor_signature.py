# gate: compile
# reason: ^`Model\(epsilon\)` cannot be called with keywords \(eps\): missing a required argument:
#         'epsilon'$
"""The constructor names its argument differently."""

import torch


class Model(torch.nn.Module):
    def __init__(self, epsilon):
        super().__init__()

    def forward(self, x, weight):
        return x
