# gate: correctness
# reason: ^first call \(nominal\): output 'out' has layout torch.sparse_coo, not torch.strided$
"""Returns a sparse tensor."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.to_sparse()
