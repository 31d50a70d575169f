# gate: correctness
# reason: ^first call \(nominal\): output 'out' has strides \(1, 7\): it is not contiguous$
"""Has the right shape in the wrong order."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.t().contiguous().t()
