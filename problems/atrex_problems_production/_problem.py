"""What the production pack adds to a folder problem: what was published about it."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

from atrex_core import ArithmeticPath, Cost, HarnessError, Problem, Protocol, Workload
from atrex_core.packs import FolderProblem, read_json
from atrex_problems_production._paper import PaperProblem

_PATHS = {
    "bf16": ArithmeticPath.BF16_MATRIX,
    "fp16": ArithmeticPath.FP16_MATRIX,
    "fp32": ArithmeticPath.FP32_VECTOR,
    "fp8_e4m3": ArithmeticPath.FP8_MATRIX,
}
"""Where the published accounting files the work of each of its dtypes."""


class ProductionProblem(FolderProblem):
    """One operator of the pack: judged strictly by itself, as published by `under`."""

    def under(self, protocol: Protocol) -> Problem | None:
        """Return this problem, or the published rules for the same operator."""
        return self if protocol is Protocol.STRICT else PaperProblem(self)

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

    @cached_property
    def published(self) -> Any:
        """What was published about each workload, by id."""
        return read_json(self.folder / "private.json")["published"]
