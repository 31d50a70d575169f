"""Judge `moe_align_block_size`: exact counts, open order, cost, and wrong implementations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from atrex_problems_production._moe import coarse_integers, slots_in_order
from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Workload,
)

_BLOCKS_DRAWN = {"0": 8, "2": 128, "3": 128, "4": 186, "5": 292, "6": 573}
"""Blocks in the draw that was published, whose bytes were counted: 4 P + 4 P / 128 + 4 of them."""

_REACH = 12.0
"""Standard deviations of a count beyond which nothing is left to sum."""


class Operator(ProductionProblem):
    """Counting sort of slots by expert, padded to whole blocks."""

    summary = "routes sorted by expert and padded to whole blocks"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `topk_ids`."""
        axes = workload.axes
        shape = (axes["token_count"], axes["top_k"])
        return (TensorSpec(name="topk_ids", dtype=DType.INT32, shape=shape),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `sorted_token_ids`, `expert_ids` and `num_tokens_post_pad`."""
        blocks, block = _capacity(workload), workload.init["block_size"]
        return (
            TensorSpec(name="sorted_token_ids", dtype=DType.INT32, shape=(blocks * block,)),
            TensorSpec(name="expert_ids", dtype=DType.INT32, shape=(blocks,)),
            TensorSpec(name="num_tokens_post_pad", dtype=DType.INT32, shape=(1,)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Lay out blocks of slots in order; nothing but padding, and expert 0, beyond."""
        return _laid_out(workload, inputs)

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Sort the slots of each expert, and overlook what is beyond the stated length.

        Padding must stand where it belongs, after the slots of its expert. Where each expert
        begins and ends is taken from the truth, so that what is missing or twice there stays so.
        """
        outputs = self.without_open_parts(workload, outputs, expected)
        settled, want = outputs["sorted_token_ids"].clone(), expected["sorted_token_ids"]
        if settled.shape != want.shape:
            return outputs
        block, slots = workload.init["block_size"], inputs["topk_ids"].numel()
        length = int(expected["num_tokens_post_pad"])
        at = (want[:length] < slots).nonzero()[:, 0]
        settled[at] = slots_in_order(settled[at], expected["expert_ids"][at // block])
        return {**outputs, "sorted_token_ids": settled}

    def without_open_parts(
        self, workload: Workload, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Replace what is beyond the stated length, which the outputs have room for."""
        import torch

        if any(outputs[name].shape != right.shape for name, right in expected.items()):
            return outputs
        length = int(expected["num_tokens_post_pad"])
        ends = {"sorted_token_ids": length, "expert_ids": length // workload.init["block_size"]}
        settled = {
            name: torch.cat([outputs[name][:end], expected[name][end:]])
            for name, end in ends.items()
        }
        return {**outputs, **settled}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Read the ids; write the blocks that the ids fill, or are expected to fill."""
        axes, block = workload.axes, workload.init["block_size"]
        slots, experts = axes["token_count"] * axes["top_k"], workload.init["num_experts"]
        if inputs is None:
            blocks = experts * _expected_blocks(slots, 1 / experts, block)
        else:
            counts = _counts(workload, inputs["topk_ids"].reshape(-1).long())
            blocks = int(_whole_blocks(counts, block).sum())
        return self._cost(workload, blocks)

    def published_flops(self, workload: Workload) -> float:
        """None: integers only."""
        return 0.0

    def published_cost(self, workload: Workload) -> Cost:
        """Write the blocks of the draw that was published."""
        return self._cost(workload, _BLOCKS_DRAWN[workload.id])

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose or repeat slots, pad wrongly, or lay blocks out for other experts."""
        import torch

        def with_blocks(blocks_of: Callable[[Any, int], Any]) -> Implementation:
            return lambda workload, inputs: _laid_out(workload, inputs, blocks_of)

        def changed(name: str, change: Callable[[Any, int], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                return {**right, name: change(right[name], inputs["topk_ids"].numel())}

            return mutant

        def extra_block(workload: Workload, inputs: Tensors) -> Tensors:
            if inputs["topk_ids"].numel() < workload.init["block_size"]:
                raise Inapplicable("no expert can fill a block")
            return with_blocks(lambda n, block: (n // block + 1) * (n > 0))(workload, inputs)

        def renumbered(change: Callable[[Any, int, int], Any], *, tokens: int) -> Implementation:
            """Number slots in another way; needs two routes, and so many tokens."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                count, top_k = inputs["topk_ids"].shape
                if top_k == 1 or count < tokens:
                    raise Inapplicable("slots have the same numbers")
                right = self.honest(workload, inputs)
                ids = right["sorted_token_ids"]
                other = torch.where(ids < count * top_k, change(ids, count, top_k), ids)
                return {**right, "sorted_token_ids": other.int()}

            return mutant

        def unpadded(workload: Workload, inputs: Tensors) -> Tensors:
            right = self.honest(workload, inputs)
            chosen, order = inputs["topk_ids"].reshape(-1).sort(stable=True)
            ids, owners = right["sorted_token_ids"], right["expert_ids"]
            ids.fill_(len(order))[: len(order)] = order
            firsts = chosen[:: workload.init["block_size"]]
            owners[: len(firsts)] = firsts
            length = torch.full_like(right["num_tokens_post_pad"], len(order))
            return {"sorted_token_ids": ids, "expert_ids": owners, "num_tokens_post_pad": length}

        def experts_reversed(workload: Workload, inputs: Tensors) -> Tensors:
            last = workload.init["num_experts"] - 1
            mirrored = self.honest(workload, {"topk_ids": last - inputs["topk_ids"]})
            return {**mirrored, "expert_ids": last - mirrored["expert_ids"]}

        def without(dropped: Callable[[Any, int], Any]) -> Implementation:
            """Leave padding where the slots of some routes belong."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                ids, slots = right["sorted_token_ids"], inputs["topk_ids"].numel()
                lost = dropped(inputs["topk_ids"], workload.init["num_experts"]).reshape(-1)
                lost = torch.cat([lost, lost.new_zeros(1)])[ids.long()]
                return {**right, "sorted_token_ids": ids.masked_fill(lost, slots)}

            return mutant

        def repeats(ids: Any, _: int) -> Any:
            """Mark routes to an expert that an earlier route of the same token goes to."""
            if ids.shape[1] == 1:
                raise Inapplicable("a token has one route only")
            same = ids[:, :, None] == ids[:, None, :]
            return same.tril(-1).any(-1)

        def slot_twice(ids: Any, slots: int) -> Any:
            return torch.where((ids == 1) & (slots > 1), 0, ids)

        return {
            "coarse": lambda w, i: coarse_integers(self.honest(w, i), 4),
            "extra_block_at_boundary": extra_block,
            "blocks_for_empty_experts": with_blocks(
                lambda n, block: ((n + block - 1) // block).clamp(min=1)
            ),
            "blocks_cut_short": with_blocks(lambda n, block: n // block),
            "unpadded": unpadded,
            "experts_reversed": experts_reversed,
            "tokens_instead_of_slots": renumbered(lambda ids, _, k: ids // k, tokens=1),
            "routes_before_tokens": renumbered(
                lambda ids, tokens, k: ids % k * tokens + ids // k, tokens=2
            ),
            "padded_with_zero": changed(
                "sorted_token_ids", lambda ids, slots: ids.masked_fill(ids == slots, 0)
            ),
            "padded_beyond_slots": changed(
                "sorted_token_ids", lambda ids, slots: ids + (ids == slots).int()
            ),
            "slot_twice": changed("sorted_token_ids", slot_twice),
            "last_slot_lost": changed(
                "sorted_token_ids", lambda ids, slots: ids.masked_fill(ids == slots - 1, slots)
            ),
            "first_expert_lost": without(lambda ids, _: ids == 0),
            "last_expert_lost": without(lambda ids, experts: ids == experts - 1),
            "repeated_experts_lost": without(repeats),
            "expert_ids_of_next_block": changed("expert_ids", lambda ids, _: ids.roll(-1)),
            "length_without_padding": changed(
                "num_tokens_post_pad", lambda length, slots: length * 0 + slots
            ),
        }

    def _cost(self, workload: Workload, blocks: float) -> Cost:
        (ids,) = self.inputs(workload)
        item = DType.INT32.item_bytes
        written = blocks * workload.init["block_size"] + blocks + 1
        return Cost(flops={}, read_bytes=ids.nbytes, write_bytes=item * written)


def _capacity(workload: Workload) -> int:
    """Return how many blocks the worst case fills."""
    block: int = workload.init["block_size"]
    experts: int = workload.init["num_experts"]
    slots: int = workload.axes["token_count"] * workload.axes["top_k"]
    most = slots + experts * (block - 1)
    if slots < experts:
        most = min(most, slots * block)
    return -(-most // block)


def _counts(workload: Workload, flat: Any) -> Any:
    return flat.bincount(minlength=workload.init["num_experts"])


def _whole_blocks(counts: Any, block: int) -> Any:
    return (counts + block - 1) // block


def _laid_out(
    workload: Workload, inputs: Tensors, blocks_of: Callable[[Any, int], Any] = _whole_blocks
) -> Tensors:
    """Give each expert as many blocks as `blocks_of` its count says."""
    import torch

    block = workload.init["block_size"]
    flat = inputs["topk_ids"].reshape(-1).long()
    counts = _counts(workload, flat)
    taken = blocks_of(counts, block)
    experts = torch.arange(len(counts), device=flat.device)
    owners = experts.repeat_interleave(taken)[: _capacity(workload)]
    # Each block holds the slots of its expert from `first` on, as many as are left.
    nth = torch.arange(len(owners), device=flat.device) - (taken.cumsum(0) - taken)[owners]
    first = (counts.cumsum(0) - counts)[owners] + nth * block
    left = counts[owners] - nth * block
    inside = torch.arange(block, device=flat.device)
    at = (first[:, None] + inside).clamp(max=len(flat) - 1)
    ids = flat.argsort(stable=True)[at].masked_fill(inside >= left[:, None], len(flat))

    sorted_ids = flat.new_full((_capacity(workload) * block,), len(flat))
    sorted_ids[: ids.numel()] = ids.reshape(-1)
    expert_ids = flat.new_zeros(_capacity(workload))
    expert_ids[: len(owners)] = owners
    return {
        "sorted_token_ids": sorted_ids.int(),
        "expert_ids": expert_ids.int(),
        "num_tokens_post_pad": flat.new_full((1,), ids.numel()).int(),
    }


@cache
def _expected_blocks(slots: int, share: float, block: int) -> float:
    """Return the mean number of blocks that one expert fills: its count is binomial."""
    mean = slots * share
    reach = _REACH * math.sqrt(mean * (1 - share)) + _REACH
    total = 0.0
    for count in range(max(1, int(mean - reach)), min(slots, int(mean + reach)) + 1):
        log = math.lgamma(slots + 1) - math.lgamma(count + 1) - math.lgamma(slots - count + 1)
        log += count * math.log(share) + (slots - count) * math.log1p(-share)
        total += math.exp(log) * -(-count // block)
    return total
