"""Judge `chunk_gated_delta_rule_state`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from atrex_problems_production._delta_rule import (
    as_bf16,
    as_fp16,
    bytes_beside_pool,
    chunked,
    interleaved,
    pool_after,
    pool_mutants,
    rejoined,
    unchanged,
)
from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import storing, toward_zero

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, coarse

_CHUNK_SIZE = 64
"""What `Model` takes for a chunk unless told otherwise."""

Decay = Callable[[Any], Any]
"""What rows and the state are multiplied by, from g of a chunk's rows."""

Change = Callable[[Any], Any]
"""A state or rows, altered."""


class Operator(ProductionProblem):
    """The state before each chunk, what its rows add to it, and the state at the end."""

    summary = "chunkwise state recurrence of the gated delta rule over a pool of states"
    fp32_truth = ("h", "v_new")
    container = Container.DICT
    in_place: ClassVar[Mapping[str, str]] = {"final_state": "initial_state"}

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `k`, `w`, `u`, `g`, the pool `initial_state`, and its rows in use."""
        a = workload.axes
        batch, tokens, heads = a["batch_size"], a["token_count"], a["num_v_heads"]
        key_dim, value_dim = a["key_dim"], a["value_dim"]
        pool = (a["state_count"], heads, key_dim, value_dim)
        keys = (batch, tokens, a["num_k_heads"], key_dim)
        return (
            TensorSpec(name="k", dtype=DType.BF16, shape=keys),
            TensorSpec(name="w", dtype=DType.BF16, shape=(batch, tokens, heads, key_dim)),
            TensorSpec(name="u", dtype=DType.BF16, shape=(batch, tokens, heads, value_dim)),
            TensorSpec(name="g", dtype=DType.FP32, shape=(batch, tokens, heads)),
            TensorSpec(name="initial_state", dtype=DType.FP32, shape=pool),
            TensorSpec(name="initial_state_indices", dtype=DType.INT32, shape=(batch,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return the chunks' states `h`, `v_new`, and the pool `final_state`."""
        a = workload.axes
        batch, tokens, heads = a["batch_size"], a["token_count"], a["num_v_heads"]
        state = (heads, a["key_dim"], a["value_dim"])
        values = (batch, tokens, heads, a["value_dim"])
        return (
            TensorSpec(name="h", dtype=DType.BF16, shape=(batch, _chunks(workload), *state)),
            TensorSpec(name="v_new", dtype=DType.BF16, shape=values),
            TensorSpec(name="final_state", dtype=DType.FP32, shape=(a["state_count"], *state)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Run the recurrence in float64 and round nothing on the way.

        What the definition rounds, an implementation may keep wider; so the reference is off by
        those roundings, and the tolerance follows. `h` and `v_new` are held in fp32, far below the
        last bit of bf16.
        """
        import torch

        h, v_new, state = _walk(workload, inputs, torch.float64, _decays)
        return {"h": h, "v_new": v_new, "final_state": pool_after(inputs, state)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Let the state at the end be as far off as roundings before its products make it.

        Where it outweighs what tokens add, that is less than rounding it to fp16. Some of its rows
        owe next to nothing to the tokens; there, fast exponentials show.
        """
        if output.name == "final_state":
            return Tolerance(dtype=output.dtype, relative_l2=4, row_l2=32, element=16, cap=64)
        return Tolerance(dtype=output.dtype, row_l2=6)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count what rows read and what those add whose g is not below the last; a row in use once.

        Values and states enter the products as the initial sums. The last row does not decay.
        """
        a = workload.axes
        batch, tokens, heads = a["batch_size"], a["token_count"], a["num_v_heads"]
        key_dim, value_dim, chunks = a["key_dim"], a["value_dim"], _chunks(workload)
        rows, states = batch * tokens * heads, batch * chunks * heads
        live = (rows + states) / 2 if inputs is None else _live_rows(workload, inputs["g"])
        pool = DType.FP32.item_bytes * batch * heads * key_dim * value_dim
        return Cost(
            flops={
                ArithmeticPath.BF16_MATRIX: 2 * (rows + live) * key_dim * value_dim,
                ArithmeticPath.FP32_VECTOR: (live - states) * (value_dim + 1)
                + states * key_dim * value_dim,
            },
            read_bytes=pool + bytes_beside_pool(self.inputs(workload)),
            write_bytes=pool + bytes_beside_pool(self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Count products, and what is done to each element on the way, for each chunk."""
        a = workload.axes
        key_dim, value_dim = a["key_dim"], a["value_dim"]
        per_row = 4 * key_dim * value_dim + 2 * value_dim + 1
        per_sequence = a["token_count"] * per_row + 2 * _chunks(workload) * key_dim * value_dim
        return float(a["batch_size"] * a["num_v_heads"] * per_sequence)

    def published_cost(self, workload: Workload) -> Cost:
        """Return the published work, and bytes of the rows of the pool in use."""
        strict = self.cost(workload)
        return Cost(
            flops=self.published_bucket(workload),
            read_bytes=strict.read_bytes,
            write_bytes=strict.write_bytes,
        )

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose a term or a factor, let other rows count, confuse states, or carry them narrow."""
        import torch

        def walking(decays: Decay, rows: int = 1, **changes: Change) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if min(workload.axes["token_count"], workload.init["chunk_size"]) < rows:
                    raise Inapplicable(f"no chunk has {rows} rows")
                return _narrow(workload, inputs, decays, **changes)

            return mutant

        def rising_too(gates: Any) -> Any:
            return (gates[:, :, -1:] - gates).exp(), gates[:, :, -1:].exp()

        def rising_undiminished(gates: Any) -> Any:
            return (gates[:, :, -1:] - gates).clamp(max=0).exp(), gates[:, :, -1:].exp()

        def undiminished(gates: Any) -> Any:
            rows, state = _decays(gates)
            return (rows > 0).to(rows.dtype), state

        def no_ties(gates: Any) -> Any:
            rows, state = _decays(gates)
            return torch.where(gates == gates[:, :, -1:], 0.0, rows), state

        def not_of_state(gates: Any) -> Any:
            rows, state = _decays(gates)
            return rows, torch.ones_like(state)

        def narrow_of_state(gates: Any) -> Any:
            rows, state = _decays(gates)
            return rows, as_bf16(state)

        def to_lowest(gates: Any) -> Any:
            lowest = gates.amin(2, keepdim=True)
            return (lowest - gates).exp(), lowest.exp()

        def to_first(gates: Any) -> Any:
            first = gates[:, :, :1]
            fall = (first - gates).masked_fill(first > gates, -torch.inf)
            return fall.exp(), first.exp()

        def factored(gates: Any) -> Any:
            rows, state = _decays(gates)
            return torch.where(rows > 0, state * (-gates).exp(), rows), state

        def changed(**change: Callable[[Tensors, Tensors], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                return {**right, **{name: f(inputs, right) for name, f in change.items()}}

            return mutant

        def states_after(inputs: Tensors, right: Tensors) -> Any:
            last = right["final_state"][inputs["initial_state_indices"].long()].bfloat16()
            return torch.cat([right["h"][:, 1:], last[:, None]], dim=1)

        def read_at_first(workload: Workload, inputs: Tensors) -> Tensors:
            """Read the state in eight chunks only: with the published inputs little is left."""
            read = 8 * workload.init["chunk_size"]
            if workload.axes["token_count"] <= read:
                raise Inapplicable("there are eight chunks at most")
            w = inputs["w"].clone()
            w[:, read:] = 0
            return self.honest(workload, {**inputs, "w": w})

        def default_chunks(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["token_count"] <= workload.init["chunk_size"]:
                raise Inapplicable("there is one chunk")
            if workload.init["chunk_size"] == _CHUNK_SIZE:
                raise Inapplicable("it is the right size")
            other = self.run_reference(workload, inputs)
            return {**self.honest(workload, inputs), "final_state": other["final_state"]}

        def short_chunk_ends_at_zero(workload: Workload, inputs: Tensors) -> Tensors:
            """Take g of the last row from padding."""
            size = workload.init["chunk_size"]
            short = -workload.axes["token_count"] % size
            if not short:
                raise Inapplicable("every chunk is full")
            padded = {
                n: torch.nn.functional.pad(inputs[n], (*[0, 0] * (inputs[n].dim() - 2), 0, short))
                for n in ("k", "w", "u", "g")
            }
            axes = {**workload.axes, "token_count": workload.axes["token_count"] + short}
            right = self.honest(
                Workload(id=workload.id, axes=axes, init=workload.init), {**inputs, **padded}
            )
            return {**right, "v_new": right["v_new"][:, :-short].contiguous()}

        return {
            "state_not_read": altering(self.honest, w=lambda i: i["w"] * 0),
            "state_read_at_first": read_at_first,
            "no_values": altering(self.honest, u=lambda i: i["u"] * 0),
            "no_keys": altering(self.honest, k=lambda i: i["k"] * 0),
            "rising_too": walking(rising_too, rows=2),
            "rising_undiminished": walking(rising_undiminished, rows=2),
            "undiminished_rows": walking(undiminished, rows=2),
            "decay_to_lowest": walking(to_lowest, rows=2),
            "decay_to_first": walking(to_first, rows=2),
            "factored_decay": walking(factored, rows=16),
            "no_ties": walking(no_ties),
            "no_decay_of_state": walking(not_of_state),
            "decay_of_state_in_bf16": walking(narrow_of_state),
            "short_chunk_ends_at_zero": short_chunk_ends_at_zero,
            "default_chunk_size": default_chunks,
            "truncated_states": storing(self, toward_zero, "h"),
            "truncated_values": storing(self, toward_zero, "v_new"),
            "bf16_state": walking(_decays, kept=as_bf16),
            "fp16_state": walking(_decays, kept=as_fp16),
            "coarse_state_read": walking(_decays, read=lambda m: coarse(m, 3)),
            "coarse_rows": walking(_decays, pushed=lambda p: coarse(p, 3)),
            "states_after_chunks": changed(h=states_after),
            "values_not_reduced": changed(v_new=lambda inputs, _: inputs["u"].clone()),
            "gates_of_next_head": altering(self.honest, g=lambda i: i["g"].roll(1, -1)),
            "interleaved_heads": altering(
                self.honest, k=lambda i: interleaved(i["k"], i["u"].shape[2])
            ),
            **pool_mutants(self.honest),
        }


def _chunks(workload: Workload) -> int:
    chunks: int = -(-workload.axes["token_count"] // workload.init["chunk_size"])
    return chunks


def _decays(gates: Any) -> Any:
    """Return the factors of rows, zero where g is below the last, and of the state."""
    import torch

    last = gates[:, :, -1:]
    return (last - gates).masked_fill(last > gates, -torch.inf).exp(), last.exp()


def _walk(
    workload: Workload,
    inputs: Tensors,
    dtype: Any,
    decays: Decay,
    *,
    read: Change = unchanged,
    pushed: Change = unchanged,
    kept: Change = unchanged,
) -> Any:
    """Run the recurrence in `dtype`; return `h` and `v_new` in fp32, and the states at the end."""
    import torch

    u = inputs["u"]
    batch, tokens, heads, value_dim = u.shape
    size = workload.init["chunk_size"]
    m = kept(inputs["initial_state"][inputs["initial_state_indices"].long()].to(dtype))
    h = u.new_empty((batch, _chunks(workload), *m.shape[1:]), dtype=torch.float32)
    v_new = u.new_empty((batch, tokens, heads, value_dim), dtype=torch.float32)
    for chunk in range(h.shape[1]):
        some = slice(chunk * size, min((chunk + 1) * size, tokens))
        length = some.stop - some.start
        k, w, values, gates = (
            chunked(inputs[n][:, some], length, heads)[:, 0].to(dtype) for n in ("k", "w", "u", "g")
        )
        h[:, chunk] = m
        values = values - w @ read(m)
        v_new[:, some] = rejoined(values[:, None], length)
        of_rows, of_state = decays(gates[..., None])
        m = kept(m * of_state + k.transpose(-1, -2) @ pushed(values * of_rows))
    return h, v_new, m


def _narrow(workload: Workload, inputs: Tensors, decays: Decay, **changes: Change) -> Tensors:
    """Run the recurrence in fp32 with the roundings of the definition."""
    import torch

    changes = {"read": as_bf16, "pushed": as_bf16, **changes}
    h, v_new, m = _walk(workload, inputs, torch.float32, decays, **changes)
    pool = inputs["initial_state"].clone()
    pool[inputs["initial_state_indices"].long()] = m
    return {"h": h.bfloat16(), "v_new": v_new.bfloat16(), "final_state": pool}


def _live_rows(workload: Workload, g: Any) -> int:
    """Count rows whose g is not below the last of their chunk, over all heads."""
    import torch

    size, tokens = workload.init["chunk_size"], g.shape[1]
    starts = torch.arange(tokens, device=g.device) // size * size
    last = g[:, (starts + size - 1).clamp(max=tokens - 1)]
    return int((g >= last).sum())
