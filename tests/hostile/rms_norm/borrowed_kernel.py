# gate: authenticity
# reason: ^forward launched no numba kernel from the candidate's own file; it launched borrowed$
# caught_by: launches
"""Launches a kernel that somebody else wrote."""

import numba
import torch

library = {}
exec(compile("def borrowed(x): x[0, 0] = 1", "a_library.py", "exec"), library)
library["borrowed"] = numba.njit(library["borrowed"])


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        library["borrowed"](x.float().numpy())
        return rms_norm(x, weight, self.eps)
