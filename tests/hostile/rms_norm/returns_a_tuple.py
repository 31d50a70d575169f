# gate: correctness
# reason: ^first call \(nominal\): output 'out' is a tuple of 1, not a plain torch.Tensor$
"""Wraps its output."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return (x.clone(),)
