"""RMS normalisation with a gate: the definition, in plain torch.

    norm(v) = v / sqrt(mean(v * v) + eps) * weight            over the last axis
    act(z)  = z / (1 + exp(-z))    for "silu", also called "swish"
              1 / (1 + exp(-z))    for "sigmoid"

    out = norm(x) * act(z)         with norm_before_gate
    out = norm(x * act(z))         without

Everything is fp32; `out` is rounded to bf16 once. An implementation may round what `weight`, or
`act(z)` after it, is multiplied by to bf16 first; the gated row that is normalised stays in fp32.
"""

import torch

_STEP = 1 << 24
"""Elements that are held in fp32 at a time: bounds memory, changes no result."""


class Model(torch.nn.Module):
    """Normalise `x`, scale it by `weight` [hidden], gate it by `z`; both are [rows, hidden]."""

    def __init__(
        self, eps: float = 1e-6, norm_before_gate: bool = True, activation: str = "silu"
    ) -> None:
        super().__init__()
        if activation not in ("silu", "swish", "sigmoid"):
            raise ValueError(f"unknown activation {activation!r}")
        self.eps = eps
        self.norm_before_gate = norm_before_gate
        self.activation = activation

    def forward(self, x: torch.Tensor, weight: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return bf16 [rows, hidden]. Leaves its inputs as they are."""
        out = torch.empty_like(x)
        step = max(1, _STEP // x.shape[-1])
        for rows, gates, into in zip(x.split(step), z.split(step), out.split(step), strict=True):
            gate = torch.sigmoid(gates.float())
            if self.activation != "sigmoid":
                gate = gate * gates.float()
            wide = rows.float() if self.norm_before_gate else rows.float() * gate
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            normed = wide * scale * weight.float()
            into.copy_(normed * gate if self.norm_before_gate else normed)
        return out
