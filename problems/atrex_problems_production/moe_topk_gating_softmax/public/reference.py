"""Softmax router of a mixture of experts: the definition, in plain torch.

    p       = softmax(gating_output) over the experts, in fp32
    ids     = the `top_k` experts of largest p, in descending order
    weights = p of those experts, not renormalised

Any order among experts of equal p will do, whether equal exactly or to fp32 rounding; where more
of them are equal than places are left, any choice will. With `num_expert_groups` and `topk_group`
both positive, only experts in the `topk_group` best of that many contiguous groups take part: a
group is worth its largest p, which its largest logit tells. Among groups of equal worth, again to
fp32 rounding, any choice will do; here the lower goes first. The p of all other experts counts as
zero.
"""

import torch


class Model(torch.nn.Module):
    """Choose `top_k` experts for each row of `gating_output` fp32 [tokens, experts]."""

    def __init__(self, top_k: int, num_expert_groups: int = 0, topk_group: int = 0) -> None:
        super().__init__()
        self.top_k = top_k
        self.num_expert_groups = num_expert_groups
        self.topk_group = topk_group

    def forward(self, gating_output: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return `topk_weights` fp32 and `topk_ids` int32, both [tokens, top_k]."""
        p = torch.softmax(gating_output.float(), dim=-1)
        if self.num_expert_groups > 0 and self.topk_group > 0:
            best = gating_output.unflatten(-1, (self.num_expert_groups, -1)).amax(-1)
            order = best.sort(dim=-1, descending=True, stable=True).indices
            kept = torch.zeros_like(best).scatter_(1, order[:, : self.topk_group], 1.0)
            p = p * kept.repeat_interleave(p.shape[-1] // self.num_expert_groups, dim=-1)
        weights, ids = p.sort(dim=-1, descending=True, stable=True)
        return {
            "topk_weights": weights[:, : self.top_k].contiguous(),
            "topk_ids": ids[:, : self.top_k].to(torch.int32),
        }
