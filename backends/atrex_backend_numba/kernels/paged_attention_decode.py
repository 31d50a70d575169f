"""Attention of one query token per sequence over a paged cache, in bfloat16 or float16.

A thread takes one sequence and one key/value head, and serves all the query heads that share it.
A cache page holds keys as [size / 8, page, 8] and values as [size, page]. Both are walked in memory
order, in runs of 8 * page elements: a score keeps 8 partial sums and an output element `page` of
them, folded only at the end. The softmax is corrected whenever a page brings a higher score.
"""

import numba
import numpy as np
import torch

# Reassociation lets a sum use vector lanes. NaN and infinity keep their meaning: no "nnan", "ninf".
OPTIONS = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
# What rounds on purpose must happen in the order it is written in.
ORDERED = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}

LANES = 8
LOWEST = np.float32(-np.inf)


@numba.njit(**OPTIONS)
def widen_bf16(h):
    """Turn the bits of a bfloat16 into a float32."""
    return np.uint32(np.uint32(h) << np.uint32(16)).view(np.float32)


@numba.njit(**OPTIONS)
def widen_fp16(h):
    """Turn the bits of a float16 into a float32, subnormals, infinities and NaN included.

    The exponents' biases differ by 112: a product corrects that for subnormals too.
    """
    word = np.uint32(h)
    magnitude = np.uint32((word & np.uint32(0x7FFF)) << np.uint32(13))
    scaled = np.float32(magnitude.view(np.float32) * np.float32(2.0**112)).view(np.uint32)
    is_special = magnitude >= np.uint32(0x0F800000)
    bits = magnitude | np.uint32(0x7F800000) if is_special else scaled
    return np.uint32(bits | ((word & np.uint32(0x8000)) << np.uint32(16))).view(np.float32)


