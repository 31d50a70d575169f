# gate: correctness
# reason: ^first call \(nominal\): output 'out' is a view of an input, not a new tensor$
"""Returns an input as its output."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.view_as(x)
