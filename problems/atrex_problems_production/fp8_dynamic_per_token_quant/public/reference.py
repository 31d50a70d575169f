"""Quantisation of each token to fp8 by a scale of its own: the definition, in plain torch.

    largest   = max(|x|, 1e-12)                 over a row
    scales    = largest / limit
    quantized = fp8(x / scales)                 to nearest, ties to even; within +-limit

`limit` is the largest finite value of the fp8 type: 240 for e4m3fnuz, 448 for e4m3fn. Everything
is fp32. The quotient may be `x / scales`, `x * (1 / scales)` or `x * (limit / largest)`: where they
differ, they lie halfway between two codes to within fp32 rounding, and either code will do.
"""

import torch

_CHUNK = 1 << 24
"""Elements quantised at once: bounds the fp32 copies."""

_DTYPES = {"fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e4m3fnuz": torch.float8_e4m3fnuz}


class Model(torch.nn.Module):
    """Quantise rows of `x` bf16 [tokens, hidden]."""

    def __init__(self, dtype: str = "fp8_e4m3fnuz") -> None:
        super().__init__()
        self.dtype = _DTYPES[dtype]
        self.limit = torch.finfo(self.dtype).max

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `quantized` [tokens, hidden] and its `scales` fp32 [tokens]."""
        tokens, hidden = x.shape
        quantized = torch.empty(tokens, hidden, dtype=self.dtype, device=x.device)
        scales = torch.empty(tokens, dtype=torch.float32, device=x.device)
        step = max(1, _CHUNK // hidden)
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            wide = x[rows].float()
            scales[rows] = wide.abs().amax(-1).clamp(min=1e-12) / self.limit
            wide *= (1 / scales[rows])[:, None]
            quantized[rows] = wide.clamp_(-self.limit, self.limit).to(self.dtype)
        return quantized, scales
