# gate: correctness
# reason: ^first call \(nominal\): output 'out' is a Lazy, not a plain torch.Tensor$
# caught_by: contract of forward
"""Returns a tensor that could compute later, when nobody times it."""

import torch


class Lazy(torch.Tensor):
    pass


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.clone().as_subclass(Lazy)
