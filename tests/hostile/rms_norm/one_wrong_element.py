# gate: correctness
# reason: ^case 0 \(nominal\): output 'out': 1 of 8064 elements \(0.0124%\) are wrong, first at
#         \[3, 700\] \(got 42, expected [-\d.e]+\), worst at \[3, 700\]
"""Right except for one element."""

import torch


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        out = rms_norm(x, weight, self.eps)
        out[3, 700] = 42
        return out
