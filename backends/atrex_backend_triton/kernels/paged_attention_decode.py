"""Attention of one query token a sequence over a paged cache.

Keys are packed as [block, head, D/x, slot, x] and values as [block, head, D, slot]. A program takes
one sequence and one key/value head with all the query heads that share it, so every cached byte is
read once. Slots past the end of a sequence never reach the result, whatever they hold.
"""

import torch
import triton
import triton.language as tl

_MIN_DOT = 16


@triton.jit
def paged_attention_decode_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    length_ptr,
    out_ptr,
    scale_log2,
    heads_per_group,
    group_count,
    table_width,
    HEAD: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
    PACK: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    length = tl.load(length_ptr + sequence)
    length = tl.minimum(length, table_width * SLOTS)

    features = tl.arange(0, HEAD_BLOCK)
    real_feature = features < HEAD
    members = tl.arange(0, GROUP_BLOCK)
    heads = group * heads_per_group + members
    query_offsets = (sequence * group_count * heads_per_group + heads)[:, None] * HEAD + features[
        None, :
    ]
    query_inside = (members < heads_per_group)[:, None] & real_feature[None, :]
    query = tl.load(query_ptr + query_offsets, mask=query_inside, other=0.0)

    # Where feature d of slot t lies inside one block of one head.
    key_features = features // PACK * (SLOTS * PACK) + features % PACK
    value_features = features * SLOTS
    accumulator = tl.zeros((GROUP_BLOCK, HEAD_BLOCK), tl.float32)
    peak = tl.full((GROUP_BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_BLOCK,), tl.float32)
    for start in range(0, length, TOKENS):
        tokens = start + tl.arange(0, TOKENS)
        live = tokens < length
        # Masked by whole blocks, so that the compiler sees runs of slots with one address.
        page = tokens // SLOTS
        block_live = page * SLOTS < length
        block = tl.load(table_ptr + sequence * table_width + page, mask=block_live, other=0).to(
            tl.int64
        )
        base = (block * group_count + group) * (HEAD * SLOTS)
        slots = tokens % SLOTS

        key = tl.load(
            key_ptr + (base + slots * PACK)[None, :] + key_features[:, None],
            mask=real_feature[:, None] & live[None, :],
            other=0.0,
        )
        value = tl.load(
            value_ptr + (base + slots)[:, None] + value_features[None, :],
            mask=block_live[:, None] & real_feature[None, :],
            other=0.0,
        )
        scores = tl.dot(query, key) * scale_log2
        scores = tl.where(live[None, :], scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        correction = tl.exp2(peak - new_peak)
        total = total * correction + tl.sum(weights, axis=1)
        accumulator = accumulator * correction[:, None]

        # What lies behind the end of the sequence may be anything, even NaN.
        value = tl.where(live[:, None], value, 0.0)
        # Two halves keep the weights at twice the cache's precision; tensor cores are idle anyway.
        high = weights.to(value.dtype)
        low = (weights - high.to(tl.float32)).to(value.dtype)
        accumulator = tl.dot(high, value, accumulator)
        accumulator = tl.dot(low, value, accumulator)
        peak = new_peak

    # An empty sequence attends to nothing: zeros, not 0 / 0.
    out = accumulator / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out_ptr + query_offsets, out.to(out_ptr.dtype.element_ty), mask=query_inside)


class Model(torch.nn.Module):
    def forward(self, query, k_cache, v_cache, block_tables, seq_lens):
        sequences, query_heads, head = query.shape
        group_count, slots, pack = k_cache.shape[1], k_cache.shape[3], k_cache.shape[4]
        heads_per_group = query_heads // group_count
        out = torch.empty_like(query)
        if sequences == 0:
            return out
        head_block = max(triton.next_power_of_2(head), _MIN_DOT)
        paged_attention_decode_kernel[(sequences, group_count)](
            query,
            k_cache,
            v_cache,
            block_tables,
            seq_lens,
            out,
            head**-0.5 * 1.4426950408889634,
            heads_per_group,
            group_count,
            block_tables.shape[1],
            HEAD=head,
            HEAD_BLOCK=head_block,
            SLOTS=slots,
            PACK=pack,
            GROUP_BLOCK=max(triton.next_power_of_2(heads_per_group), _MIN_DOT),
            TOKENS=64 if head_block <= 128 else 32,
            num_warps=4,
            num_stages=1,
        )
        return out
