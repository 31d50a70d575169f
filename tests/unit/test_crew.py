"""Posts at work side by side: one that is slow, lost or broken does not hold up the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from atrex_core import Candidate, Device, Gate, GateResult, Outcome, Unavailable, Workload
from atrex_core.referee_process import GateObserver, RefereeLost
from atrex_core.scheduling import Crew, Done, Job, LeftOut, Pool, Post, Spoke

_PASSED = GateResult(outcome=Outcome.PASSED)


@define(eq=False)
class _Acted(Post):
    """A post without processes, that does as it is told."""

    seconds: float = 0.0
    starts: Sequence[BaseException | float | None] = ()
    """Of each start: what it raises, or how long it takes; the last is repeated."""
    breaks: BaseException | None = None
    """What a job raises."""
    done: list[str] = field(factory=list)
    _begun: int = 0
    _is_up: bool = False
    _called: threading.Event = field(factory=threading.Event)

    @property
    def is_ready(self) -> bool:
        return self._is_up

    def make_ready(self) -> None:
        how = self.starts[min(self._begun, len(self.starts) - 1)] if self.starts else None
        self._begun += 1
        if isinstance(how, BaseException):
            raise how
        if how is not None and self._called.wait(how):
            raise RefereeLost("called back")
        self._is_up = True

    def work(self, job: Job, observer: GateObserver) -> Done:
        if self.breaks:
            raise self.breaks
        id_ = f"{self.device.id}-{job.workload.id}"
        observer(id_, Gate.COMPILE, _PASSED)
        lost = RefereeLost("called back") if self._called.wait(self.seconds) else RefereeLost("x")
        self.done.append(job.workload.id)
        return Done(device=self.device, job=job, evaluation_id=id_, found=lost)

    def end(self) -> None:
        self._called.set()

    def drop(self) -> None:
        self._is_up = False


def _post(name: str, **how: Any) -> _Acted:
    device = Device(id=name, accelerator="acme", vendor="acme", name="Anvil", arch="a")
    return _Acted(device, None, {}, **how)


def _pool(count: int) -> Pool:
    candidate = Candidate(name="c", problem="p", backend="b", path=Path("c"), source=b"")
    return Pool([(candidate, [Workload(id=f"w{n}", axes={}) for n in range(count)])])


def _jobs(events: Iterable[Any]) -> list[str]:
    return [event.job.workload.id for event in events if isinstance(event, Done)]


def _all_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_all_is_done_once_and_each_is_told_after_its_gates() -> None:
    posts, pool = [_post("a", seconds=0.002), _post("b", seconds=0.001)], _pool(20)
    crew = Crew(posts, pool)

    events = list(crew.events())
    assert crew.stop() == []

    assert sorted(_jobs(events)) == sorted(f"w{n}" for n in range(20))
    assert sorted(posts[0].done + posts[1].done) == sorted(_jobs(events))
    assert min(len(posts[0].done), len(posts[1].done)) > 2
    told = [(type(e), e.evaluation_id) for e in events if isinstance(e, Spoke | Done)]
    assert all(told.index((Spoke, id_)) < told.index((Done, id_)) for _, id_ in told)
    assert _all_threads().isdisjoint({"a", "b"})


def test_who_is_still_starting_is_not_waited_for() -> None:
    late = _post("late", starts=(60.0,))
    crew, began = Crew([_post("a"), late], _pool(3)), time.monotonic()

    jobs = _jobs(crew.events())
    crew.stop()

    assert jobs == ["w0", "w1", "w2"]
    assert time.monotonic() - began < 10
    assert late.done == []


def test_who_starts_late_takes_part_from_then_on() -> None:
    late = _post("late", starts=(0.1,))
    crew = Crew([_post("a", seconds=0.03), late], _pool(20))

    assert len(_jobs(crew.events())) == 20
    crew.stop()

    assert 0 < len(late.done) < 20


def test_who_cannot_start_is_left_out_and_another_stands_in() -> None:
    cold, idle = _post("cold", starts=(Unavailable("cold"),)), _post("idle")
    crew = Crew([cold, idle], _pool(1))

    out, *rest = crew.events()
    crew.stop()

    assert isinstance(out, LeftOut)
    assert (out.device.id, str(out.refusal)) == ("cold", "device 'cold' takes no part: cold")
    assert out.refusal.exit_code == 4
    assert _jobs(rest) == ["w0"]
    assert idle.done == ["w0"]


def test_when_nobody_can_start_it_ends() -> None:
    cold = [_post(name, starts=(Unavailable("cold"),)) for name in "abc"]
    crew = Crew(cold, _pool(2))

    events = list(crew.events())
    crew.stop()

    assert [type(event) for event in events] == [LeftOut] * 3


def test_a_fault_of_ours_ends_everything() -> None:
    broken, other = _post("broken", breaks=ZeroDivisionError("us")), _post("other", seconds=0.01)
    crew = Crew([broken, other], _pool(1000))

    with pytest.raises(ZeroDivisionError, match="us"):
        list(crew.events())
    crew.stop()

    assert len(other.done) < 900
    assert _all_threads().isdisjoint({"broken", "other"})


def test_what_was_read_last_and_what_was_not_read_is_handed_over_at_the_end() -> None:
    posts = [_post("a"), _post("b")]
    crew = Crew(posts, _pool(100))
    events = crew.events()

    read = []
    while len(read) < 4:
        read += [event for event in [next(events)] if isinstance(event, Done)]
    deadline = time.monotonic() + 10
    while len(posts[0].done) + len(posts[1].done) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    unread = crew.stop()

    done = posts[0].done + posts[1].done
    # Nobody is more than two jobs ahead of a reader who has stopped reading.
    assert len(done) <= 3 + 2 * 2
    assert set(_jobs(read)) | set(_jobs(unread)) == set(done)
    assert list(events) == []
    assert crew.stop() == []
