# gate: correctness
# reason: ^case 0 \(nominal\): forward changed its input 'x'$
# caught_by: outputs of a correctness case
"""Works in place."""

import torch


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        x.mul_(2)
        return rms_norm(x / 2, weight, self.eps)
