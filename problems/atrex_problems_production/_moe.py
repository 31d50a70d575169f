"""What the private halves of the mixture-of-experts operators share: routes, and mistakes in them.

Experts are gated: the rows of the first matrix give the gate, then as many give the value that it
gates; the second matrix brings what results back to the width of a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from atrex_core import Implementation, Inapplicable, Tensors, Workload
from atrex_core.packs import altering, coarse

_CHUNK = 1 << 25
"""Elements of what is computed at once for some routes through one expert."""

_TILE = 16
"""Rows that the smallest matrix instructions take."""

_FEW = 3

_LIGHT = 0.05

_STEPS = 32
"""Parts of a sum between which `added_in_bf16` rounds, of at least a tile each."""

_WORD = 33
"""Bits that no difference of two int32 values exceeds."""

Activate = Callable[[Any, Any], Any]
"""What the second matrix is multiplied by, from gate and up."""

Expert = Callable[[Any, Any, Any, Any], Any]
"""The weighted output of some routes, from their rows, their weights, and two matrices."""


@frozen(kw_only=True)
class Sizes:
    """The sizes of a mixture of gated experts."""

    tokens: int
    hidden: int
    intermediate: int
    experts: int
    top_k: int

    @classmethod
    def of(cls, workload: Workload) -> Sizes:
        """Read the axes."""
        axes = workload.axes
        return cls(
            tokens=axes["token_count"],
            hidden=axes["hidden_size"],
            intermediate=axes["intermediate_size"],
            experts=axes["num_experts"],
            top_k=axes["top_k"],
        )

    @property
    def matrix_flops(self) -> int:
        """Work of both products for one route."""
        return 6 * self.hidden * self.intermediate

    def vector_flops(self, routes: int) -> int:
        """Work beside the products: three for each gated value; weigh and add the routes."""
        return 3 * routes * self.intermediate + (2 * routes - self.tokens) * self.hidden

    @property
    def occupied(self) -> float:
        """How many experts a draw of distinct, equally likely ones is expected to hit."""
        return self.experts * (1 - (1 - self.top_k / self.experts) ** self.tokens)

    @property
    def published_occupied(self) -> int:
        """The same as the published accounting has it."""
        free = math.exp(self.tokens * math.log(1 - self.top_k / self.experts))
        return min(self.experts, self.tokens * self.top_k, math.ceil(self.experts * (1 - free)))


def swiglu(gate: Any, up: Any) -> Any:
    """Return SiLU of `gate`, times `up`."""
    return gate * gate.sigmoid() * up


def gated(rows: Any, weights: Any, first: Any, second: Any, activate: Activate = swiglu) -> Any:
    """Run rows through one expert and weigh what comes out."""
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    return activate(gate, up) @ second.T * weights


def added_in_bf16(rows: Any, matrix: Any) -> Any:
    """Multiply by the transpose of `matrix`; what is summed so far is rounded now and again."""
    step = max(_TILE, math.ceil(rows.shape[1] / _STEPS))
    found: Any = 0
    for part, against in zip(rows.split(step, 1), matrix.split(step, 1), strict=True):
        found = (found + part @ against.T).bfloat16().float()
    return found


def first_product_in_bf16(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Run rows through one expert, whose first product is summed in too narrow a type."""
    gate, up = added_in_bf16(rows, first).chunk(2, dim=-1)
    return swiglu(gate, up) @ second.T * weights


