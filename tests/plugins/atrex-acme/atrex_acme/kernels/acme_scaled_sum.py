"""The vendor's own kernel for its own operator."""

import torch
from atrex_acme import hammer


@hammer.kernel
def scaled_sum(row, x, y, out):
    out[row] = 2 * x[row] + y[row]


class Model(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        scaled_sum[x.shape[0]](x, y, out)
        return out
