"""Judge `fused_qk_rmsnorm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, by_rows, coarse

_EPS = 1e-6
"""What `Model` takes where a workload's `init` does not say."""


class Operator(ProductionProblem):
    """RMS normalisation of the query and key heads of a packed projection."""

    summary = "root-mean-square normalisation of every query and key head; values are copied"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `hidden_states`, `q_weight` and `k_weight`."""
        dtype, size = _dtype(workload), workload.axes["size_per_head"]
        return (
            TensorSpec(name="hidden_states", dtype=dtype, shape=_shape(workload)),
            TensorSpec(name="q_weight", dtype=dtype, shape=(size,)),
            TensorSpec(name="k_weight", dtype=dtype, shape=(size,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=_dtype(workload), shape=_shape(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Normalise in float64, round as stated, and weigh in float64."""

        def normalise(x: Any, weight: Any) -> Any:
            wide = x.double()
            scale = (wide.square().mean(-1, keepdim=True) + _eps(workload)).rsqrt()
            return (wide * scale).to(x.dtype).double() * weight.double()

        def token(hidden: Any) -> Any:
            return _assembled(workload, {**inputs, "hidden_states": hidden}, normalise)

        return {"out": by_rows(token, inputs["hidden_states"])}

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Turn every element of V that is not the input's own into NaN, which is never right.

        A copy leaves no room for rounding, and the tolerance is one for all three parts.
        """
        out, hidden = outputs["out"], inputs["hidden_states"]
        if out.shape != hidden.shape or out.dtype != hidden.dtype:
            return outputs
        settled = out.clone()
        values = _as_heads(workload, settled)[:, _values(workload)]
        given = _as_heads(workload, hidden)[:, _values(workload)]
        values.masked_fill_(values != given, float("nan"))
        return {**outputs, "out": settled}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Square, sum, scale, weigh each element of Q and K; mean and epsilon for each head."""
        work = _normed(workload) * (4 * _size(workload) + 1)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: work})

    def published_flops(self, workload: Workload) -> float:
        """Squares and square roots count nothing there."""
        return _normed(workload) * (3 * _size(workload) + 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse scale, weights, heads, or the bounds between Q, K and V."""

        def no_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, **{**workload.init, "eps": 0.0})

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if _eps(workload) == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs, **{**workload.init, "eps": _EPS})

        def not_weighed_last(name: str) -> Callable[[Tensors], Any]:
            def change(inputs: Tensors) -> Any:
                weight = inputs[name].clone()
                weight[-1] = 1
                return weight

            return change

        def by(
            mean: Callable[[Any], Any] = _mean,
            centre: Callable[[Any], Any] = lambda _: 0,
            middle: Callable[[Any], Any] = lambda normed: normed,
        ) -> Implementation:
            """Take another mean of the squares, subtract something, or coarsen the middle."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                def normalise(x: Any, weight: Any) -> Any:
                    wide = x.float()
                    wide = wide - centre(wide)
                    scale = (mean(wide.square()) + _eps(workload)).rsqrt()
                    return middle(wide * scale).to(x.dtype) * weight

                return {"out": _assembled(workload, inputs, normalise)}

            return mutant

        def replaced(
            part: Callable[[Workload], slice], change: Callable[[Workload, Tensors], Any]
        ) -> Implementation:
            """Put other heads in the place of some: those that `change` returns for all."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                out = self.honest(workload, inputs)["out"]
                heads = part(workload)
                _as_heads(workload, out)[:, heads] = change(workload, inputs)[:, heads]
                return {"out": out}

            return mutant

        def as_given(workload: Workload, inputs: Tensors) -> Any:
            return _as_heads(workload, inputs["hidden_states"])

        def by_key_weight(workload: Workload, inputs: Tensors) -> Any:
            other = {**inputs, "q_weight": inputs["k_weight"]}
            return _as_heads(workload, self.honest(workload, other)["out"])

        def values(change: Callable[[Any, Tensors], Any]) -> Implementation:
            """Change all heads as given, of which V is taken."""
            return replaced(_values, lambda w, i: change(as_given(w, i), i))

        def keys_for_values(workload: Workload, inputs: Tensors) -> Any:
            return as_given(workload, inputs).roll(_split(workload)[1], 1)

        def one_step_off(heads: Any, _: Tensors) -> Any:
            changed = heads.clone()
            changed[-1, -1, -1] *= 1 + 2 * _resolution(heads)
            return changed

        return {
            "no_epsilon": no_epsilon,
            "default_epsilon": default_epsilon,
            "one_scale_for_all_heads": by(mean=lambda s: s.mean((-1, -2), keepdim=True)),
            "scale_of_next_head": by(mean=lambda s: _mean(s).roll(1, 1)),
            "half_of_the_head": by(mean=lambda s: _mean(s[..., : (s.shape[-1] + 1) // 2])),
            "last_column_not_summed": by(mean=lambda s: _mean(s[..., :-1])),
            "sum_for_mean": by(mean=lambda s: s.sum(-1, keepdim=True)),
            "mean_removed": by(centre=_mean),
            "coarse_middle": by(middle=lambda normed: coarse(normed, 3)),
            "queries_as_given": replaced(_queries, as_given),
            "keys_as_given": replaced(_keys, as_given),
            "last_key_head_as_given": replaced(_last_key, as_given),
            "key_weight_one_head_early": replaced(_last_query, by_key_weight),
            "no_values": values(lambda heads, _: heads * 0),
            "keys_for_values": replaced(_values, keys_for_values),
            "normalised_values": values(lambda heads, _: heads / _mean(heads.float() ** 2) ** 0.5),
            "weighted_values": values(lambda heads, inputs: heads * inputs["k_weight"]),
            "one_value_one_step_off": values(one_step_off),
            "swapped_weights": altering(
                self.honest, q_weight=lambda i: i["k_weight"], k_weight=lambda i: i["q_weight"]
            ),
            "last_query_column_not_weighed": altering(
                self.honest, q_weight=not_weighed_last("q_weight")
            ),
            "last_key_column_not_weighed": altering(
                self.honest, k_weight=not_weighed_last("k_weight")
            ),
            "no_query_weight": altering(self.honest, q_weight=lambda i: i["q_weight"] * 0 + 1),
            "key_weight_plus_one": altering(self.honest, k_weight=lambda i: i["k_weight"] + 1),
        }


def _mean(squares: Any) -> Any:
    return squares.mean(-1, keepdim=True)


def _assembled(workload: Workload, inputs: Tensors, normalise: Callable[[Any, Any], Any]) -> Any:
    """Apply `normalise` to the heads of Q and K, [tokens, heads, size]; append V."""
    import torch

    hidden = inputs["hidden_states"]
    q, k, v = _as_heads(workload, hidden).split(_split(workload), dim=1)
    q, k = normalise(q, inputs["q_weight"]), normalise(k, inputs["k_weight"])
    return torch.cat([q, k, v.to(q.dtype)], dim=1).flatten(1)


def _as_heads(workload: Workload, flat: Any) -> Any:
    return flat.view(len(flat), -1, _size(workload))


def _queries(workload: Workload) -> slice:
    return slice(0, _split(workload)[0])


def _last_query(workload: Workload) -> slice:
    return slice(_split(workload)[0] - 1, _split(workload)[0])


def _keys(workload: Workload) -> slice:
    queries, keys, _ = _split(workload)
    return slice(queries, queries + keys)


def _last_key(workload: Workload) -> slice:
    end = _keys(workload).stop
    return slice(end - 1, end)


def _values(workload: Workload) -> slice:
    return slice(_keys(workload).stop, None)


def _dtype(workload: Workload) -> DType:
    return DType(workload.axes["dtype"])


def _resolution(values: Any) -> float:
    import torch

    return float(torch.finfo(values.dtype).eps)


def _eps(workload: Workload) -> float:
    return float(workload.init.get("eps", _EPS))


def _size(workload: Workload) -> int:
    return int(workload.axes["size_per_head"])


def _split(workload: Workload) -> tuple[int, int, int]:
    """Return how many heads Q, K and V have."""
    queries, keys = workload.axes["head_num"], workload.axes["kv_head_num"]
    return queries, keys, keys


def _shape(workload: Workload) -> tuple[int, int]:
    return workload.axes["num_tokens"], sum(_split(workload)) * _size(workload)


def _normed(workload: Workload) -> int:
    """Return how many heads are normalised, over all tokens."""
    queries, keys, _ = _split(workload)
    return int(workload.axes["num_tokens"] * (queries + keys))
