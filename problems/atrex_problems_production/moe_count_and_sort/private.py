"""Judge `moe_count_and_sort`: exact counts, open order, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

_EXPERTS = 128
_BLOCK = 128
"""What `Model` takes where it is given none."""


class Operator(ProductionProblem):
    """Counting sort of slots by expert."""

    summary = "routes counted for each expert and sorted by expert"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `topk_ids`."""
        shape = (workload.axes["token_count"], workload.axes["top_k"])
        return (TensorSpec(name="topk_ids", dtype=DType.INT32, shape=shape),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `sorted_token_ids`, `expert_token_counts` and `cumsum`."""
        slots, experts = workload.axes["token_count"] * workload.axes["top_k"], _experts(workload)
        return (
            TensorSpec(name="sorted_token_ids", dtype=DType.INT32, shape=(slots,)),
            TensorSpec(name="expert_token_counts", dtype=DType.INT32, shape=(experts,)),
            TensorSpec(name="cumsum", dtype=DType.INT32, shape=(experts + 1,)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Sort, and look up where each expert begins."""
        import torch

        ids = inputs["topk_ids"].reshape(-1)
        chosen, slots = ids.sort(stable=True)
        edges = torch.arange(_experts(workload) + 1, dtype=ids.dtype, device=ids.device)
        begins = torch.searchsorted(chosen, edges)
        return {
            "sorted_token_ids": slots.int(),
            "expert_token_counts": begins.diff().int(),
            "cumsum": begins.int(),
        }

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Sort the slots of each expert, which begins and ends where the truth says."""
        import torch

        got, want = outputs["sorted_token_ids"], expected["sorted_token_ids"]
        if got.shape != want.shape:
            return outputs
        counts = expected["expert_token_counts"]
        owners = torch.arange(len(counts), device=got.device).repeat_interleave(counts.long())
        return {**outputs, "sorted_token_ids": slots_in_order(got, owners)}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Read every id, write every output: integers only."""
        return self.count(workload, {})

    def published_flops(self, workload: Workload) -> float:
        """None: integers only."""
        return 0.0

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose, repeat or renumber slots; count other things; begin elsewhere."""
        import torch

        def changed(name: str, change: Callable[[Any], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                return {**right, name: change(right[name])}

            return mutant

        def renumbered(change: Callable[[Any, int, int], Any], *, tokens: int) -> Implementation:
            """Number slots in another way; needs two routes, and so many tokens."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                count, top_k = inputs["topk_ids"].shape
                if top_k == 1 or count < tokens:
                    raise Inapplicable("slots have the same numbers")
                right = self.honest(workload, inputs)
                other = change(right["sorted_token_ids"], count, top_k)
                return {**right, "sorted_token_ids": other.int()}

            return mutant

        def experts_reversed(workload: Workload, inputs: Tensors) -> Tensors:
            last = _experts(workload) - 1
            mirrored = self.honest(workload, {"topk_ids": last - inputs["topk_ids"]})
            right = self.honest(workload, inputs)
            return {**right, "sorted_token_ids": mirrored["sorted_token_ids"]}

        def repeats_counted_once(workload: Workload, inputs: Tensors) -> Tensors:
            ids = inputs["topk_ids"].long()
            if ids.shape[1] == 1:
                raise Inapplicable("a token has one route only")
            again = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(-1)
            right = self.honest(workload, inputs)
            lost = ids[again].bincount(minlength=_experts(workload))
            counts = right["expert_token_counts"] - lost.int()
            return {**right, "expert_token_counts": counts}

        def padded(workload: Workload, inputs: Tensors) -> Tensors:
            right = self.honest(workload, inputs)
            block = workload.init.get("block_size", _BLOCK)
            whole = (right["expert_token_counts"] + block - 1) // block * block
            begins = torch.nn.functional.pad(whole.cumsum(0), (1, 0)).int()
            return {**right, "cumsum": begins}

        def slot_twice(ids: Any) -> Any:
            return torch.where(ids == 1, 0, ids)

        def last_slot_lost(ids: Any) -> Any:
            return torch.where(ids == len(ids) - 1, 0, ids)

        def last_expert_not_counted(counts: Any) -> Any:
            return torch.cat([counts[:-1], counts[-1:] * 0])

        return {
            "coarse": lambda w, i: coarse_integers(self.honest(w, i), 4),
            "unsorted": changed("sorted_token_ids", lambda ids: ids.sort().values),
            "experts_reversed": experts_reversed,
            "tokens_instead_of_slots": renumbered(lambda ids, _, k: ids // k, tokens=1),
            "routes_before_tokens": renumbered(
                lambda ids, tokens, k: ids % k * tokens + ids // k, tokens=2
            ),
            "slot_twice": changed("sorted_token_ids", slot_twice),
            "last_slot_lost": changed("sorted_token_ids", last_slot_lost),
            "slots_from_one": changed("sorted_token_ids", lambda ids: ids + 1),
            "repeats_counted_once": repeats_counted_once,
            "last_expert_not_counted": changed("expert_token_counts", last_expert_not_counted),
            "counts_of_next_expert": changed("expert_token_counts", lambda n: n.roll(-1)),
            "ends_instead_of_begins": changed(
                "cumsum", lambda begins: torch.cat([begins[1:], begins[-1:]])
            ),
            "begins_without_total": changed(
                "cumsum", lambda begins: begins * (begins < begins[-1])
            ),
            "begins_of_padded_blocks": padded,
        }


def _experts(workload: Workload) -> int:
    experts: int = workload.init.get("num_experts", _EXPERTS)
    return experts
