"""Bias, split and rotary embedding of a packed projection: the definition, in plain torch.

    x       = qkv + qkv_bias, rounded to the storage dtype; qkv itself where there is no bias
    q, k, v = the first num_heads, the next num_kv_heads and the last num_kv_heads heads of x
    theta_j = positions * rope_base ** (-2 j / rope_dim)                for j < rope_dim / 2

and for each head of q and k, with h = rope_dim / 2 and j < h:

    out[j]     = x[j] cos(theta_j) - x[j + h] sin(theta_j)
    out[j + h] = x[j + h] cos(theta_j) + x[j] sin(theta_j)

Elements from rope_dim on, and all of v, are those of x; v keeps denormals, and only the sign of a
zero may change there. Frequencies, angles and the rotation are
fp32; q and k are rounded once more. Positions may come in any order and repeat.

An implementation may reach frequency, angle and sine by any fp32 route: the angle may be off by a
few 2**-24 of its size. It may also rotate the sum of qkv and bias before that sum is rounded.
"""

import torch


class Model(torch.nn.Module):
    """Add the bias, split into heads, rotate the heads of q and k by their token's position."""

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rope_dim: int,
        rope_base: float = 10000.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.rope_dim = rope_dim
        self.rope_base = rope_base

    def forward(
        self,
        qkv: torch.Tensor,
        positions: torch.Tensor,
        qkv_bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return q [tokens, num_heads, head_dim], and k, v [tokens, num_kv_heads, head_dim]."""
        x = qkv if qkv_bias is None else qkv + qkv_bias
        heads = x.view(len(x), -1, self.head_dim)
        q, k, v = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)

        j = torch.arange(self.rope_dim // 2, dtype=torch.float32, device=x.device)
        frequency = self.rope_base ** (-2 * j / self.rope_dim)
        theta = (positions.float()[:, None] * frequency)[:, None]
        cos, sin = theta.cos(), theta.sin()
        return (
            self._rotate(q, cos, sin),
            self._rotate(k, cos, sin),
            v.clone(memory_format=torch.contiguous_format),
        )

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = self.rope_dim // 2
        first, second = x[..., :half], x[..., half : 2 * half]
        out = x.clone(memory_format=torch.contiguous_format)
        # Products with fp32 are fp32.
        out[..., :half] = first * cos - second * sin
        out[..., half : 2 * half] = second * cos + first * sin
        return out
