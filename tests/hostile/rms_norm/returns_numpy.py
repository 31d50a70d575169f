# gate: correctness
# reason: ^first call \(nominal\): output 'out' is a ndarray, not a plain torch.Tensor$
"""Returns an array of NumPy's."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return x.float().numpy()
