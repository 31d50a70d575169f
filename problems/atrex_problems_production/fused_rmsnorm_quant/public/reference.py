"""Residual addition, RMS normalisation and fp8 quantisation: the definition, in plain torch.

    residual  = bf16(x + residual)
    normed    = bf16(residual / sqrt(mean(residual * residual) + eps) * weight)
    scales    = max |normed| / limit            over a row; 1 where the row is zero
    quantized = fp8(normed / scales)            to nearest, ties to even

The *rounded* sum is normalised: fp32 arithmetic over the last axis. `limit` is the largest finite
value of the fp8 type: 240 for e4m3fnuz, 448 for e4m3fn. A kernel may keep the sum, and `normed`,
in fp32 where they are used further: two in a hundred codes then differ by one, and a scale by the
rounding of one bf16 value. It may multiply by reciprocals where this divides.
"""

import torch

_CHUNK = 1 << 24
"""Elements worked on at once: bounds the fp32 copies."""

_DTYPES = {"fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e4m3fnuz": torch.float8_e4m3fnuz}


class Model(torch.nn.Module):
    """Add, normalise and quantise rows of `x` and `residual`, bf16 [tokens, hidden]."""

    def __init__(self, eps: float = 1e-5, dtype: str = "fp8_e4m3fnuz") -> None:
        super().__init__()
        self.eps = eps
        self.dtype = _DTYPES[dtype]
        self.limit = torch.finfo(self.dtype).max

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return `quantized` [tokens, hidden], `scales` fp32 [tokens, 1], the new `residual`."""
        tokens, hidden = x.shape
        total = x + residual
        quantized = torch.empty(tokens, hidden, dtype=self.dtype, device=x.device)
        scales = torch.empty(tokens, 1, dtype=torch.float32, device=x.device)
        step = max(1, _CHUNK // hidden)
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            wide = total[rows].float()
            root = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            normed = (wide * root * weight.float()).to(x.dtype).float()
            scale = normed.abs().amax(-1, keepdim=True) / self.limit
            scales[rows] = torch.where(scale == 0, 1.0, scale)
            normed /= scales[rows]
            quantized[rows] = normed.clamp_(-self.limit, self.limit).to(self.dtype)
        return quantized, scales, total
