# gate: authenticity
# reason: ^forward launched no numba kernel from the candidate's own file$
# caught_by: launches
"""Computes with torch alone."""

import torch


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return rms_norm(x, weight, self.eps)
