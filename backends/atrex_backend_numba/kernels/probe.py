"""The smallest kernel: z = x + y. It tells whether the compiler and the thread pool work."""

import numba
import numpy as np
import torch


@numba.njit(parallel=True)
def add_kernel(x, y, z):
    for i in numba.prange(x.shape[0]):
        z[i] = np.float32(x[i] + y[i])


class Model(torch.nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        add_kernel(x.numpy(), y.numpy(), z.numpy())
        return z
