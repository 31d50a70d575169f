"""Judge `topk_filter`: exact truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    Allclose,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Rule,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import by_rows

_TOP_K = 50
"""`top_k` of `Model` where `init` names none."""

_PARTS = 256
_FEW = 4
"""Parts of a row, and how many logits of each, that an approximate selection looks at."""

_TINY = 2.0**-126
"""The smallest normal fp32 number."""


class Operator(ProductionProblem):
    """Keep the largest logits of each row, and those equal to the last of them."""

    summary = "the top-k logits of each row; minus infinity for the rest"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `logits`."""
        return (TensorSpec(name="logits", dtype=DType.FP32, shape=_shape(workload)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=DType.FP32, shape=_shape(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Sort each row, and compare it with the one at place k."""
        import torch

        k = _kept(workload)

        def keep(logits: Any) -> Any:
            theta = logits.sort(dim=-1, descending=True).values[:, k - 1, None]
            return torch.where(logits >= theta, logits, -torch.inf)

        return {"out": by_rows(keep, inputs["logits"])}

    def tolerance(self, output: TensorSpec) -> Rule:
        """Demand equality: logits are only copied. Infinities must stand where they should."""
        return Allclose(absolute=0.0, relative=0.0)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Read every logit and write every output; comparisons are not arithmetic."""
        return self.count(workload, {})

    def published_flops(self, workload: Workload) -> float:
        """Nothing is computed."""
        return 0

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the threshold, the ties, or what stands for nothing."""
        return {**self._other_thresholds(), **self._other_outputs()}

    def _other_thresholds(self) -> Mapping[str, Implementation]:
        import torch

        def kth(logits: Any, k: int) -> Any:
            return logits.topk(k, dim=-1).values[:, -1:]

        def filtering(
            keys: Callable[[Any], Any] = lambda logits: logits,
            threshold: Callable[[Any, int], Any] = kth,
        ) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                k, logits = _some_are_dropped(workload), inputs["logits"]
                ranked = keys(logits)
                return {"out": torch.where(ranked >= threshold(ranked, k), logits, -torch.inf)}

            return mutant

        def with_top_k(change: Callable[[int], int], why: str) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                k, logits = _kept(workload), inputs["logits"]
                other = min(change(k), logits.shape[1])
                if other == k:
                    raise Inapplicable(why)
                theta = kth(logits, other) if other else torch.inf
                return {"out": torch.where(logits >= theta, logits, -torch.inf)}

            return mutant

        def best_of_each_part(strided: bool) -> Callable[[Any, int], Any]:
            """Look for the k-th among a few of each part: a stretch, or every so many columns."""

            def threshold(logits: Any, k: int) -> Any:
                width, few = logits.shape[1], min(_FEW, (k + 1) // 2)
                parts = _PARTS
                while 2 * few * parts > width:
                    parts //= 2
                if k == 1 or few * parts < k:
                    raise Inapplicable("so few of each part are all, or not enough")
                size = -(-width // parts)
                padding = (0, parts * size - width)
                row = torch.nn.functional.pad(logits, padding, value=-torch.inf)
                pieces = row.view(-1, size, parts).mT if strided else row.view(-1, parts, size)
                return kth(pieces.topk(few, dim=-1).values.flatten(1), k)

            return threshold

        def without_first_column(logits: Any, k: int) -> Any:
            return kth(logits[:, 1:], k)

        def several_rows(threshold: Callable[[Any, int], Any]) -> Implementation:
            inner = filtering(threshold=threshold)

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if len(inputs["logits"]) == 1:
                    raise Inapplicable("there is one row")
                return inner(workload, inputs)

            return mutant

        def bits(logits: Any) -> Any:
            raw = logits.view(torch.int32)
            return torch.where(raw < 0, raw ^ 0x7FFFFFFF, raw)

        def first_half(logits: Any, k: int) -> Any:
            half = logits[:, : (logits.shape[1] + 1) // 2]
            return kth(half, min(k, half.shape[1]))

        def bisected(logits: Any, k: int) -> Any:
            low, high = logits.amin(-1, keepdim=True), logits.amax(-1, keepdim=True)
            for _ in range(16):
                middle = low / 2 + high / 2
                enough = (logits >= middle).sum(-1, keepdim=True) >= k
                low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
            return low

        return {
            "fewer": with_top_k(lambda k: k - 1, "nothing can be left out"),
            "more": with_top_k(lambda k: k + 1, "nothing is dropped"),
            "default_top_k": with_top_k(lambda _: _TOP_K, "it is the default"),
            "by_magnitude": filtering(keys=lambda logits: logits.abs()),
            "negative_zero_below_zero": filtering(keys=bits),
            "ranked_in_bf16": filtering(keys=lambda logits: logits.bfloat16()),
            "ranked_in_fp16": filtering(keys=lambda logits: logits.half()),
            "threshold_of_first_half": filtering(threshold=first_half),
            "ranked_without_last_bit": filtering(keys=lambda logits: bits(logits + 0.0) >> 1),
            "without_first_column": filtering(threshold=without_first_column),
            "best_of_each_lane": filtering(threshold=best_of_each_part(strided=True)),
            "best_of_each_stretch": filtering(threshold=best_of_each_part(strided=False)),
            "bisected_briefly": filtering(threshold=bisected),
            "one_threshold_for_all": several_rows(lambda x, k: kth(x, k).amin()),
            "threshold_of_previous_row": several_rows(lambda x, k: kth(x, k).roll(1, 0)),
        }

    def _other_outputs(self) -> Mapping[str, Implementation]:
        import torch

        def identity(workload: Workload, inputs: Tensors) -> Tensors:
            _some_are_dropped(workload)
            return {"out": inputs["logits"].clone()}

        def exactly_k(workload: Workload, inputs: Tensors) -> Tensors:
            best = inputs["logits"].topk(_some_are_dropped(workload), dim=-1)
            out = torch.full_like(inputs["logits"], -torch.inf)
            return {"out": out.scatter_(1, best.indices, best.values)}

        def above_only(workload: Workload, inputs: Tensors) -> Tensors:
            logits = inputs["logits"]
            theta = logits.topk(_kept(workload), dim=-1).values[:, -1:]
            return {"out": torch.where(logits > theta, logits, -torch.inf)}

        def instead_of_infinity(value: float) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                _some_are_dropped(workload)
                out = self.honest(workload, inputs)["out"]
                return {"out": out.masked_fill(out.isinf(), value)}

            return mutant

        def denormals_flushed(workload: Workload, inputs: Tensors) -> Tensors:
            out = self.honest(workload, inputs)["out"]
            return {"out": out.masked_fill(out.abs() < _TINY, 0.0)}

        def probabilities(workload: Workload, inputs: Tensors) -> Tensors:
            return {"out": self.honest(workload, inputs)["out"].softmax(-1)}

        def inverted(workload: Workload, inputs: Tensors) -> Tensors:
            out = self.honest(workload, inputs)["out"]
            return {"out": torch.where(out.isinf(), inputs["logits"], -torch.inf)}

        return {
            "unfiltered": identity,
            "exactly_k": exactly_k,
            "above_threshold_only": above_only,
            "zeros_for_infinity": instead_of_infinity(0.0),
            "lowest_for_infinity": instead_of_infinity(torch.finfo(torch.float32).min),
            "plus_infinity": instead_of_infinity(torch.inf),
            "not_a_number": instead_of_infinity(torch.nan),
            "denormals_flushed": denormals_flushed,
            "probabilities": probabilities,
            "inverted": inverted,
        }


def _shape(workload: Workload) -> tuple[int, int]:
    return workload.axes["seq_len"], workload.axes["hidden_size"]


def _kept(workload: Workload) -> int:
    """Return how many logits of a row are kept at least."""
    return int(min(workload.init.get("top_k", _TOP_K), workload.axes["hidden_size"]))


def _some_are_dropped(workload: Workload) -> int:
    """Return how many logits are kept where that is not all of them."""
    k = _kept(workload)
    if k == workload.axes["hidden_size"]:
        raise Inapplicable("nothing is dropped")
    return k
