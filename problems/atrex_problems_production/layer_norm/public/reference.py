"""Layer normalisation over the last axis: the definition, in plain torch.

    out = (x - mean) / sqrt(variance + 1e-5) * weight + bias

The variance is the mean of squared differences from the mean, with no correction for the sample.
Everything is computed in fp32; `out` is rounded to bf16 once. An implementation may take the
variance as the mean of squares less the square of the mean, in fp32. `x` without any axis is
returned as a copy.
"""

import torch

_EPS = 1e-5

_STEP = 1 << 24
"""Elements that are held in fp32 at a time: bounds memory, changes no result."""


class Model(torch.nn.Module):
    """Normalise the last axis of `x`; scale it by `weight`, shift it by `bias`, both [last]."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return bf16 of the shape of `x`. Leaves its inputs as they are."""
        out = x.clone()
        if x.dim() == 0:
            return out
        width = x.shape[-1]
        step = max(1, _STEP // width)
        for rows in out.view(-1, width).split(step):
            wide = rows.float()
            wide = wide - wide.mean(-1, keepdim=True)
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + _EPS)
            rows.copy_(wide * scale * weight.float() + bias.float())
        return out
