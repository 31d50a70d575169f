"""Gated delta rule, token after token, over a pool of states: the definition, in plain torch.

Sequence b starts from M = initial_state[initial_state_indices[b]], one [K, V] matrix for each value
head n, which shares the query and key head n // (value heads / query heads). For each token t:

    q, k    = q_t / max(|q_t|, 1e-6), k_t / max(|k_t|, 1e-6)    or as they are, without l2norm
    gate    = exp(-exp(A_log) * softplus(a_t + dt_bias))
    M       = gate * M
    delta   = sigmoid(b_t) * (v_t - k . M)
    M       = M + k (x) delta
    out_t   = (scale * q) . M

Queries and keys are zero or much longer than 1e-6: an implementation may add 1e-6 to the norm, or
to its square under the root. softplus(x) is log(1 + exp(beta * x)) / beta, and x itself where
beta * x exceeds the threshold; `scale` is K ** -0.5 where none is given.
`final_state` is the pool with row `initial_state_indices[b]` replaced by the last M of sequence b;
other rows stay as they are. The indices are distinct. Everything is fp32; `out` is rounded to bf16
once. The state may be updated in place: `final_state` may be `initial_state` itself.

Here tokens are taken in chunks, of which M appears only at the start: with k, q, v, delta as rows,
D[i, j] the logarithm of the gates after j up to i, and D[i] the one from the start of the chunk,

    delta_i + sum over j < i of L[i, j] * delta_j = beta_i * (v_i - exp(D[i]) * (k_i . M))
    L[i, j] = beta_i * (k_i . k_j) * exp(D[i, j])

which is solved for delta; out and the next M are then products. D is summed pair by pair, so that
gates near one stay exact beside gates near zero. An implementation may step, or take chunks of any
size, but its products must be as good as fp32: operands rounded to bf16 or TF32 will do only where
what the rounding took away is multiplied as well.
"""

import torch
from torch.nn.functional import softplus

CHUNK = 64
"""Tokens taken at once."""

BLOCK = 1 << 25
"""Elements of states worked on at once: bounds memory."""


class Model(torch.nn.Module):
    """Run the recurrence over tokens from rows of a pool of states, which it updates."""

    def __init__(
        self,
        softplus_beta: float = 1.0,
        softplus_threshold: float = 20.0,
        scale: float | None = None,
        use_qk_l2norm: bool = True,
    ) -> None:
        super().__init__()
        self.softplus_beta = softplus_beta
        self.softplus_threshold = softplus_threshold
        self.scale = scale
        self.use_qk_l2norm = use_qk_l2norm

    def forward(
        self,
        A_log: torch.Tensor,  # noqa: N803  (the name that callers use)
        a: torch.Tensor,
        dt_bias: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        b: torch.Tensor,
        initial_state: torch.Tensor,
        initial_state_indices: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Return `out` bf16 and `final_state`, which is `initial_state`, updated.

        `q` and `k` are [batch, tokens, query heads, K], `v` and `out` [batch, tokens, value heads,
        V], `a` and `b` [batch, tokens, value heads], `A_log` and `dt_bias` [value heads], and the
        pool fp32 [states, value heads, K, V].
        """
        tokens, heads = v.shape[1:3]
        steps = softplus(a.float() + dt_bias.float(), self.softplus_beta, self.softplus_threshold)
        gates = -A_log.float().exp() * steps
        beta = b.float().sigmoid()
        out = torch.empty_like(v)
        group = max(1, BLOCK // initial_state[0].numel())
        for first in range(0, len(v), group):
            rows = initial_state_indices[first : first + group].long()
            state = initial_state[rows]
            for start in range(0, tokens, CHUNK):
                some = slice(first, first + group), slice(start, start + CHUNK)

                def part(x: torch.Tensor, some: tuple[slice, slice] = some) -> torch.Tensor:
                    """Return fp32 [sequences, value heads, rows, ...] of this chunk."""
                    shared = heads // x.shape[2]
                    return x[some].transpose(1, 2).repeat_interleave(shared, 1).float()

                read, state = self._chunk(
                    state, part(q), part(k), part(v), part(gates), part(beta)[..., None]
                )
                out[some] = read.transpose(1, 2).to(out.dtype)
            initial_state[rows] = state
        return {"out": out, "final_state": initial_state}

    def _chunk(
        self,
        state: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        gates: torch.Tensor,
        beta: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the rows of one chunk read, and the state after them."""
        if self.use_qk_l2norm:
            q, k = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6) for x in (q, k))
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        from_start = gates.cumsum(-1)[..., None]
        pairs = gates[..., None].expand(*gates.shape, gates.shape[-1]).tril(-1).cumsum(-2)
        decay = pairs.exp().tril()

        wanted = beta * (v - from_start.exp() * (k @ state))
        mixing = beta * (k @ k.transpose(-1, -2)) * decay
        delta = torch.linalg.solve_triangular(mixing, wanted, upper=False, unitriangular=True)
        out = from_start.exp() * (q @ state) + ((q @ k.transpose(-1, -2)) * decay) @ delta
        to_end = decay[..., -1, :, None]
        after = from_start[..., -1:, :].exp() * state + (k * to_end).transpose(-1, -2) @ delta
        return scale * out, after