def second_product_in_bf16(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """The same for the second product."""
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    return added_in_bf16(swiglu(gate, up), second) * weights


def without_last(values: Any, count: int) -> Any:
    """Return values of which the last columns, few beside all of them, are zero."""
    values = values.clone()
    values[..., -count:] = 0
    return values


def routes(ids: Any, experts: int, chunk: int) -> Iterator[tuple[int, Any]]:
    """Yield each expert that was chosen with the slots that chose it, `chunk` at most at a time.

    A slot is a flat position in `ids`. Waits for the device once.
    """
    import torch

    chosen, slots = ids.reshape(-1).sort(stable=True)
    edges = torch.arange(experts + 1, dtype=chosen.dtype, device=ids.device)
    bounds = torch.searchsorted(chosen, edges).tolist()
    for expert in range(experts):
        for start in range(bounds[expert], bounds[expert + 1], chunk):
            yield expert, slots[start : min(start + chunk, bounds[expert + 1])]


def mix(
    ids: Any,
    weights: Any,
    sizes: Sizes,
    *,
    rows: Callable[[Any], Any],
    matrices: Callable[[int], tuple[Any, Any]],
    expert: Expert = gated,
    added_in: Any = None,
) -> Any:
    """Run every route through its expert, some at a time, and add up the routes of each token.

    Args:
        ids: The expert of each route, integers [tokens, top_k].
        weights: What each route counts, [tokens, top_k].
        sizes: Of the whole problem; `ids` may be of fewer tokens.
        rows: Returns the rows of some tokens, in the dtype to compute in.
        matrices: Returns the two matrices of an expert, in that dtype.
        expert: Computes some routes through one expert.
        added_in: The dtype to add routes up in, if not the one to compute in.
    """
    tokens, top_k = ids.shape
    flat = weights.reshape(-1, 1)
    chunk = max(64, _CHUNK // (2 * sizes.hidden + 4 * sizes.intermediate))
    held, pair = -1, None
    out: Any = rows(ids[:0, 0].long()).new_zeros(tokens, sizes.hidden, dtype=added_in)
    for number, slots in routes(ids, sizes.experts, chunk):
        if number != held:
            pair = None  # makes room for the next
            held, pair = number, matrices(number)
        assert pair is not None
        token = slots // top_k
        own = rows(token)
        routed = expert(own, flat[slots].to(own.dtype), *pair)
        out.index_add_(0, token, routed.to(out.dtype))
    return out


def slots_in_order(ids: Any, owners: Any) -> Any:
    """Sort stretches of `ids` that one expert owns, each by itself; `owners` must not descend."""
    base = owners.long() << _WORD
    return ((base + ids).sort().values - base).to(ids.dtype)


def coarse_integers(right: Tensors, bits: int) -> Tensors:
    """Round integers to `bits` significant bits, as a narrow floating type would."""
    if all(int(values.max()) <= 1 << bits for values in right.values()):
        raise Inapplicable("every number here is exact in so few bits")
    return {name: coarse(values, bits).to(values.dtype) for name, values in right.items()}


def wrong_activations() -> Mapping[str, Activate]:
    """Return what may go wrong between the two products, whatever they are computed in."""
    import torch

    def interleaved(gate: Any, up: Any) -> Any:
        both = torch.cat([gate, up], dim=-1)
        return swiglu(both[:, 0::2], both[:, 1::2])

    return {
        "gate_and_up_swapped": lambda gate, up: swiglu(up, gate),
        "gate_and_up_interleaved": interleaved,
        "no_activation": lambda gate, up: gate * up,
        "no_up": lambda gate, _: gate * gate.sigmoid(),
        "sigmoid_only": lambda gate, up: gate.sigmoid() * up,
        "relu": lambda gate, up: gate.relu() * up,
        "gelu_like": lambda gate, up: gate * (1.702 * gate).sigmoid() * up,
        "hard_swish": lambda gate, up: gate * (gate / 6 + 0.5).clamp(0, 1) * up,
        "relu_beyond_five": lambda gate, up: torch.where(
            gate.abs() > 5, gate.relu() * up, swiglu(gate, up)
        ),
        "nothing_below_minus_three": lambda gate, up: swiglu(gate, up).masked_fill(gate < -3, 0),
    }


def wrong_routes(honest: Implementation) -> Mapping[str, Implementation]:
    """Return mutants that send, weigh or drop routes wrongly and are `honest` otherwise."""
    import torch

    def next_expert(workload: Workload, inputs: Tensors) -> Tensors:
        ids = (inputs["topk_ids"] + 1) % workload.axes["num_experts"]
        return honest(workload, {**inputs, "topk_ids": ids})

    def ignoring_expert(number: int) -> Implementation:
        def mutant(workload: Workload, inputs: Tensors) -> Tensors:
            ignored = inputs["topk_ids"] == number % workload.axes["num_experts"]
            return _without(honest, workload, inputs, ignored)

        return mutant

    def needing_routes(mutant: Implementation) -> Implementation:
        def guarded(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["top_k"] == 1:
                raise Inapplicable("a token has one route only")
            return mutant(workload, inputs)

        return guarded

    def lightest_dropped(workload: Workload, inputs: Tensors) -> Tensors:
        return _without(honest, workload, inputs, _ranks(inputs["topk_weights"]) == 0)

    def light_routes_dropped(workload: Workload, inputs: Tensors) -> Tensors:
        return _without(honest, workload, inputs, inputs["topk_weights"].abs() < _LIGHT)

    def beside_the_heaviest_dropped(share: float) -> Implementation:
        def mutant(workload: Workload, inputs: Tensors) -> Tensors:
            size = inputs["topk_weights"].abs()
            dropped = size < share * size.amax(-1, keepdim=True)
            return _without(honest, workload, inputs, dropped)

        return needing_routes(mutant)

    def few_routes(workload: Workload, inputs: Tensors) -> Tensors:
        keep = min(_FEW, workload.axes["top_k"] - 1)
        ranks = _ranks(inputs["topk_weights"])
        return _without(honest, workload, inputs, ranks < workload.axes["top_k"] - keep)

    def over_capacity(workload: Workload, inputs: Tensors) -> Tensors:
        sizes = Sizes.of(workload)
        capacity = math.ceil(1.25 * sizes.tokens * sizes.top_k / sizes.experts)
        if sizes.tokens <= capacity:
            raise Inapplicable("no expert can be given more than its capacity")
        place, _ = _places(inputs["topk_ids"])
        return _without(honest, workload, inputs, place >= capacity)

    def whole_tiles_only(workload: Workload, inputs: Tensors) -> Tensors:
        place, count = _places(inputs["topk_ids"])
        return _without(honest, workload, inputs, place >= count // _TILE * _TILE)

    def renormalised(inputs: Tensors) -> Any:
        weights = inputs["topk_weights"]
        return weights / weights.sum(-1, keepdim=True)

    return {
        "next_expert": next_expert,
        "first_expert_ignored": ignoring_expert(0),
        "last_expert_ignored": ignoring_expert(-1),
        "lightest_route_dropped": needing_routes(lightest_dropped),
        "light_routes_dropped": light_routes_dropped,
        "routes_below_a_hundredth_dropped": beside_the_heaviest_dropped(0.01),
        "routes_below_a_thousandth_dropped": beside_the_heaviest_dropped(0.001),
        "few_routes": needing_routes(few_routes),
        "over_capacity_dropped": over_capacity,
        "whole_tiles_only": whole_tiles_only,
        "unweighted": altering(honest, topk_weights=lambda i: torch.ones_like(i["topk_weights"])),
        "renormalised": altering(honest, topk_weights=renormalised),
        "absolute_weights": altering(honest, topk_weights=lambda i: i["topk_weights"].abs()),
        "negative_routes_dropped": altering(
            honest, topk_weights=lambda i: i["topk_weights"].relu()
        ),
        "weights_of_next_route": needing_routes(
            altering(honest, topk_weights=lambda i: i["topk_weights"].roll(1, -1))
        ),
    }


def _without(honest: Implementation, workload: Workload, inputs: Tensors, dropped: Any) -> Tensors:
    weights = inputs["topk_weights"].masked_fill(dropped, 0.0)
    return honest(workload, {**inputs, "topk_weights": weights})


def _ranks(weights: Any) -> Any:
    """Return the place of each weight among those of its token, the lightest first."""
    return weights.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True)


def _places(ids: Any) -> tuple[Any, Any]:
    """Return the place of each route among those of its expert, and how many those are."""
    import torch

    flat = ids.reshape(-1)
    chosen, slots = flat.sort(stable=True)
    first = torch.searchsorted(chosen, flat)
    count = torch.searchsorted(chosen, flat, right=True) - first
    place = torch.empty_like(slots)
    place[slots] = torch.arange(len(slots), device=ids.device) - first[slots]
    return place.view_as(ids), count.view_as(ids)
