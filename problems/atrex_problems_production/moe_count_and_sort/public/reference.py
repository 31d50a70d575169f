"""Count the routes of each expert and sort them by expert: the definition, in plain torch.

A slot is a flat position in `topk_ids`, row by row. `sorted_token_ids` holds every slot once, those
of the first expert first; within an expert any order will do, here they ascend.
`expert_token_counts` says how many slots each expert has, and `cumsum` where they begin: it starts
at zero and ends at the number of all slots. `block_size` changes nothing.
"""

import torch


class Model(torch.nn.Module):
    """Group the slots of `topk_ids` int32 [tokens, top_k] by expert."""

    def __init__(self, num_experts: int = 128, block_size: int = 128) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.block_size = block_size

    def forward(self, topk_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return int32 `sorted_token_ids` [slots], `expert_token_counts` [E], `cumsum` [E + 1]."""
        flat = topk_ids.reshape(-1).long()
        counts = torch.zeros(self.num_experts, dtype=torch.int64, device=flat.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        return {
            "sorted_token_ids": flat.argsort(stable=True).to(torch.int32),
            "expert_token_counts": counts.to(torch.int32),
            "cumsum": torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32),
        }
