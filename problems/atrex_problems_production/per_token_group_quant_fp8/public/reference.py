"""Quantisation to fp8 by a scale for each group of columns: the definition, in plain torch.

    scales    = max(max |x| / limit, 1e-10)     over `group_size` consecutive columns of a row
    quantized = fp8(x / scales)                 to nearest, ties to even; within +-limit

`limit` is 448 for e4m3fn, its largest finite value. For e4m3fnuz it is 224, less than the 240 that
the type could hold: both formats then hold the same multiples of a scale. Everything is fp32. The
quotient may be `x / scales` or `x * (1 / scales)`: where they differ, they lie halfway between two
codes to within fp32 rounding, and either code will do.
"""

import torch

_CHUNK = 1 << 24
"""Elements quantised at once: bounds the fp32 copies."""

_KINDS = {
    "fp8_e4m3fn": (torch.float8_e4m3fn, 448.0),
    "fp8_e4m3fnuz": (torch.float8_e4m3fnuz, 224.0),
}


class Model(torch.nn.Module):
    """Quantise groups of columns of `x` bf16 [tokens, hidden]."""

    def __init__(self, group_size: int, dtype: str = "fp8_e4m3fn") -> None:
        super().__init__()
        self.group_size = group_size
        self.dtype, self.limit = _KINDS[dtype]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return `quantized` [tokens, hidden] and `scales` fp32 [tokens, hidden / group_size]."""
        tokens, hidden = x.shape
        groups = hidden // self.group_size
        quantized = torch.empty(tokens, hidden, dtype=self.dtype, device=x.device)
        scales = torch.empty(tokens, groups, dtype=torch.float32, device=x.device)
        step = max(1, _CHUNK // hidden)
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            wide = x[rows].float().view(-1, groups, self.group_size)
            scales[rows] = (wide.abs().amax(-1) / self.limit).clamp(min=1e-10)
            wide /= scales[rows][:, :, None]
            wide.clamp_(-self.limit, self.limit)
            quantized[rows] = wide.view(-1, hidden).to(self.dtype)
        return {"quantized": quantized, "scales": scales}
