"""What is left to evaluate, and who gets which of it next. No threads here, and no processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from attrs import define, field, frozen

from atrex_core.model import Candidate, Workload


@frozen(kw_only=True)
class Job:
    """One evaluation to make."""

    candidate: Candidate
    workload: Workload
    ahead: tuple[str, ...]
    """Workloads of this candidate that the same taker gets next, if nobody helps it."""


@define(eq=False)
class _Pile:
    """What is left of one candidate."""

    candidate: Candidate
    workloads: deque[Workload]
    takers: list[Hashable] = field(factory=list)
    """Who is at work on it, in the order they came."""


class Pool:
    """Work that any number of takers share, without ever waiting for each other.

    A taker goes on with the candidate it is at work on, for loading one costs time. When that has
    nothing left, it begins one that nobody is at work on, else helps with the one that has most
    left. Who comes first takes workloads from the front, who helps from the back: what each of
    them will need next is known for as long as possible. Safe to use from any thread.
    """

    def __init__(self, items: Iterable[tuple[Candidate, Sequence[Workload]]]) -> None:
        """Fill it; a lone taker gets everything in this order."""
        self._piles = [_Pile(candidate, deque(workloads)) for candidate, workloads in items]
        self._lock = threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many jobs nobody has taken yet."""
        return 0 if self._is_closed else sum(len(pile.workloads) for pile in self._piles)

    def take(self, taker: Hashable) -> Job | None:
        """Return the next job for `taker`, None when nothing is left."""
        with self._lock:
            pile = self._pile_for(taker) if len(self) else None
            if pile is None:
                return None
            is_first = pile.takers[0] == taker
            workload = pile.workloads.popleft() if is_first else pile.workloads.pop()
            rest = pile.workloads if is_first else reversed(pile.workloads)
            return Job(candidate=pile.candidate, workload=workload, ahead=tuple(w.id for w in rest))

    def leave(self, taker: Hashable) -> None:
        """Note that `taker` takes no more: somebody else may begin what it was at work on."""
        with self._lock:
            self._leave(taker)

    def close(self) -> None:
        """Hand out nothing more."""
        self._is_closed = True

    def _pile_for(self, taker: Hashable) -> _Pile | None:
        left = [pile for pile in self._piles if pile.workloads]
        for pile in left:
            if taker in pile.takers:
                return pile
        self._leave(taker)
        free = (pile for pile in left if not pile.takers)
        chosen = next(free, None) or max(left, key=lambda p: len(p.workloads), default=None)
        if chosen is not None:
            chosen.takers.append(taker)
        return chosen

    def _leave(self, taker: Hashable) -> None:
        for pile in self._piles:
            if taker in pile.takers:
                pile.takers.remove(taker)
