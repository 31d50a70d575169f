# gate: authenticity
# reason: ^the answer is still right with every numba launch suppressed: something else computed
#         it$
# caught_by: knock-out
"""Launches a kernel whose result it throws away."""

import numba
import torch


@numba.njit
def decoy(x):
    x[0, 0] = 1


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        decoy(x.float().numpy())
        return rms_norm(x, weight, self.eps)
