"""Who gets which job next: candidates are kept, nobody waits, nothing is handed out twice."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from atrex_core import Candidate, Workload
from atrex_core.scheduling import Job, Pool


def _candidate(name: str) -> Candidate:
    return Candidate(name=name, problem="p", backend="b", path=Path(name), source=name.encode())


def _pool(**counts: int) -> Pool:
    """Return a pool: `_pool(a=3)` has the workloads a0, a1 and a2 of candidate a."""
    return Pool(
        (_candidate(name), [Workload(id=f"{name}{n}", axes={}) for n in range(count)])
        for name, count in counts.items()
    )


def _id(job: Job | None) -> str:
    return job.workload.id if job else "-"


def _takes(pool: Pool, takers: str) -> str:
    return " ".join(_id(pool.take(taker)) for taker in takers)


def test_a_lone_taker_goes_through_in_order() -> None:
    assert _takes(_pool(a=2, b=0, c=3), "xxxxxxx") == "a0 a1 c0 c1 c2 - -"


def test_a_taker_goes_on_with_its_candidate_while_that_has_something_left() -> None:
    assert _takes(_pool(a=3, b=3), "xyyxyx") == "a0 b0 b1 a1 b2 a2"


def test_who_is_through_begins_what_nobody_is_at_work_on() -> None:
    assert _takes(_pool(a=1, b=9, c=2), "xyxx") == "a0 b0 c0 c1"


def test_when_all_is_begun_it_helps_from_the_back_where_most_is_left() -> None:
    pool = _pool(a=1, b=3, c=5)

    assert _takes(pool, "xyz") == "a0 b0 c0"
    assert _takes(pool, "xyzx") == "c4 b1 c1 c3"
    assert _takes(pool, "yyzx") == "b2 c2 - -"


def test_who_leaves_makes_room_for_another_at_the_front() -> None:
    pool = _pool(a=4, b=1)

    assert _takes(pool, "xy") == "a0 b0"
    pool.leave("x")
    assert _takes(pool, "yy") == "a1 a2"


def test_a_job_tells_what_its_taker_will_get_next() -> None:
    pool = _pool(a=4)

    first, helper = pool.take("x"), pool.take("y")

    assert first is not None
    assert helper is not None
    assert (first.workload.id, first.ahead) == ("a0", ("a1", "a2", "a3"))
    assert (helper.workload.id, helper.ahead) == ("a3", ("a2", "a1"))


def test_a_closed_pool_has_nothing() -> None:
    pool = _pool(a=2)
    assert len(pool) == 2

    pool.close()

    assert len(pool) == 0
    assert pool.take("x") is None


@pytest.mark.parametrize("takers", [2, 5])
def test_threads_get_every_job_once(takers: int) -> None:
    pool, taken = _pool(a=700, b=3, c=0, d=1500), list[str]()

    def take(taker: int) -> None:
        while (job := pool.take(taker)) is not None:
            taken.append(job.workload.id)

    threads = [threading.Thread(target=take, args=(taker,)) for taker in range(takers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == 2203
    assert set(Counter(taken).values()) == {1}
