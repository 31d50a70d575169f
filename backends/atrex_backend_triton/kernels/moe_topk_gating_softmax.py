"""Softmax over experts, then the k largest in descending order, ties to the lower expert.

The order of probabilities is the order of logits, so experts are picked by their exact logits,
mapped to integers of the same order: one integer maximum finds the value, one minimum its place.
With groups, only experts of the groups with the best member keep their probability; the others
count as zero.
"""

import torch
import triton
import triton.language as tl

_TILE = 1024


@triton.jit
def _ordered(logits):
    """Map floats to integers of the same order; no float maps to the smallest integer."""
    bits = logits.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _keep_best_groups(
    keys,
    experts,
    expert_count,
    GROUPS: tl.constexpr,
    KEPT_GROUPS: tl.constexpr,
    GROUPS_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lowest: tl.constexpr = -(2**31)
    zero_probability: tl.constexpr = -(2**31) + 0x7FFFFF  # the key of minus infinity
    group_of = experts // (expert_count // GROUPS)
    places = tl.arange(0, GROUPS_BLOCK)
    best = tl.full((ROWS, GROUPS_BLOCK), lowest, tl.int32)
    for group in tl.static_range(GROUPS):
        members = tl.where((group_of == group)[None, :], keys, lowest)
        best = tl.where((places == group)[None, :], tl.max(members, axis=1)[:, None], best)
    kept = tl.zeros((ROWS, BLOCK), tl.int1)
    for _ in tl.static_range(KEPT_GROUPS):
        top = tl.max(best, axis=1)
        place = tl.min(tl.where(best == top[:, None], places[None, :], GROUPS_BLOCK), axis=1)
        kept = kept | (group_of[None, :] == place[:, None])
        best = tl.where(places[None, :] == place[:, None], lowest, best)
    return tl.where(kept | (keys == lowest), keys, zero_probability)


@triton.jit
def moe_topk_gating_softmax_kernel(
    logits_ptr,
    weights_ptr,
    ids_ptr,
    row_count,
    expert_count,
    TOP_K: tl.constexpr,
    TOP_K_BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    KEPT_GROUPS: tl.constexpr,
    GROUPS_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lowest: tl.constexpr = -(2**31)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    experts = tl.arange(0, BLOCK)
    real = experts < expert_count
    inside = (rows < row_count)[:, None] & real[None, :]
    logits = tl.load(
        logits_ptr + rows[:, None] * expert_count + experts[None, :],
        mask=inside,
        other=float("-inf"),
    )
    peak = tl.max(logits, axis=1)
    total = tl.sum(tl.exp(logits - peak[:, None]), axis=1)

    keys = tl.where(real[None, :], _ordered(logits), lowest)
    if GROUPS > 0:
        keys = _keep_best_groups(
            keys, experts, expert_count, GROUPS, KEPT_GROUPS, GROUPS_BLOCK, ROWS, BLOCK
        )

    slots = tl.arange(0, TOP_K_BLOCK)
    top_keys = tl.full((ROWS, TOP_K_BLOCK), lowest, tl.int32)
    top_ids = tl.zeros((ROWS, TOP_K_BLOCK), tl.int32)
    for slot in tl.static_range(TOP_K):
        key = tl.max(keys, axis=1)
        winner = tl.min(tl.where(keys == key[:, None], experts[None, :], BLOCK), axis=1)
        here = (slots == slot)[None, :]
        top_keys = tl.where(here, key[:, None], top_keys)
        top_ids = tl.where(here, winner[:, None], top_ids)
        keys = tl.where(experts[None, :] == winner[:, None], lowest, keys)

    top_bits = top_keys ^ ((top_keys >> 31) & 0x7FFFFFFF)
    top_logits = top_bits.to(tl.float32, bitcast=True)
    weights = tl.exp(top_logits - peak[:, None]) / total[:, None]
    targets = rows[:, None] * TOP_K + slots[None, :]
    stored = (rows < row_count)[:, None] & (slots < TOP_K)[None, :]
    tl.store(weights_ptr + targets, weights, mask=stored)
    tl.store(ids_ptr + targets, top_ids, mask=stored)


class Model(torch.nn.Module):
    def __init__(self, top_k, num_expert_groups=0, topk_group=0):
        super().__init__()
        self.top_k = top_k
        grouped = num_expert_groups > 0 and topk_group > 0
        self.groups = num_expert_groups if grouped else 0
        self.kept_groups = topk_group if grouped else 0

    def forward(self, gating_output):
        row_count, expert_count = gating_output.shape
        shape = (row_count, self.top_k)
        weights = gating_output.new_empty(shape)
        ids = torch.empty(shape, dtype=torch.int32, device=gating_output.device)
        if row_count:
            block = triton.next_power_of_2(expert_count)
            rows = max(1, _TILE // block)
            moe_topk_gating_softmax_kernel[(triton.cdiv(row_count, rows),)](
                gating_output,
                weights,
                ids,
                row_count,
                expert_count,
                TOP_K=self.top_k,
                TOP_K_BLOCK=triton.next_power_of_2(self.top_k),
                GROUPS=self.groups,
                KEPT_GROUPS=self.kept_groups,
                GROUPS_BLOCK=triton.next_power_of_2(max(self.groups, 1)),
                ROWS=rows,
                BLOCK=block,
                num_warps=4,
            )
        return {"topk_weights": weights, "topk_ids": ids}
