"""Softmax over experts, then the k most probable of each row, best first.

Softmax keeps the order, so experts are chosen by their logits and only k exponentials are needed
for the answer. One scan of a row keeps a sorted list of the best k in the output itself; an expert
seldom enters it, so the scan is a comparison each. Equal logits keep the lower expert first.
"""

import numba
import numpy as np
import torch

# Reassociation lets a sum use vector lanes. NaN and infinity keep their meaning: no "nnan", "ninf".
OPTIONS = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
# Argument reduction in `exponential` must happen in the order it is written in.
ORDERED = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}


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
def offer(value, index, best, ids, count):
    """Insert `value` into the descending `best[:count]` if it belongs; return the new count."""
    capacity = best.shape[0]
    if count == capacity:
        if not value > best[capacity - 1]:
            return count
        count -= 1
    place = count
    while place > 0 and value > best[place - 1]:
        best[place] = best[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    best[place] = value
    ids[place] = index
    return count + 1


@numba.njit(**OPTIONS)
def is_chosen(tops, g, limit):
    """Return whether the best logit of group `g` is among the `limit` best of all groups."""
    better = 0
    for other in range(tops.shape[0]):
        if tops[other] > tops[g] or (tops[other] == tops[g] and other < g):
            better += 1
    return better < limit


@numba.njit(parallel=True, **OPTIONS)
def topk_softmax_kernel(logits, weights, ids, group_tops, limit):
    rows, experts = logits.shape
    groups = group_tops.shape[1]
    size = experts // groups
    for i in numba.prange(rows):
        row, best, best_ids, tops = logits[i], weights[i], ids[i], group_tops[i]
        for g in range(groups):
            tops[g] = row[g * size]
            if groups > 1:
                for e in range(g * size, (g + 1) * size):
                    tops[g] = max(tops[g], row[e])
        count = 0
        for g in range(groups):
            if is_chosen(tops, g, limit):
                for e in range(g * size, (g + 1) * size):
                    count = offer(row[e], e, best, best_ids, count)
        peak, eligible = best[0], count
        for g in range(groups):
            if count < best.shape[0] and not is_chosen(tops, g, limit):
                for e in range(g * size, min((g + 1) * size, g * size + best.shape[0] - count)):
                    best_ids[count + e - g * size] = e
                count = min(best.shape[0], count + size)
        total = np.float32(0.0)
        for e in range(experts):
            total += exponential(row[e] - peak)
        for j in range(best.shape[0]):
            best[j] = exponential(best[j] - peak) / total if j < eligible else np.float32(0.0)


class Model(torch.nn.Module):
    def __init__(self, top_k, num_expert_groups=0, topk_group=0):
        super().__init__()
        self.top_k = top_k
        grouped = num_expert_groups > 0 and topk_group > 0
        self.groups = num_expert_groups if grouped else 1
        self.limit = topk_group if grouped else 1

    def forward(self, gating_output):
        rows = gating_output.shape[0]
        weights = torch.empty((rows, self.top_k), dtype=torch.float32)
        ids = torch.empty((rows, self.top_k), dtype=torch.int32)
        tops = torch.empty((rows, self.groups), dtype=torch.float32)
        topk_softmax_kernel(
            gating_output.numpy(), weights.numpy(), ids.numpy(), tops.numpy(), self.limit
        )
        return {"topk_weights": weights, "topk_ids": ids}
