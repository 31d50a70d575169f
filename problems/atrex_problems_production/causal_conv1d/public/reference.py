"""Causal depthwise convolution along time, with its activation: the definition, in plain torch.

    z         = initial_state[0] followed by x, along time
    y[c, t]   = bias[c] + sum over j of weight[c, j] * z[c, t + j]
    out       = silu(y) = y * sigmoid(y), or y itself where there is no activation

With `width` taps the state holds the `width - 1` samples before the first, oldest first, so the
last tap meets the current sample and none meets a later one. Each channel has taps, bias and state
of its own. Everything is fp32; `out` is rounded to bf16 once. An implementation may add the terms
in any order, and may round y to bf16 before the activation; sums are fp32.
"""

import torch

BLOCK = 1 << 24
"""Samples worked on at once: bounds memory."""


class Model(torch.nn.Module):
    """Filter `x` [channels, tokens] with `weight` [channels, width], after `initial_state`."""

    def __init__(self, activation: str | None = "silu") -> None:
        super().__init__()
        if activation not in ("silu", "swish", None):
            raise ValueError(f"unknown activation {activation!r}")
        self.activation = activation

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        initial_state: torch.Tensor,
    ) -> torch.Tensor:
        """Return bf16 [channels, tokens]. Leaves its inputs as they are."""
        channels, tokens = x.shape
        width = weight.shape[1]
        out = torch.empty_like(x)
        step = max(1, BLOCK // (tokens + width))
        for start in range(0, channels, step):
            rows = slice(start, start + step)
            z = torch.cat([initial_state[0, rows], x[rows]], dim=1).float()
            y = bias[rows, None].float().repeat(1, tokens)
            for tap in range(width):
                y += weight[rows, tap, None].float() * z[:, tap : tap + tokens]
            out[rows] = (y if self.activation is None else y * y.sigmoid()).to(x.dtype)
        return out
