"""Output of a chunked gated delta rule from its chunks' states: the definition, in plain torch.

Tokens are cut into chunks of `chunk_size`; the last may be shorter. For value head n, which shares
the query and key head n // (value heads / query heads), and rows i, j of one chunk:

    A[i, j] = (q_i . k_j) * exp(g_i - g_j)    if j <= i and g_i <= g_j, else 0
    out_i   = scale * (exp(g_i) * (q_i . h) + sum over j of A[i, j] * v_j)

`h` is the state before the chunk, `g` the logarithm of the gates. `g` need not fall along a chunk:
an earlier row with the smaller g is left out, one with the same g, such as i itself, is not.
Everything is fp32 but for A, which is rounded to bf16 before it is multiplied by v: what a matrix
unit takes. `out` is rounded to bf16 once. An implementation may keep A wider, and may apply `scale`
to either factor or term before that rounding; exp(g_i - g_j) must not overflow where g falls far.
"""

import torch

BLOCK = 1 << 25
"""Elements worked on at once: bounds memory."""


class Model(torch.nn.Module):
    """Read `h` [batch, chunks, value heads, K, V] and the tokens of each chunk with `q`."""

    def __init__(self, chunk_size: int = 64, scale: float | None = None) -> None:
        super().__init__()
        self.chunk_size = chunk_size
        self.scale = scale

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        h: torch.Tensor,
        g: torch.Tensor,
    ) -> torch.Tensor:
        """Return bf16 [batch, tokens, value heads, V]. Leaves its inputs as they are.

        `q` and `k` are [batch, tokens, query heads, K], `v` is shaped as the result, and `g` is
        fp32 [batch, tokens, value heads].
        """
        batch, tokens, heads, value_dim = v.shape
        size, key_dim = self.chunk_size, q.shape[-1]
        state = key_dim * value_dim
        step = max(1, BLOCK // (batch * heads * (size * (size + 2 * key_dim + value_dim) + state)))
        out = torch.empty_like(v)
        for first in range(0, h.shape[1], step):
            some = slice(first * size, min((first + step) * size, tokens))
            chunks = h[:, first : first + step]
            out[:, some] = self._chunks(q[:, some], k[:, some], v[:, some], chunks, g[:, some])
        return out

    def _chunks(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        h: torch.Tensor,
        g: torch.Tensor,
    ) -> torch.Tensor:
        """Return the output of whole chunks; rows that pad the last one are dropped."""
        tokens, heads = v.shape[1:3]
        size, scale = self.chunk_size, self.scale
        if scale is None:
            scale = q.shape[-1] ** -0.5

        def split(x: torch.Tensor) -> torch.Tensor:
            """Return fp32 [batch, chunks, value heads, chunk_size, ...]."""
            padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -tokens % size))
            return (
                padded.unflatten(1, (-1, size))
                .transpose(2, 3)
                .repeat_interleave(heads // x.shape[2], 2)
                .float()
            )

        queries, gates = split(q), split(g[..., None])
        fall = gates - gates.transpose(-1, -2)
        live = torch.ones(size, size, dtype=torch.bool, device=g.device).tril() & (fall <= 0)
        weights = queries @ split(k).transpose(-1, -2)
        weights = weights * fall.masked_fill(~live, -torch.inf).exp()
        out = (queries @ h.float()) * gates.exp() + weights.bfloat16().float() @ split(v)
        return (scale * out).transpose(2, 3).flatten(1, 2)[:, :tokens].to(v.dtype)
