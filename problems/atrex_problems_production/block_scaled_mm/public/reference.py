"""Product of two fp8 matrices with scales by blocks: the definition, in plain torch.

    out[i, j] = sum over t of  a[i, t] * a_scales[i, t // group_k]
                             * b[j, t] * b_scales[j // group_n, t // group_k]

The last block along either axis may be a part of one. Everything is fp32, and so is the result. A
kernel may sum in any order, and scale the sum of a group or its operands, as long as what it
multiplies is exact. A matrix unit that keeps 13 bits below the largest product it adds will do for
128 columns at a time; those sums must be scaled and added in fp32.
"""

import torch

_CHUNK = 1 << 25
"""Elements of a block of rows: bounds the fp32 copies."""


class Model(torch.nn.Module):
    """Multiply `a` fp8 [m, k] by the transpose of `b` fp8 [n, k]."""

    def __init__(self, group_n: int = 128, group_k: int = 128) -> None:
        super().__init__()
        self.group_n = group_n
        self.group_k = group_k

    def forward(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        a_scales: torch.Tensor,
        b_scales: torch.Tensor,
    ) -> torch.Tensor:
        """Return fp32 [m, n]; scales are fp32 [m, k groups] and [n groups, k groups]."""
        (m, k), n = a.shape, len(b)
        by_row = b_scales.repeat_interleave(self.group_n, 0)[:n]
        right = (b.float() * self._by_column(by_row, k)).t()
        out = torch.empty(m, n, dtype=torch.float32, device=a.device)
        step = max(1, _CHUNK // max(n, k))
        for start in range(0, m, step):
            rows = slice(start, start + step)
            left = a[rows].float() * self._by_column(a_scales[rows], k)
            torch.mm(left, right, out=out[rows])
        return out

    def _by_column(self, scales: torch.Tensor, k: int) -> torch.Tensor:
        return scales.repeat_interleave(self.group_k, 1)[:, :k]
