"""Sort routes by expert, each expert padded to whole blocks: the definition, in plain torch.

A slot is a flat position in `topk_ids`, row by row; n of them there are. For each expert, in
order, all its slots, then the value n until a multiple of `block_size` is reached; experts that
nobody chose take no block. That is `sorted_token_ids`, of length P in all. `expert_ids` names the
expert of each block, and `num_tokens_post_pad` holds P.

P depends on the ids, and no shape may: the first two are as long as the worst case needs, rounded
up to whole blocks: n + experts * (block_size - 1), but no more than n * block_size where there are
fewer slots than experts. What stands beyond P, and beyond P / block_size blocks, is unspecified.
Within an expert any order of its slots will do; here they ascend.
"""

import torch


class Model(torch.nn.Module):
    """Group the slots of `topk_ids` int32 [tokens, top_k] by expert, in whole blocks."""

    def __init__(self, block_size: int, num_experts: int) -> None:
        super().__init__()
        self.block_size = block_size
        self.num_experts = num_experts

    def forward(self, topk_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return int32 `sorted_token_ids`, `expert_ids` and `num_tokens_post_pad` [1]."""
        block, experts = self.block_size, self.num_experts
        flat = topk_ids.reshape(-1).long()
        slots = flat.numel()
        capacity = slots + experts * (block - 1)
        if slots < experts:
            capacity = min(capacity, slots * block)
        blocks = -(-capacity // block)

        counts = torch.zeros(experts, dtype=torch.int64, device=flat.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        ends = ((counts + block - 1) // block).cumsum(0)  # in blocks
        chosen, order = flat.sort(stable=True)
        # How far each slot moves: by the padding of all experts before its own.
        padding = ends * block - counts.cumsum(0)
        moved = torch.cat([padding.new_zeros(1), padding])[chosen]

        ids = torch.full((blocks * block,), slots, dtype=torch.int32, device=flat.device)
        ids[torch.arange(slots, device=flat.device) + moved] = order.to(torch.int32)
        owners = torch.searchsorted(ends, torch.arange(blocks, device=flat.device), right=True)
        return {
            "sorted_token_ids": ids,
            "expert_ids": owners.clamp(max=experts - 1).to(torch.int32),
            "num_tokens_post_pad": (ends[-1:] * block).to(torch.int32),
        }
