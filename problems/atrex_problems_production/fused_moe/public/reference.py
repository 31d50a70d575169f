"""Mixture of gated experts: the definition, in plain torch.

    z     = x_t @ w1[e].T                       x_t a row of `hidden_states`, e an expert of t
    a     = silu(gate) * up                     gate the first half of z, up the second
    out_t = sum over routes of weight * (a @ w2[e].T)

Token t has `top_k` routes: route j goes to expert `topk_ids[t, j]` and counts
`topk_weights[t, j]`, as given: weights need not sum to one. A token that names an expert twice
takes both routes. Any number of tokens may choose an expert, none is dropped.

Everything is fp32, from operands in bf16; `out` stays fp32. An implementation may round z, a, and
the output of each route, weighted or not, to bf16; may fold the weight into a; and may add up in
any order, in fp32. What a matrix unit takes is then bf16 throughout, its sums fp32.
"""

import torch

CHUNK = 1 << 26
"""Elements of what is computed at once for some routes through one expert."""


class Model(torch.nn.Module):
    """Send each row of `hidden_states` bf16 [tokens, hidden] through `top_k` of the experts."""

    def __init__(self, num_experts: int, intermediate_size: int, top_k: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.intermediate_size = intermediate_size
        self.top_k = top_k

    def forward(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Return fp32 [tokens, hidden].

        `w1` is bf16 [experts, 2 * intermediate, hidden], `w2` bf16 [experts, hidden, intermediate];
        `topk_weights` fp32 and `topk_ids` int32 are [tokens, top_k].
        """
        hidden = hidden_states.shape[1]
        chunk = max(64, CHUNK // (2 * hidden + 4 * self.intermediate_size))
        out = torch.zeros_like(hidden_states, dtype=torch.float32)
        weights = topk_weights.reshape(-1, 1)

        # Routes in order of their expert, and where those of each expert begin.
        chosen, routes = topk_ids.reshape(-1).sort(stable=True)
        edges = torch.arange(self.num_experts + 1, dtype=chosen.dtype, device=chosen.device)
        bounds = torch.searchsorted(chosen, edges).tolist()
        for expert in range(self.num_experts):
            begin, end = bounds[expert], bounds[expert + 1]
            if begin == end:
                continue
            first, second = w1[expert].float(), w2[expert].float()
            for start in range(begin, end, chunk):
                here = routes[start : min(start + chunk, end)]
                tokens = here // self.top_k
                z = hidden_states[tokens].float() @ first.T
                gate, up = z.split(self.intermediate_size, dim=-1)
                routed = (torch.nn.functional.silu(gate) * up) @ second.T
                out.index_add_(0, tokens, routed * weights[here])
        return out
