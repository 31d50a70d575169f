"""What the worker sees of launches, and how it suppresses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import triton

from atrex_core import Device, Launch, Stage


def test_launches_are_recorded_in_order_with_the_binary_they_ran(load: Any, add_one: str) -> None:
    module = load(add_one + add_one.replace("add_one", "add_again"))
    x, y = torch.zeros(10), torch.zeros(10)

    module.add_one[(1,)](x, y, 10, BLOCK=16)
    module.add_again[(1,)](y, x, 10, BLOCK=16)

    first, second = module.runtime.launches()
    assert (first.kernel, second.kernel) == ("add_one", "add_again")
    assert first.own
    assert first.binary is not None
    assert len(first.binary) == 64
    assert first.binary != second.binary
    assert x.tolist() == [2.0] * 10


def test_launches_can_be_forgotten(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)
    module.add_one[(1,)](x, x, 10, BLOCK=16)

    module.runtime.clear_launches()

    assert module.runtime.launches() == ()


def test_a_kernel_from_another_file_is_not_the_candidates_own(
    load: Any, tmp_path: Path, import_file: Any, header: str, add_one: str
) -> None:
    module = load("")
    helper = tmp_path / "library.py"
    helper.write_text(header + add_one)
    x = torch.zeros(10)

    import_file(helper).add_one[(1,)](x, x, 10, BLOCK=16)

    assert [(launch.kernel, launch.own) for launch in module.runtime.launches()] == [
        ("add_one", False)
    ]


def test_knocked_out_launches_change_nothing_and_are_not_recorded(load: Any, add_one: str) -> None:
    module = load(add_one)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    with module.runtime.knocked_out():
        module.add_one[(1,)](x, y, 10, BLOCK=16)

    assert y.tolist() == [-7.0] * 10
    assert module.runtime.launches() == ()


def test_a_kernel_compiled_before_is_knocked_out_too_however_it_is_launched(
    load: Any, add_one: str
) -> None:
    module = load(add_one)
    x, y = torch.zeros(10), torch.full((10,), -7.0)
    compiled = module.add_one[(1,)](x, torch.zeros(10), 10, BLOCK=16)

    with module.runtime.knocked_out():
        module.add_one[(1,)](x, y, 10, BLOCK=16)
        compiled[(1, 1, 1)](x, y, 10, 16)

    assert y.tolist() == [-7.0] * 10
    compiled[(1, 1, 1)](x, y, 10, 16)
    assert y.tolist() == [1.0] * 10


def test_an_autotuned_kernel_is_knocked_out(load: Any, add_one: str) -> None:
    tuned = add_one.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': b}) for b in (16, 32)], key=['n'])\n@triton.jit",
    )
    module = load(tuned)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    with module.runtime.knocked_out():
        module.add_one[(1,)](x, y, 10)

    assert y.tolist() == [-7.0] * 10


def test_a_real_devices_driver_is_kept_and_watched(load: Any, add_one: str) -> None:
    load("")
    installed = triton.runtime.driver.active
    real = Device(id="cuda", accelerator="cuda", vendor="any", name="sm_75", arch="sm_75")
    module = load(add_one, device=real)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    module.add_one[(1,)](x, x, 10, BLOCK=16)
    with module.runtime.knocked_out():
        module.add_one[(1,)](x, y, 10, BLOCK=16)

    assert triton.runtime.driver.active is installed
    assert [(launch.kernel, launch.own) for launch in module.runtime.launches()] == [
        ("add_one", True)
    ]
    assert y.tolist() == [-7.0] * 10
    assert [report.target for report in module.runtime.reports()] == ["sm_75"]


def test_compiling_happens_in_the_compile_stage_and_once(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)

    module.add_one[(1,)](x, x, 10, BLOCK=16)
    module.add_one[(1,)](x, x, 10, BLOCK=16)

    assert module.stages == [Stage.COMPILE]


def test_the_compilers_cache_lies_in_scratch(load: Any, tmp_path: Path, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)

    module.add_one[(1,)](x, x, 10, BLOCK=16)

    assert len(list((tmp_path / "triton").glob("*/add_one.cubin"))) == 1


def test_launches_are_values(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)
    module.add_one[(1,)](x, x, 10, BLOCK=16)
    module.add_one[(1,)](x, x, 10, BLOCK=16)

    first, second = module.runtime.launches()

    assert first == second
    assert isinstance(first, Launch)
