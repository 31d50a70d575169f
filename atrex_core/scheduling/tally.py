"""What one run has brought so far, and what that has cost."""

from __future__ import annotations

import time

from attrs import define, field

from atrex_core.model import Evaluation, RunCost
from atrex_core.scheduling.post import Post


@define(eq=False)
class Tally:
    """Kept by the one who reads results."""

    posts: tuple[Post, ...] = ()
    yielded: set[str] = field(factory=set, init=False)
    """Ids."""
    late: list[Evaluation] = field(factory=list, init=False)
    """Judged, and never yielded."""
    _stage_seconds: dict[str, float] = field(factory=dict, init=False)
    _began: float = field(factory=time.monotonic, init=False)
    _ended: float | None = field(default=None, init=False)

    def count(self, evaluation: Evaluation) -> None:
        """Add what an evaluation cost."""
        for stage, seconds in evaluation.stage_seconds.items():
            self._stage_seconds[stage] = self._stage_seconds.get(stage, 0.0) + seconds

    def end(self) -> None:
        """Stop the clock. Safe to call twice."""
        self._ended = self._ended or time.monotonic()

    @property
    def cost(self) -> RunCost:
        """What the run has cost until it ended, or until now."""
        return RunCost(
            wall_s=(self._ended or time.monotonic()) - self._began if self.posts else 0.0,
            devices=tuple(post.cost for post in self.posts),
            stage_seconds=dict(self._stage_seconds),
        )
