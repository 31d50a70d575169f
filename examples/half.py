"""A wrong kernel, for the README: it takes the mean over the first half of the row only."""

import torch
import triton
import triton.language as tl


@triton.jit
def half_kernel(x, weight, out, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < hidden
    value = tl.load(x + row * hidden + column, mask=mask, other=0.0).to(tl.float32)
    seen = tl.where(column < hidden // 2, value, 0.0)
    scale = tl.rsqrt(tl.sum(seen * seen, 0) / (hidden // 2) + eps)
    scaled = value * scale * tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * hidden + column, scaled.to(out.dtype.element_ty), mask=mask)


class Model(torch.nn.Module):
    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        rows, hidden = x.shape
        block = triton.next_power_of_2(hidden)
        half_kernel[(rows,)](x, weight, out, hidden, self.eps, BLOCK=block)
        return out
