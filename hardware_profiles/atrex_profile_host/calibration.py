"""Measure this machine once, and turn what was found into a profile.

The result is an envelope: the most that was seen of any mix, size and number of threads. A kernel
that runs cold on the same machine stays below it. It is no data sheet: such a roof is labelled
`measured`, and scores under it are not aggregated with others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from typing import Any, Final

from atrex_core import (
    ArithmeticPath,
    Ceiling,
    Confidence,
    Device,
    DeviceMatch,
    Figure,
    HardwareProfile,
    HarnessError,
)
from atrex_profile_host import loads, record, stopwatch
from atrex_profile_host.machine import (
    available_memory_bytes,
    describe,
    is_virtual,
    last_level_cache_bytes,
    usable_cpus,
)
from atrex_profile_host.record import Calibration

_SETUP_S: Final = 0.6
_TOTAL_S: Final = 1.8
_ARRAY_OVER_CACHE: Final = 1.25
_ITEM_BYTES: Final = 4
_APART_LIMIT: Final = 2.0
"""Many CPUs share a link wherever they are placed; then what they reach together counts."""

_ONE_UNIT: Final = (
    "A CPU multiplies matrices with its vector unit: the fp32 vector peak is never below the "
    "fp32 product's, though elementwise code seldom comes near it."
)
_WIDER_TYPES: Final = (
    "16-bit and 8-bit operands may be computed in a wider type after an exact conversion, so "
    "each such peak is the higher of its own and the wider type's."
)
_HALF_RATE: Final = "fp64 is at least half of fp32: the same registers hold half as many elements."

Torch = Any


def calibrate(device: Device) -> HardwareProfile:
    """Return the envelope of this machine, measured unless the cache holds it.

    Raises:
        HarnessError: not even a copy or a product could be timed here.
    """
    import torch

    folder = record.cache_folder(os.environ)
    machine = describe(str(torch.__version__))
    known = record.load(folder, machine)
    if known is None or not known.is_final:
        known = measure(device, torch).envelope(known)
        record.save(folder, machine, known)
    return to_profile(known, device)


def measure(device: Device, torch: Torch) -> Calibration:
    """Measure now, for about two seconds, on every CPU this process may use.

    Raises:
        HarnessError: not even a copy or a product could be timed here.
    """
    start_s = perf_counter()
    cpus = usable_cpus()
    cache_bytes = max(device.last_level_cache_bytes or 0, last_level_cache_bytes(cpus))
    arena = loads.Arena(
        torch=torch,
        items=_items_per_thread(cache_bytes, len(cpus.order)),
        touch_until_s=start_s + _SETUP_S,
    )
    threads_before = torch.get_num_threads()
    try:
        outcome = stopwatch.run(
            loads.all_loads(torch, arena, threads=len(cpus.order), cores=cpus.cores),
            cpus.order,
            stop_s=start_s + _TOTAL_S,
            # One torch thread for each of ours; the setting is the thread's own, mostly.
            start_thread=lambda: torch.set_num_threads(1),
        )
    except RuntimeError as error:
        raise HarnessError(
            f"this machine could not be calibrated: {error.__cause__ or error}",
            hint="name a published profile with --profile, or free memory and try again",
        ) from error
    finally:
        torch.set_num_threads(threads_before)
    rates = {figure: max(found) for figure, found in outcome.rounds.items()}
    if "fp32" not in rates:
        raise HarnessError("this machine could not be calibrated: torch timed no product")
    return Calibration(
        rates=rates,
        typical={figure: median(found) for figure, found in outcome.rounds.items()},
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        threads=len(cpus.order),
        cores=cpus.cores,
        virtual=is_virtual(),
        array_bytes=arena.nbytes,
        cache_bytes=cache_bytes,
        cpu_share=outcome.cpu_share,
    )


def to_profile(calibration: Calibration, device: Device) -> HardwareProfile:
    """Turn measured rates into peaks, one for each path a CPU has some exact way to compute."""
    rates = calibration.rates
    fp32 = rates["fp32"]
    bf16 = max(fp32, rates.get("bf16", 0.0))
    fp16 = max(fp32, rates.get("fp16", 0.0))
    fp64 = max(fp32 / 2, rates.get("fp64", 0.0))
    peaks = {
        ArithmeticPath.FP32_VECTOR: (max(fp32, rates.get("fp32_fma", 0.0)), "fp32"),
        ArithmeticPath.TF32_MATRIX: (fp32, "fp32"),
        ArithmeticPath.BF16_MATRIX: (bf16, "bf16 and fp32"),
        ArithmeticPath.FP16_MATRIX: (fp16, "fp16 and fp32"),
        ArithmeticPath.FP8_MATRIX: (max(bf16, fp16), "bf16, fp16 and fp32"),
        ArithmeticPath.FP6_MATRIX: (max(bf16, fp16), "bf16, fp16 and fp32"),
        ArithmeticPath.FP4_MATRIX: (max(bf16, fp16), "bf16, fp16 and fp32"),
        ArithmeticPath.INT8_MATRIX: (max(bf16, rates.get("int8", 0.0)), "int8, bf16 and fp32"),
        ArithmeticPath.FP64_VECTOR: (fp64, "fp64, and half of fp32"),
        ArithmeticPath.FP64_MATRIX: (fp64, "fp64, and half of fp32"),
    }
    return HardwareProfile(
        name="host",
        match=DeviceMatch(vendor=device.vendor, names=(device.name,)),
        peak_flops={
            path: _figure(calibration, rate, f"highest of matrix products in {what}")
            for path, (rate, what) in peaks.items()
        },
        bandwidth_bytes_per_s=_bandwidth(calibration),
        last_level_cache_bytes=Figure(
            value=calibration.cache_bytes, source="as the kernel describes it under /sys"
        ),
        ceiling=Ceiling.MEASURED,
        notes=_notes(calibration),
    )


def _items_per_thread(cache_bytes: int, threads: int) -> int:
    total = 3 * _ARRAY_OVER_CACHE * cache_bytes
    if available := available_memory_bytes():
        total = min(total, available / 4)
    return max(2**16, int(total / 3 / threads / _ITEM_BYTES))


def _bandwidth(calibration: Calibration) -> Figure:
    """Return the highest rate of any stream, for bytes read plus bytes written."""
    together = _highest(calibration, "")
    alone = _highest(calibration, loads.ALONE)
    over = f"{', '.join(loads.STREAMS)} over {calibration.array_bytes} bytes"
    apart = alone * calibration.cores
    # A hypervisor moves CPUs between dies with links of their own, in seconds, and the same
    # loop then runs at 85 or 140 GB/s. What one CPU reaches alone does not depend on that.
    several = calibration.virtual and calibration.cores > 1
    if several and together < apart <= _APART_LIMIT * max(together, alone):
        return _figure(
            calibration,
            apart,
            f"highest of {over} on one CPU alone, times {calibration.cores}, since a hypervisor "
            "may place the CPUs so that they do not share a link",
        )
    return _figure(calibration, max(together, alone), f"highest of {over}")


def _highest(calibration: Calibration, suffix: str) -> float:
    return max(calibration.rates.get(stream + suffix, 0.0) for stream in loads.STREAMS)


def _figure(calibration: Calibration, rate: float, method: str) -> Figure:
    return Figure(
        value=rate,
        source=(
            f"measured on this machine, {calibration.measured_at}, {calibration.threads} threads, "
            f"best {stopwatch.WINDOW_S * 1e3:.0f} ms of {calibration.runs} run(s): {method}"
        ),
        confidence=Confidence.HIGH if calibration.is_final else Confidence.LOW,
    )


def _notes(calibration: Calibration) -> tuple[str, ...]:
    spread = _spread(calibration.rates, calibration.typical)
    notes = [
        _ONE_UNIT,
        _WIDER_TYPES,
        _HALF_RATE,
        f"Spread, best (median of rounds): {spread}.",
    ]
    if not calibration.is_final:
        notes.append(
            f"Others used this machine meanwhile: the threads had a CPU for "
            f"{calibration.cpu_share:.0%} of the time. It is measured again at the next use."
        )
    if calibration.array_bytes < 2 * calibration.cache_bytes:
        notes.append("The arrays are smaller than twice the cache: bandwidth may be the cache's.")
    return tuple(notes)


def _spread(rates: Mapping[str, float], typical: Mapping[str, float]) -> str:
    return ", ".join(
        f"{figure} {rate / 1e9:.4g} ({typical.get(figure, rate) / 1e9:.4g}) G/s"
        for figure, rate in sorted(rates.items())
    )
