"""RMSNorm over the last axis: y = x / rms(x) * weight, in fp32, rounded once.

Bound by memory. A program takes as many rows as fill its threads with four 16-byte loads each,
and holds them in registers between the two passes, so x is read once.
"""

import torch
import triton
import triton.language as tl

_TILE = 4096


@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    row_count,
    width,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (rows < row_count)[:, None] & (columns < width)[None, :]
    offsets = rows[:, None] * width + columns[None, :]

    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=columns < width, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / width + eps)
    out = x * scale[:, None] * weight[None, :]
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


class Model(torch.nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        width = x.shape[-1]
        row_count = x.numel() // max(width, 1)
        out = torch.empty_like(x)
        if row_count == 0 or width == 0:
            return out
        block = triton.next_power_of_2(width)
        rows = max(1, _TILE // block)
        rms_norm_kernel[(triton.cdiv(row_count, rows),)](
            x,
            weight,
            out,
            row_count,
            width,
            self.eps,
            ROWS=rows,
            BLOCK=block,
            num_warps=4 if block <= _TILE else 8,
        )
        return out