@numba.njit(**OPTIONS)
def narrow_bf16(value):
    """Round a float32 to the bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = np.float32(value).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.uint16((bits | np.uint32(0x400000) if is_nan else rounded) >> np.uint32(16))


@numba.njit(**ORDERED)
def narrow_fp16(value):
    """Round a float32 to the bits of the nearest float16, ties to even; a NaN stays one."""
    bits = np.float32(value).view(np.uint32)
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    if magnitude > np.uint32(0x7F800000):
        half = np.uint32(0x7E00)
    elif magnitude >= np.uint32(0x47800000):
        half = np.uint32(0x7C00)
    elif magnitude < np.uint32(0x38800000):
        # Next to 0.5 the last place is worth 2**-24, as a float16 subnormal's is: the sum rounds.
        shifted = np.float32(magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32)
        half = np.uint32(shifted - np.uint32(0x3F000000))
    else:
        odd = (magnitude >> np.uint32(13)) & np.uint32(1)
        rounded = magnitude - np.uint32(0x38000000) + np.uint32(0xFFF) + odd
        half = np.uint32(rounded >> np.uint32(13))
    return np.uint16(half | ((bits >> np.uint32(16)) & np.uint32(0x8000)))


@numba.njit(**ORDERED)
def exponential(x):
    """Return e**x for x <= 0 within 2 ulp, and at least about 1e-38.

    x = n ln 2 + r, so e**x = 2**n * e**r with a Taylor polynomial for |r| <= ln 2 / 2.
    """
    # Written so that a NaN passes the comparison and reaches the polynomial.
    if x < np.float32(-87.33654):
        x = np.float32(-87.33654)
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 5040.0)
    p = p * r + np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    exponent = np.uint32(np.int32(n) + np.int32(127)) << np.uint32(23)
    return p * np.uint32(exponent).view(np.float32)


@numba.njit(**OPTIONS)
def attend(queries, keys, values, table, h, length, page, is_fp16, sums, totals):
    """Add weight * value to `sums` and the weights to `totals`, for each query head of a group.

    `queries` repeats each element for every slot of a page, in the order keys are stored in.
    """
    heads, runs, width = queries.shape
    k, v = np.empty((runs, width), np.float32), np.empty((runs, width), np.float32)
    run, scores = np.empty(width, np.float32), np.empty(page + 1, np.float32)
    peaks = np.empty(heads, np.float32)
    peaks[:] = LOWEST
    for p in range((length + page - 1) // page):
        block, live = table[p], min(length - p * page, page)
        for c in range(runs):
            if is_fp16:
                for j in range(width):
                    k[c, j] = widen_fp16(keys[block, h, c, j])
                    v[c, j] = widen_fp16(values[block, h, c, j])
            else:
                for j in range(width):
                    k[c, j] = widen_bf16(keys[block, h, c, j])
                    v[c, j] = widen_bf16(values[block, h, c, j])
            for lane in range(LANES):  # what lies behind the end may be anything
                for t in range(live, page):
                    v[c, lane * page + t] = np.float32(0.0)
        for g in range(heads):
            for j in range(width):
                run[j] = np.float32(0.0)
            for c in range(runs):
                for j in range(width):
                    run[j] += queries[g, c, j] * k[c, j]
            peak = peaks[g]
            scores[page] = peak
            for t in range(page):
                score = np.float32(0.0)
                for lane in range(LANES):
                    score += run[t * LANES + lane]
                scores[t] = score if t < live else LOWEST
                peak = max(peak, scores[t])
            peaks[g] = peak
            total = np.float32(0.0)
            for t in range(page + 1):
                scores[t] = exponential(scores[t] - peak)
                total += scores[t]
            correction = scores[page]
            totals[g] = totals[g] * correction + (total - correction)
            for lane in range(LANES):
                for t in range(page):
                    run[lane * page + t] = scores[t]
            for c in range(runs):
                for j in range(width):
                    sums[g, c, j] = sums[g, c, j] * correction + run[j] * v[c, j]


@numba.njit(parallel=True, **OPTIONS)
def paged_attention_kernel(query, keys, values, tables, lengths, out, page, scale, is_fp16):
    sequences, query_heads, size = query.shape
    _, kv_heads, runs, width = keys.shape
    heads = query_heads // kv_heads
    for job in numba.prange(sequences * kv_heads):
        s, h = job // kv_heads, job % kv_heads
        queries = np.empty((heads, runs, width), np.float32)
        sums = np.empty((heads, runs, width), np.float32)
        totals = np.empty(heads, np.float32)
        sums[:] = np.float32(0.0)
        totals[:] = np.float32(0.0)
        length = np.int64(lengths[s])
        for g in range(heads):
            for d in range(size):
                word = query[s, h * heads + g, d]
                value = widen_fp16(word) if is_fp16 else widen_bf16(word)
                for t in range(page):
                    queries[g, d // LANES, t * LANES + d % LANES] = value * np.float32(scale)
        attend(queries, keys, values, tables[s], h, length, page, is_fp16, sums, totals)
        for g in range(heads):
            for d in range(size):
                total = np.float32(0.0)
                for t in range(page):
                    total += sums[g, d // LANES, d % LANES * page + t]
                value = total / totals[g] if length > 0 else np.float32(0.0)
                word = narrow_fp16(value) if is_fp16 else narrow_bf16(value)
                out[s, h * heads + g, d] = word


def bits_of(tensor):
    """Return the 16-bit words of `tensor` as a NumPy array that shares its memory."""
    return tensor.view(torch.uint16).numpy()


class Model(torch.nn.Module):
    def forward(self, query, k_cache, v_cache, block_tables, seq_lens):
        blocks, kv_heads, size, page = v_cache.shape
        shape = (blocks, kv_heads, size // LANES, page * LANES)
        out = torch.empty_like(query)
        paged_attention_kernel(
            bits_of(query),
            bits_of(k_cache).reshape(shape),
            bits_of(v_cache).reshape(shape),
            block_tables.numpy(),
            seq_lens.numpy(),
            bits_of(out),
            page,
            size**-0.5,
            query.dtype == torch.float16,
        )
        return out
