"""Residual addition followed by RMS normalisation: the definition, in plain torch.

    residual = bf16(x + residual)
    out      = residual / sqrt(mean(residual * residual) + eps) * weight

The sum is rounded to bf16 and the *rounded* sum is normalised: fp32 arithmetic, over the last
axis, one rounding of `out` to bf16.
"""

import torch

_STEP = 1 << 25
"""Elements whose fp32 copies exist at once."""


class Model(torch.nn.Module):
    """Add `x` to `residual`, both [tokens, hidden]; return the sum and its normalisation."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return `out` and the new `residual`, bf16, as fresh tensors."""
        total = x + residual
        out = torch.empty_like(x)
        step = max(1, _STEP // x.shape[-1])
        for rows, into in zip(total.split(step), out.split(step), strict=True):
            wide = rows.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            into.copy_(wide * scale * weight.float())
        return {"out": out, "residual": total}
