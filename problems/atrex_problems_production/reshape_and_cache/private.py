"""Judge `reshape_and_cache`: exact truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    Allclose,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    RowBlocks,
    Rule,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering

_BLOCK = 1 << 23
"""Elements of a cache that are wide at a time in `expected`."""

_TINY = 2.0**-126
"""The smallest normal bf16 number."""


class Operator(ProductionProblem):
    """Scatter of keys and values into a block cache."""

    summary = "writing keys and values of new tokens into their slots of a block cache"
    container = Container.DICT
    in_place: ClassVar[Mapping[str, str]] = {
        "key_cache": "key_cache",
        "value_cache": "value_cache",
    }

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `key`, `value`, both caches and `slot_mapping`."""
        shape = tuple(workload.axes["shape"])
        return (
            TensorSpec(name="key", dtype=DType.BF16, shape=shape),
            TensorSpec(name="value", dtype=DType.BF16, shape=shape),
            *self.outputs(workload),
            TensorSpec(name="slot_mapping", dtype=DType.INT64, shape=shape[:1]),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return both caches, updated."""
        tokens, *rest = workload.axes["shape"]
        block = workload.axes.get("block_size", 16)
        shape = (workload.axes.get("num_blocks", -(-tokens // block)), block, *rest)
        return (
            TensorSpec(name="key_cache", dtype=DType.BF16, shape=shape),
            TensorSpec(name="value_cache", dtype=DType.BF16, shape=shape),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Look up the token that each slot takes, some blocks at a time."""
        import torch

        mapping = inputs["slot_mapping"]
        blocks, block, heads, size = inputs["key_cache"].shape
        owner = torch.full((blocks * block,), -1, device=mapping.device)
        live = (mapping >= 0).nonzero().squeeze(1)
        owner[mapping[live]] = live
        owner = owner.view(blocks, block)

        def merged(new: Any, cache: Any) -> RowBlocks:
            def compute(start: int, stop: int) -> Any:
                token = owner[start:stop]
                taken = (token >= 0)[:, :, None, None]
                return torch.where(taken, new[token.clamp(min=0)], cache[start:stop]).double()

            step = max(1, _BLOCK // (block * heads * size))
            return RowBlocks(shape=tuple(cache.shape), step=step, compute=compute)

        return {
            "key_cache": merged(inputs["key"], inputs["key_cache"]),
            "value_cache": merged(inputs["value"], inputs["value_cache"]),
        }

    def tolerance(self, output: TensorSpec) -> Rule:
        """Demand equality: elements are only copied."""
        return Allclose(absolute=0.0, relative=0.0)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count tokens that are not skipped, read and written once; no other slot is touched."""
        tokens, *rest = workload.axes["shape"]
        live = tokens if inputs is None else int((inputs["slot_mapping"] >= 0).sum())
        moved = 2 * live * prod(rest) * DType.BF16.item_bytes
        return Cost(flops={}, read_bytes=moved + tokens * DType.INT64.item_bytes, write_bytes=moved)

    def published_flops(self, workload: Workload) -> float:
        """Nothing is computed; the published bytes are those of whole caches, read and written."""
        return 0

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Ignore or confuse slots, touch what must stay, or confuse what is written."""
        import torch

        def slots(change: Callable[[Any, int], Any]) -> Implementation:
            def total(inputs: Tensors) -> int:
                return int(prod(inputs["key_cache"].shape[:2]))

            return altering(self.honest, slot_mapping=lambda i: change(i["slot_mapping"], total(i)))

        def in_order(mapping: Any, _: int) -> Any:
            return torch.arange(len(mapping), device=mapping.device)

        def next_slot(mapping: Any, total: int) -> Any:
            return torch.where(mapping < 0, mapping, (mapping + 1) % total)

        def misses_last_token(mapping: Any, _: int) -> Any:
            last = torch.arange(len(mapping), device=mapping.device) == mapping.argmax()
            return torch.where(last, -1, mapping)

        def slot_zero_skipped(workload: Workload, inputs: Tensors) -> Tensors:
            mapping = inputs["slot_mapping"]
            if len(mapping) == 1:
                raise Inapplicable("a single token may never go there")
            other = mapping.masked_fill(mapping == 0, -1)
            return self.honest(workload, {**inputs, "slot_mapping": other})

        def negative(where: Callable[[Any, int], Any]) -> Implementation:
            """Write what has a negative slot, after everything else."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                mapping = inputs["slot_mapping"]
                right = self.honest(workload, inputs)
                total = prod(right["key_cache"].shape[:2])
                skipped = (mapping < 0).nonzero().squeeze(1)
                for name in ("key", "value"):
                    cache = right[f"{name}_cache"].view(-1, *inputs[name].shape[1:])
                    cache[where(mapping[skipped], total)] = inputs[name][skipped]
                return right

            return mutant

        def caches(change: Callable[[Any], Any]) -> Implementation:
            return altering(
                self.honest,
                key_cache=lambda i: change(i["key_cache"]),
                value_cache=lambda i: change(i["value_cache"]),
            )

        def clears_touched_blocks(workload: Workload, inputs: Tensors) -> Tensors:
            mapping, block = inputs["slot_mapping"], inputs["key_cache"].shape[1]
            touched = mapping[mapping >= 0] // block
            cleared = {}
            for name in ("key_cache", "value_cache"):
                cleared[name] = cache = inputs[name].clone()
                cache[touched] = 0
            return self.honest(workload, {**inputs, **cleared})

        def block_within_place(workload: Workload, inputs: Tensors) -> Tensors:
            blocks, block = inputs["key_cache"].shape[:2]
            if min(blocks, block) == 1:
                raise Inapplicable("there is one block, or one place in it")
            if len(inputs["key"]) == 1:
                raise Inapplicable("some slots are their own confusion, so a single one may be")
            mapping = inputs["slot_mapping"]
            other = mapping % blocks * block + mapping // blocks
            other = torch.where(mapping < 0, mapping, other)
            return self.honest(workload, {**inputs, "slot_mapping": other})

        def writes_nothing(_: Workload, inputs: Tensors) -> Tensors:
            return {name: inputs[name].clone() for name in ("key_cache", "value_cache")}

        def values_kept(workload: Workload, inputs: Tensors) -> Tensors:
            right = self.honest(workload, inputs)
            return {**right, "value_cache": inputs["value_cache"].clone()}

        def slots_of_first_in_block(workload: Workload, inputs: Tensors) -> Tensors:
            """Write tokens a block at a time, to consecutive slots from the first one's on."""
            mapping, block = inputs["slot_mapping"], inputs["key_cache"].shape[1]
            if min(len(mapping), block) == 1:
                raise Inapplicable("every token is the first")
            token = torch.arange(len(mapping), device=mapping.device)
            first = mapping[token // block * block]
            other = (first + token % block) % prod(inputs["key_cache"].shape[:2])
            other = torch.where((mapping < 0) | (first < 0), mapping, other)
            return self.honest(workload, {**inputs, "slot_mapping": other})

        def denormals_flushed(name: str) -> Implementation:
            """Copy what goes into a cache, and what stays there, through flushing arithmetic."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                cache = right[name]
                return {**right, name: cache.masked_fill(cache.abs() < _TINY, 0.0)}

            return mutant

        def other_heads(workload: Workload, inputs: Tensors) -> Tensors:
            if inputs["key"].shape[1] == 1:
                raise Inapplicable("there is one head")
            rolled = {name: inputs[name].roll(1, 1) for name in ("key", "value")}
            return self.honest(workload, {**inputs, **rolled})

        return {
            "ignores_slots": slots(in_order),
            "next_slot": slots(next_slot),
            "slot_zero_skipped": slot_zero_skipped,
            "slots_of_first_in_block": slots_of_first_in_block,
            "misses_last_slot": slots(misses_last_token),
            "block_within_place": block_within_place,
            "negative_from_the_end": negative(lambda slots, total: slots % total),
            "negative_into_slot_zero": negative(lambda slots, _: slots * 0),
            "clears_caches": caches(torch.zeros_like),
            "clears_touched_blocks": clears_touched_blocks,
            "blocks_reordered": caches(lambda cache: cache.flip(1)),
            "writes_nothing": writes_nothing,
            "values_kept": values_kept,
            "key_denormals_flushed": denormals_flushed("key_cache"),
            "value_denormals_flushed": denormals_flushed("value_cache"),
            "keys_as_values": altering(self.honest, value=lambda i: i["key"]),
            "values_as_keys": altering(self.honest, key=lambda i: i["value"]),
            "other_heads": other_heads,
        }
