# gate: correctness
# reason: ^first call \(nominal\): output 'out' is a dict with keys \['out'\], not a plain
#         torch.Tensor$
"""Names its output."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return {"out": x.clone()}
