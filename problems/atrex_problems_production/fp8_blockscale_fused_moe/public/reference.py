"""Mixture of gated experts in fp8 with block scales: the definition, in plain torch.

    x     = hidden_states * a_scale            each scale for `scale_block_k` columns of a row
    W     = w * fc_scale                       each for `scale_block_n` x `scale_block_k` values
    z     = x_t @ W1[e].T                      e an expert of token t
    a     = silu(gate) * up                    gate the first half of z, up the second
    out_t = sum over routes of weight * (a @ W2[e].T)

Token t has `top_k` routes: route j goes to expert `topk_ids[t, j]` and counts
`topk_weights[t, j]`, as given: weights need not sum to one. Any number of tokens may choose an
expert, none is dropped.

Everything is fp32. `out` is clamped to the range of its dtype, which is that of `hidden_states`,
and rounded to it once, without a scale. An implementation may

- round x, W and a to bf16;
- round a to e4m3 instead, with one fp32 or power-of-two scale for each `scale_block_k` columns of a
  route, so that both products are of fp8;
- weigh a instead of the output of a route, and add up in any order, in fp32.
"""

import torch

CHUNK = 1 << 26
"""Elements of what is computed at once for some routes through one expert."""


class Model(torch.nn.Module):
    """Send each row of `hidden_states` fp8 [tokens, hidden] through `top_k` of the experts."""

    def __init__(
        self,
        num_experts: int,
        intermediate_size: int,
        top_k: int,
        scale_block_n: int = 128,
        scale_block_k: int = 128,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.intermediate_size = intermediate_size
        self.top_k = top_k
        self.block = (scale_block_n, scale_block_k)

    def forward(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        a_scale: torch.Tensor,
        fc1_scale: torch.Tensor,
        fc2_scale: torch.Tensor,
    ) -> torch.Tensor:
        """Return fp8 [tokens, hidden] in the dtype of `hidden_states`.

        `w1` is fp8 [experts, 2 * intermediate, hidden], `w2` fp8 [experts, hidden, intermediate];
        `topk_weights` fp32 and `topk_ids` int32 are [tokens, top_k]. Scales are fp32, as many as
        blocks: `a_scale` [tokens, hidden / k], `fc1_scale` [experts, 2 * intermediate / n,
        hidden / k], `fc2_scale` [experts, hidden / n, intermediate / k].
        """
        tokens, hidden = hidden_states.shape
        chunk = max(64, CHUNK // (2 * hidden + 4 * self.intermediate_size))
        out = torch.zeros(tokens, hidden, dtype=torch.float32, device=hidden_states.device)
        weights = topk_weights.reshape(-1, 1)

        # Routes in order of their expert, and where those of each expert begin.
        chosen, routes = topk_ids.reshape(-1).sort(stable=True)
        edges = torch.arange(self.num_experts + 1, dtype=chosen.dtype, device=chosen.device)
        bounds = torch.searchsorted(chosen, edges).tolist()
        for expert in range(self.num_experts):
            begin, end = bounds[expert], bounds[expert + 1]
            if begin == end:
                continue
            first = scaled(w1[expert], fc1_scale[expert], self.block)
            second = scaled(w2[expert], fc2_scale[expert], self.block)
            for start in range(begin, end, chunk):
                here = routes[start : min(start + chunk, end)]
                token = here // self.top_k
                x = scaled(rows_of(hidden_states, token), a_scale[token], (1, self.block[1]))
                gate, up = (x @ first.T).split(self.intermediate_size, dim=-1)
                routed = (torch.nn.functional.silu(gate) * up) @ second.T
                out.index_add_(0, token, routed * weights[here])
        largest = torch.finfo(hidden_states.dtype).max
        return out.clamp(-largest, largest).to(hidden_states.dtype)


def scaled(values: torch.Tensor, scales: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Return a matrix of fp8 in fp32, each block of it multiplied by its scale."""
    rows, columns = block
    tiles = values.float().view(scales.shape[0], rows, scales.shape[1], columns)
    return (tiles * scales[:, None, :, None]).view(values.shape)


def rows_of(matrix: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather rows of a matrix of fp8, as the bytes they are."""
    return matrix.view(torch.uint8)[index].view(matrix.dtype)
