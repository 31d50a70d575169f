# gate: correctness
# reason: ^first call \(nominal\): ValueError: \\udc80 \(line \d+, in forward\)$
"""The message is text that no encoding can write."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise ValueError("\udc80")
