"""Judge `causal_conv1d`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, by_rows


class Operator(ProductionProblem):
    """A short causal filter for each channel, then SiLU."""

    summary = "causal depthwise convolution along time, with an initial state and SiLU"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `weight`, `bias` and `initial_state`."""
        channels, tokens, width = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(channels, tokens)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(channels, width)),
            TensorSpec(name="bias", dtype=DType.BF16, shape=(channels,)),
            TensorSpec(name="initial_state", dtype=DType.BF16, shape=(1, channels, width - 1)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        channels, tokens, _ = _sizes(workload)
        return (TensorSpec(name="out", dtype=DType.BF16, shape=(channels, tokens)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Filter and activate in float64, some channels at a time."""
        import torch

        activated = workload.init["activation"] is not None

        def filtered(x: Any, weight: Any, bias: Any, state: Any) -> Any:
            tokens = x.shape[1]
            z = torch.cat([state, x], dim=1).double()
            y = bias.double()[:, None].repeat(1, tokens)
            for tap in range(weight.shape[1]):
                y += weight[:, tap, None].double() * z[:, tap : tap + tokens]
            return y * y.sigmoid() if activated else y

        rows = inputs["x"], inputs["weight"], inputs["bias"], inputs["initial_state"][0]
        return {"out": by_rows(filtered, *rows)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for y in bf16: near -14 rounding it moves SiLU by 6 %.

        With one token a row is one element, so rows need the same room; the tensor as a whole
        does not.
        """
        return Tolerance(dtype=output.dtype, row_l2=32, element=4)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Weigh and add each tap, starting from the bias; SiLU adds one and multiplies."""
        channels, tokens, width = _sizes(workload)
        each = 2 * width + (0 if workload.init["activation"] is None else 2)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: each * channels * tokens})

    def published_flops(self, workload: Workload) -> float:
        """Bias counts nothing there, SiLU four."""
        channels, tokens, width = _sizes(workload)
        return channels * tokens * (2 * width + 4)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose a term, misplace the taps in time or across channels, or change the activation."""
        import torch

        def activated(workload: Workload, y: Any) -> Any:
            return y if workload.init["activation"] is None else y * y.sigmoid()

        def no_activation(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init["activation"] is None:
                raise Inapplicable("there is no activation")
            return self.run_reference(workload, inputs, activation=None)

        def other_activation(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init["activation"] is None:
                return self.run_reference(workload, inputs, activation="silu")
            y = self.run_reference(workload, inputs, activation=None)["out"].float()
            return {"out": (y * (1.702 * y).sigmoid()).bfloat16()}

        def late(workload: Workload, inputs: Tensors) -> Tensors:
            """Let the last tap meet the sample before the current one."""
            state, x = inputs["initial_state"], inputs["x"]
            earlier = torch.cat([torch.zeros_like(state[:, :, :1]), state[:, :, :-1]], dim=2)
            delayed = torch.cat([state[0, :, -1:], x[:, :-1]], dim=1)
            return self.honest(workload, {**inputs, "x": delayed, "initial_state": earlier})

        def no_halo(workload: Workload, inputs: Tensors) -> Tensors:
            """Start the second half of the tokens without the samples before it."""
            x, half = inputs["x"], inputs["x"].shape[1] // 2
            if half == 0:
                raise Inapplicable("one token has no second half")
            first = self.honest(workload, {**inputs, "x": x[:, :half].contiguous()})
            blank = torch.zeros_like(inputs["initial_state"])
            rest = {**inputs, "x": x[:, half:].contiguous(), "initial_state": blank}
            second = self.honest(workload, rest)
            return {"out": torch.cat([first["out"], second["out"]], dim=1)}

        def bf16_sums(workload: Workload, inputs: Tensors) -> Tensors:
            x, weight = inputs["x"], inputs["weight"]
            z = torch.cat([inputs["initial_state"][0], x], dim=1)
            y = inputs["bias"][:, None]
            for tap in range(weight.shape[1]):
                y = y + weight[:, tap, None] * z[:, tap : tap + x.shape[1]]
            return {"out": activated(workload, y.float()).bfloat16()}

        def first_sample(inputs: Tensors) -> Any:
            return inputs["x"][None, :, :1].expand_as(inputs["initial_state"])

        def without(tap: int) -> Implementation:
            def weight(inputs: Tensors) -> Any:
                kept = inputs["weight"].clone()
                kept[:, tap] = 0
                return kept

            return altering(self.honest, weight=weight)

        return {
            "bias_only": altering(self.honest, weight=lambda i: i["weight"] * 0),
            "no_bias": altering(self.honest, bias=lambda i: i["bias"] * 0),
            "no_state": altering(self.honest, initial_state=lambda i: i["initial_state"] * 0),
            "state_of_first_sample": altering(self.honest, initial_state=first_sample),
            "state_reversed": altering(
                self.honest, initial_state=lambda i: i["initial_state"].flip(-1)
            ),
            "state_of_next_channel": altering(
                self.honest, initial_state=lambda i: i["initial_state"].roll(1, 1)
            ),
            "taps_reversed": altering(self.honest, weight=lambda i: i["weight"].flip(-1)),
            "taps_of_next_channel": altering(self.honest, weight=lambda i: i["weight"].roll(1, 0)),
            "no_oldest_tap": without(0),
            "no_newest_tap": without(-1),
            "late": late,
            "no_halo": no_halo,
            "no_activation": no_activation,
            "other_activation": other_activation,
            "bf16_sums": bf16_sums,
        }


def _sizes(workload: Workload) -> tuple[int, int, int]:
    axes = workload.axes
    return axes["dim"], axes["token_count"], axes["width"]
