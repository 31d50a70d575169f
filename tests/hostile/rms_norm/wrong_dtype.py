# gate: correctness
# reason: ^first call \(nominal\): output 'out' has dtype fp32, not bf16$
"""Returns what it accumulated in."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.float()
