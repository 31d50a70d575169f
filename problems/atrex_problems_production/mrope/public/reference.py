"""Rotary embedding by three positions at once: the definition, in plain torch.

Each token has a position in time, in height and in width, and `cos` and `sin` hold the angles of
all three: [axis, token, frequency]. Every frequency j < rotary_dim / 2 belongs to one axis. With
mrope_section = [t, h, w]:

    in sections    axis 0 for j < t, axis 1 for the next h frequencies, axis 2 for the rest
    interleaved    axis 1 where j % 3 == 1 and j <= 3 h, axis 2 where j % 3 == 2 and j <= 3 w,
                   axis 0 everywhere else

With c and s of that axis, each head of q and k turns in pairs of elements a and b:

    a' = a c - b s        b' = b c + a s

(a, b) are elements j and j + rotary_dim / 2 of the head if `is_neox_style`, else 2 j and 2 j + 1.
Elements from rotary_dim on stay as they are. Everything is fp32 and rounded once. `cos` and `sin`
may hold any finite values, not only those of an angle; an implementation may round them to the
storage dtype.
"""

from collections.abc import Sequence

import torch


class Model(torch.nn.Module):
    """Rotate the heads of `q` and `k` [tokens, heads * head_size]."""

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        mrope_section: Sequence[int],
        mrope_interleaved: bool = False,
        is_neox_style: bool = True,
    ) -> None:
        super().__init__()
        self.head_size = head_size
        self.rotary_dim = rotary_dim
        self.is_neox_style = is_neox_style
        t, h, w = mrope_section
        self.axes = []
        for j in range(rotary_dim // 2):
            if not mrope_interleaved:
                self.axes.append(0 if j < t else 1 if j < t + h else 2)
            elif (j % 3 == 1 and j <= 3 * h) or (j % 3 == 2 and j <= 3 * w):
                self.axes.append(j % 3)
            else:
                self.axes.append(0)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return `q` and `k`, rotated; `cos` and `sin` are fp32 [3, tokens, rotary_dim / 2]."""
        axis = torch.tensor(self.axes, device=cos.device)
        c = cos.gather(0, axis.expand(1, *cos.shape[1:])).transpose(0, 1)
        s = sin.gather(0, axis.expand(1, *sin.shape[1:])).transpose(0, 1)
        return {"q": self._rotate(q, c, s), "k": self._rotate(k, c, s)}

    def _rotate(self, x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        half = self.rotary_dim // 2
        if self.is_neox_style:
            a, b = slice(0, half), slice(half, 2 * half)
        else:
            a, b = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        heads = x.view(len(x), -1, self.head_size)
        out = heads.clone()
        # Products with fp32 are fp32.
        out[..., a] = heads[..., a] * c - heads[..., b] * s
        out[..., b] = heads[..., b] * c + heads[..., a] * s
        return out.view_as(x)
