"""The published T_sol of all 440 workloads, by the roofline that `--protocol paper` uses."""

from __future__ import annotations

import json
from pathlib import Path

import atrex_problems_production
import pytest
from atrex_problems_production import atrex_problems

from atrex_core import (
    ArithmeticPath,
    Bound,
    DeviceMatch,
    Figure,
    HardwareProfile,
    Origin,
    Problem,
    Protocol,
    roofline,
)

FOLDER = Path(atrex_problems_production.__file__).parent
DEVICES = json.loads((FOLDER / "published.json").read_text())["devices"]
PROBLEMS = {problem.name: problem for problem in atrex_problems() if isinstance(problem, Problem)}
PATHS = {
    "bf16": ArithmeticPath.BF16_MATRIX,
    "fp16": ArithmeticPath.FP16_MATRIX,
    "fp8_e4m3": ArithmeticPath.FP8_MATRIX,
    "fp32": ArithmeticPath.FP32_VECTOR,
}


def published(device: str) -> HardwareProfile:
    """Return a device with the peaks that the published bounds assume."""
    found = DEVICES[device]
    return HardwareProfile(
        name=device,
        match=DeviceMatch(vendor="none", names=(device,)),
        peak_flops={
            path: Figure(value=found["peak_flops"][name], source="the paper")
            for name, path in PATHS.items()
        },
        bandwidth_bytes_per_s=Figure(value=found["hbm_bytes_per_s"], source="the paper"),
    )


@pytest.mark.parametrize("device", DEVICES)
def test_every_published_bound_is_reproduced(device: str) -> None:
    profile, compared = published(device), 0
    for name, strict in PROBLEMS.items():
        problem = strict.under(Protocol.PAPER)
        assert problem is not None
        recorded = json.loads((FOLDER / name / "private.json").read_text())["published"]
        for workload in problem.workloads:
            if workload.origin is not Origin.PUBLISHED or workload.id not in recorded:
                continue
            found = roofline.bound(problem.cost(workload), profile, protocol=Protocol.PAPER)
            assert isinstance(found, Bound)
            expected_us = recorded[workload.id]["sol_us"][device]
            assert found.t_sol_us == pytest.approx(expected_us, rel=1e-12), (name, workload.id)
            compared += 1

    assert compared == 440
