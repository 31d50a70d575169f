"""What the production pack adds to a folder problem: what was published about it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from atrex_core import (
    ArithmeticPath,
    Basis,
    Cost,
    HarnessError,
    Problem,
    Protocol,
    Tensors,
    Weight,
    Workload,
)
from atrex_core.packs import FolderProblem, read_json
from atrex_problems_production._paper import PaperProblem

_PATHS = {
    "bf16": ArithmeticPath.BF16_MATRIX,
    "fp16": ArithmeticPath.FP16_MATRIX,
    "fp32": ArithmeticPath.FP32_VECTOR,
    "fp8_e4m3": ArithmeticPath.FP8_MATRIX,
}
"""Where the published accounting files the work of each of its dtypes."""

_PUBLISHED = Path(__file__).parent / "published.json"
"""What was published about the whole pack."""


class ProductionProblem(FolderProblem):
    """One operator of the pack: judged strictly by itself, as published by `under`."""

    fact_keys = ("profiles", "published", "upstream")

    def under(self, protocol: Protocol) -> Problem | None:
        """Return this problem, or the published rules for the same operator."""
        return self if protocol is Protocol.STRICT else PaperProblem(self)

    def without_open_parts(
        self, workload: Workload, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Return `outputs` with parts that are unspecified, such as spare room, replaced.

        For outputs whose published form had no such parts. Freedoms that were not published,
        such as an order, are `canonical`'s.
        """
        return outputs

    @abstractmethod
    def published_flops(self, workload: Workload) -> float:
        """Count work as the published roofline does."""

    def published_cost(self, workload: Workload) -> Cost:
        """Return the published work and bytes: one bucket, all inputs read, all outputs written.

        Kept so that results can be set beside published ones; `cost` is what bounds a kernel.
        """
        return self.count(workload, self.published_bucket(workload))

    def published_bucket(self, workload: Workload) -> dict[ArithmeticPath, float]:
        """File the published work under the one dtype it was filed under; integers under none."""
        published = self.published.get(workload.id)
        if published is None:
            raise HarnessError(f'workload "{self.name}/{workload.id}" was not published')
        return {_PATHS[name]: self.published_flops(workload) for name in published["flops"]}

    @property
    def prevalence(self) -> float:
        """Share of the observed deployments in which the operator occurs."""
        profiles: int = self.facts["profiles"]
        return profiles / float(read_json(_PUBLISHED)["total_profiles"])

    def workload_weights(self) -> Mapping[str, Weight]:
        """Divide the operator's time by traces, where those say how often a shape is called.

        A published total time counts as it is; where only a number of calls is published, they
        count with the published time of a production kernel; the rest get the mean of the others.
        """
        known: dict[str, tuple[float, Basis]] = {}
        for id_, entry in self.published.items():
            calls, total_us = entry.get("trace_calls"), entry.get("trace_total_us")
            if total_us is not None:
                known[id_] = float(total_us), Basis.OBSERVED
            elif calls is not None:
                known[id_] = calls * entry["production"][0]["us"], Basis.DERIVED
        if not known:
            return super().workload_weights()
        mean_us = fmean(us for us, _ in known.values())
        found = {id_: known.get(id_, (mean_us, Basis.UNIFORM)) for id_ in self.published}
        whole_us = sum(us for us, _ in found.values())
        return {id_: Weight(share=us / whole_us, basis=basis) for id_, (us, basis) in found.items()}

    @property
    def published(self) -> Any:
        """What was published about each workload, by id."""
        return self.facts["published"]
