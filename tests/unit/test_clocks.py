"""Which of two clocks counts, and what is said about the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import evolve

from atrex_core import DType, TensorSpec
from atrex_core.interfaces import DeviceSamples
from atrex_core.referee.clocks import (
    BY_FRESH,
    BY_SLOPE,
    DISPUTED,
    METHOD,
    METHOD_CALL,
    UNCHECKED,
    UNSTABLE,
    Settled,
    settle,
)
from atrex_core.referee.held_clock import WAITS, HeldClock, HeldTimes

SLOPES_US = (30.0, 32.0, 90.0)


def settled(
    claimed_us: float | None,
    *,
    held_us: float | None = None,
    fresh_us: float | None = None,
    synchronous: bool = False,
    slopes_us: tuple[float, ...] = SLOPES_US,
) -> Settled:
    """Settle a steady claim, or none, with what the referee saw, or did not see."""
    if claimed_us is None:
        samples = DeviceSamples(method="records", reason="no records")
    else:
        samples = DeviceSamples(samples_us=(claimed_us,) * 8, method="records")
    reason = "no gate" if held_us is None and fresh_us is None else None
    held = HeldTimes(call_us=held_us, fresh_us=fresh_us, reason=reason)
    return settle(samples, held, slopes_us, is_synchronous=synchronous)


def test_clocks_that_agree_leave_the_claim() -> None:
    found = settled(10.0, held_us=10.4, fresh_us=11.0)

    assert (found.timing.device_us, found.timing.held_us) == (10.0, 10.4)
    assert (found.timing.method, found.timing.reason) == ("records", None)
    assert (found.flags, found.caught_by) == ((), None)
    assert found.timing.call_us == 32.0
    assert found.timing.call_samples_us == SLOPES_US


def test_no_slopes_no_call_time() -> None:
    assert settled(10.0, held_us=10.0, slopes_us=()).timing.call_us is None


def test_a_claim_above_the_slope_is_no_lie() -> None:
    assert settled(50.0, held_us=10.0, fresh_us=10.0).flags == ()


@pytest.mark.parametrize(
    ("claimed_us", "caught_by"),
    [(87.6, None), (87.4, BY_SLOPE), (0.01, BY_SLOPE)],
    ids=["a tenth and 2.5 us below", "below that", "next to nothing"],
)
def test_boundary_of_the_slope(claimed_us: float, caught_by: str | None) -> None:
    found = settled(claimed_us, held_us=100.0, fresh_us=100.0)

    assert found.caught_by == caught_by
    assert found.flags == (() if caught_by is None else (DISPUTED,))
    assert found.timing.device_us == (claimed_us if caught_by is None else 100.0)


def test_a_queue_may_take_longer_by_what_its_calls_leave_in_the_cache() -> None:
    samples = DeviceSamples(samples_us=(82.0,) * 8, method="records")
    clean = HeldTimes(call_us=100.0, fresh_us=100.0)
    dirty = evolve(clean, write_back_us=6.0)

    assert settle(samples, clean, SLOPES_US, is_synchronous=False).caught_by == BY_SLOPE
    assert settle(samples, dirty, SLOPES_US, is_synchronous=False).caught_by is None


@pytest.mark.parametrize(
    ("mib", "cache_mib", "least_us"),
    [(8, 50, 8 * 2**20 / 4e6), (80, 50, 50 * 2**20 / 4e6), (80, None, 0.0)],
    ids=["outputs fit", "the cache is full", "no cache is known"],
)
def test_writing_back_takes_what_bandwidth_allows(
    mib: int, cache_mib: int | None, least_us: float
) -> None:
    out = TensorSpec(name="out", dtype=DType.UINT8, shape=(mib * 2**20,))
    cache_bytes = cache_mib and cache_mib * 2**20
    bench = SimpleNamespace(
        profile=SimpleNamespace(bandwidth_bytes_per_s=SimpleNamespace(value=4e12)),
        context=SimpleNamespace(last_level_cache_bytes=cache_bytes),
        accelerator=SimpleNamespace(is_synchronous=False),
    )
    nothing = cast(Any, None)
    problem = cast(Any, SimpleNamespace(outputs=lambda _: [out]))
    clock = HeldClock(cast(Any, bench), nothing, nothing, problem, nothing, 1.0, nothing, nothing)

    assert clock._write_back_us() == pytest.approx(least_us)


@pytest.mark.parametrize(
    ("claimed_us", "caught_by"), [(60.1, None), (59.9, BY_FRESH)], ids=["within", "below"]
)
def test_boundary_on_fresh_inputs(claimed_us: float, caught_by: str | None) -> None:
    found = settled(claimed_us, held_us=1.0, fresh_us=100.0)

    assert found.caught_by == caught_by
    assert found.timing.device_us == (claimed_us if caught_by is None else 100.0)


@pytest.mark.parametrize(
    ("held_us", "fresh_us", "limit_us"),
    [(1000.0, None, 0.6 * 1000 - 10), (None, 1000.0, 0.25 * 1000 - 100)],
    ids=["slope", "fresh"],
)
def test_boundaries_where_the_host_is_the_device(
    held_us: float | None, fresh_us: float | None, limit_us: float
) -> None:
    seen = {"held_us": held_us, "fresh_us": fresh_us, "slopes_us": (1000.0,)}
    above = settled(limit_us + 0.1, synchronous=True, **seen)  # type: ignore[arg-type]
    below = settled(limit_us - 0.1, synchronous=True, **seen)  # type: ignore[arg-type]

    assert above.flags == ()
    assert below.flags == (DISPUTED,)
    assert below.timing.device_us == 1000.0


def test_on_a_host_other_load_during_the_rounds_is_no_lie_of_the_candidate() -> None:
    loaded = settled(400.0, held_us=800.0, slopes_us=(450.0,), synchronous=True)
    slowed = settled(80.0, held_us=800.0, slopes_us=(450.0,), synchronous=True)
    device = settled(400.0, held_us=800.0, slopes_us=(450.0,))

    assert loaded.flags == ()
    assert (slowed.caught_by, slowed.timing.device_us) == (BY_SLOPE, 450.0)
    assert (device.caught_by, device.timing.device_us) == (BY_SLOPE, 800.0)


def test_inputs_never_seen_count_where_the_slope_is_far_below_them_too() -> None:
    memory = settled(1.0, held_us=20.0, fresh_us=300.0)
    clock = settled(1.0, held_us=280.0, fresh_us=300.0)

    assert (memory.caught_by, memory.timing.device_us) == (BY_FRESH, 300.0)
    assert (clock.caught_by, clock.timing.device_us) == (BY_SLOPE, 280.0)


def test_a_dispute_says_both_figures_and_which_clock() -> None:
    by_slope = settled(2.0, held_us=20.0)
    by_fresh = settled(2.0, held_us=2.0, fresh_us=30.0)

    assert by_slope.timing.reason == (
        "the process claimed 2.00 us a call, but the referee's clock says 20.00 us: "
        "the latter counts"
    )
    assert by_fresh.timing.reason == (
        "the process claimed 2.00 us a call, but on inputs that it had never seen it took "
        "30.00 us: the latter counts"
    )
    assert by_slope.timing.method == by_fresh.timing.method == METHOD
    assert by_slope.timing.samples_us == (2.0,) * 8  # what was claimed stays to be seen


def test_without_a_claim_the_referees_figure_counts_and_the_reason_stays() -> None:
    found = settled(None, held_us=20.0, fresh_us=21.0)

    assert (found.timing.device_us, found.timing.method) == (20.0, METHOD)
    assert found.timing.reason == "no records"
    assert found.flags == ()


def test_without_a_claim_memory_does_not_pay_either() -> None:
    assert settled(None, held_us=2.0, fresh_us=300.0).timing.device_us == 300.0


def test_without_either_both_reasons_are_kept() -> None:
    found = settled(None)

    assert found.timing.device_us is None
    assert found.timing.reason == "no records; no gate"
    assert found.timing.call_us == 32.0


def test_one_reason_is_not_said_twice() -> None:
    same = DeviceSamples(method="records", reason="busy")

    found = settle(same, HeldTimes(reason="busy"), (), is_synchronous=False)

    assert found.timing.reason == "busy"


def test_a_claim_that_nobody_could_check_says_so() -> None:
    found = settled(10.0)

    assert found.timing.device_us == 10.0
    assert found.flags == (UNCHECKED,)
    assert found.timing.reason == "the referee could not check the clock: no gate"


@pytest.mark.parametrize("held_us", [10.0, None], ids=["checked", "unchecked"])
def test_samples_that_scatter_are_unstable(held_us: float | None) -> None:
    scattered = DeviceSamples(samples_us=(9.0, 9.5, 10.0, 10.5, 11.0, 11.5), method="records")
    reason = "no gate" if held_us is None else None

    found = settle(scattered, HeldTimes(call_us=held_us, reason=reason), (), is_synchronous=False)

    assert found.flags == ((UNSTABLE,) if held_us else (UNCHECKED, UNSTABLE))


def test_few_samples_are_unstable() -> None:
    few = DeviceSamples(samples_us=(10.0,) * 5, method="records")

    assert settle(few, HeldTimes(call_us=10.0), (), is_synchronous=False).flags == (UNSTABLE,)


# -- a forward that waits for the device -----------------------------------------------------------


def waiting(*, call_us: float, fresh_us: float, claimed_us: float = 0.5) -> Settled:
    samples = DeviceSamples(samples_us=(claimed_us,) * 8, method="records")
    held = HeldTimes(reason=WAITS, waits=True, fresh_us=fresh_us)
    return settle(samples, held, (call_us,) * 7, is_synchronous=False)


def test_who_waits_is_measured_by_wall_time_whatever_it_claims() -> None:
    found = waiting(call_us=50.0, fresh_us=52.0)

    assert (found.timing.device_us, found.timing.call_us) == (50.0, 50.0)
    assert (found.timing.method, found.timing.reason) == (METHOD_CALL, WAITS)
    assert found.timing.samples_us == (0.5,) * 8
    assert (found.flags, found.caught_by) == ((UNCHECKED,), None)


@pytest.mark.parametrize(("call_us", "disputed"), [(115.1, False), (114.9, True)])
def test_who_waits_and_remembers_pays_too(call_us: float, disputed: bool) -> None:
    found = waiting(call_us=call_us, fresh_us=200.0)

    assert (DISPUTED in found.flags) is disputed
    assert UNCHECKED in found.flags
    assert found.caught_by == (BY_FRESH if disputed else None)
    assert found.timing.device_us == (200.0 if disputed else call_us)
    assert found.timing.call_us == found.timing.device_us


def test_who_waits_without_a_wall_time_is_believed_and_said_to_be_unchecked() -> None:
    samples = DeviceSamples(samples_us=(5.0,) * 8, method="records")
    held = HeldTimes(reason=WAITS, waits=True)

    found = settle(samples, held, (), is_synchronous=False)

    assert found.timing.device_us == 5.0
    assert found.flags == (UNCHECKED,)
