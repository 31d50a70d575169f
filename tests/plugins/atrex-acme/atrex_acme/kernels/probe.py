"""Adds two vectors, for `doctor`."""

import torch
from atrex_acme import hammer


@hammer.kernel
def add(row, x, y, out):
    out[row] = x[row] + y[row]


class Model(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add[x.shape[0]](x, y, out)
        return out
