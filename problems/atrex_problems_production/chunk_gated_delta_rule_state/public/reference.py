"""States of a chunked gated delta rule, chunk after chunk: the definition, in plain torch.

Sequence b starts from M = initial_state[initial_state_indices[b]], one [K, V] matrix for each value
head n, which shares the key head n // (value heads / key heads). Tokens are cut into chunks of
`chunk_size`; the last may be shorter. For each chunk in order, with rows t and last row L:

    h       = bf16(M)                              the state before the chunk
    r_t     = u_t - w_t . h
    v_new_t = bf16(r_t)
    p_t     = bf16(r_t * exp(g_L - g_t))           if g_L <= g_t, else 0
    M       = exp(g_L) * M + sum over t of k_t (x) p_t

`g` is the logarithm of the gates and need not fall along a chunk; exp(g_L - g_t) must not overflow
where it falls far. `final_state` is the pool with row `initial_state_indices[b]` replaced by the
last M of sequence b; other rows stay as they are. The indices are distinct. M and all sums are
fp32. The state may be updated in place: `final_state` may be `initial_state` itself. An
implementation may keep the state it reads, or p, wider than bf16, and may round v_new and
k_t * exp(g_L - g_t) to bf16 instead of p; M itself stays fp32.
"""

import torch


class Model(torch.nn.Module):
    """Run the recurrence over chunks of `k`, `w` and `u` from rows of a pool of states."""

    def __init__(self, chunk_size: int = 64) -> None:
        super().__init__()
        self.chunk_size = chunk_size

    def forward(
        self,
        k: torch.Tensor,
        w: torch.Tensor,
        u: torch.Tensor,
        g: torch.Tensor,
        initial_state: torch.Tensor,
        initial_state_indices: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Return `h`, `v_new` and `final_state`, which is `initial_state`, updated.

        `k` is [batch, tokens, key heads, K], `w` [batch, tokens, value heads, K], `u` and `v_new`
        [batch, tokens, value heads, V], `g` [batch, tokens, value heads], the pool
        [states, value heads, K, V], and `h` bf16 [batch, chunks, value heads, K, V].
        """
        batch, tokens, heads, value_dim = u.shape
        rows = initial_state_indices.long()
        state = initial_state[rows]
        chunks = -(-tokens // self.chunk_size)
        h = u.new_empty(batch, chunks, heads, k.shape[-1], value_dim)
        v_new = torch.empty_like(u)
        for chunk in range(chunks):
            some = slice(chunk * self.chunk_size, (chunk + 1) * self.chunk_size)

            def part(x: torch.Tensor, some: slice = some) -> torch.Tensor:
                """Return fp32 [batch, value heads, rows, ...] of this chunk."""
                return x[:, some].transpose(1, 2).repeat_interleave(heads // x.shape[2], 1).float()

            h[:, chunk] = state
            residual = part(u) - part(w) @ h[:, chunk].float()
            v_new[:, some] = residual.transpose(1, 2)
            gates = part(g)[..., None]
            last = gates[:, :, -1:]
            decay = (last - gates).masked_fill(last > gates, -torch.inf).exp()
            pushed = (residual * decay).bfloat16().float()
            state = state * last.exp() + part(k).transpose(-1, -2) @ pushed
        initial_state[rows] = state
        return {"h": h, "v_new": v_new, "final_state": initial_state}
