"""A virtual device stops what the hardware would stop, and answers for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atrex_core import Unavailable

_RMS_NORM = """
@triton.jit
def rms_norm(x, w, y, width, eps, BLOCK: tl.constexpr):
    row, o = tl.program_id(0), tl.arange(0, BLOCK)
    m = o < width
    v = tl.load(x + row * width + o, mask=m, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / width + eps)
    tl.store(y + row * width + o, v * scale * tl.load(w + o, mask=m, other=0.0), mask=m)
"""


def _bf16(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


TARGETS = pytest.mark.parametrize("target", ["sm_90", "gfx942"])


@pytest.mark.parametrize(
    ("access", "body"),
    [
        ("load", "tl.store(y + tl.arange(0, BLOCK) % n, tl.load(x + tl.arange(0, BLOCK)))"),
        ("store", "tl.store(x + tl.arange(0, BLOCK), 1.0)"),
        ("atomic", "tl.atomic_add(x + tl.arange(0, BLOCK), 1.0)"),
    ],
)
def test_leaving_an_arguments_memory_is_an_error_with_its_place(
    load: Any, access: str, body: str
) -> None:
    source = f"\n@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n    {body}\n"
    module = load(source)
    x = torch.zeros(100)

    with pytest.raises(Exception) as caught:
        module.kernel[(1,)](x, x, 100, BLOCK=128)

    assert str(caught.value) == (
        f'kernel "kernel" at candidate.py:7, program (0, 0, 0): out-of-bounds {access}: '
        "28 of 128 active lanes are outside the memory of every argument"
    )


def test_a_failing_body_names_its_line_and_program(load: Any) -> None:
    source = """
@triton.jit
def check(v):
    tl.device_assert(v < 2, "too far")

@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    check(tl.program_id(0))
    tl.store(x + tl.arange(0, BLOCK), 1.0)
"""
    module = load(source)

    with pytest.raises(
        Exception, match=r"candidate\.py:7, program \(2, 0, 0\): AssertionError"
    ) as e:
        module.kernel[(4,)](torch.zeros(16), BLOCK=16, debug=True)

    assert "too far" in str(e.value)


def test_a_grid_beyond_the_hardwares_limit_is_refused(load: Any, tiled_matmul: str) -> None:
    module = load(tiled_matmul)
    a = torch.zeros(16, 16)

    with pytest.raises(Exception, match=r"grid \(1, 65536, 1\) exceeds the limits of sm_90"):
        module.matmul[(1, 65536)](a, a, a, 16, 16, 16, "ieee", BM=16, BN=16, BK=16)


@TARGETS
def test_arguments_of_every_kind(load: Any, target: str) -> None:
    source = """
@triton.jit
def scaled(value, BY: tl.constexpr = 2):
    return value * BY

@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def kernel(
    pair, bias, out, one, scale, KIND: tl.constexpr, WHOLE: tl.constexpr, n, BLOCK: tl.constexpr
):
    o = tl.arange(0, BLOCK) * one
    v = tl.load(pair[0] + o, mask=o < pair[1], other=0).to(KIND)
    if bias is not None:
        v += tl.load(bias + o, mask=o < n, other=0.0)
    v = scaled(v) + scaled(v, BY=3)
    if not WHOLE:
        v = -v
    tl.store(out + o, v * scale, mask=o < n)
"""
    module = load(source, target)
    x, bias, out = torch.arange(10), torch.ones(10), torch.zeros(10)

    module.kernel[(1,)]((x, 10), None, out, 1, 0.5, module.tl.float32, n=10, BLOCK=16)
    assert out.tolist() == [-2.5 * i for i in range(10)]

    module.kernel[(1,)]((x, 4), bias, out, 1, 0.5, module.tl.float32, n=10, BLOCK=16)
    assert out.tolist() == [-2.5 * (i if i < 4 else 0) - 2.5 for i in range(10)]


def test_an_empty_grid_runs_nothing(load: Any) -> None:
    module = load(_RMS_NORM)
    x = torch.full((16,), 7.0)

    module.rms_norm[(0,)](x, x, x, 16, 1e-6, BLOCK=16)

    assert x.tolist() == [7.0] * 16


def test_what_only_hardware_can_do_is_said_to_be_unavailable(
    load: Any, inline_assembly: str
) -> None:
    module = load(inline_assembly)

    with pytest.raises(Unavailable, match="inline assembly cannot be executed"):
        module.kernel[(1,)](torch.zeros(128, dtype=torch.int32), BLOCK=128)


def test_the_language_compiles_again_after_a_body_was_executed(load: Any) -> None:
    module = load(_RMS_NORM + _RMS_NORM.replace("rms_norm", "another"))
    x, y = _bf16(2, 64), torch.empty(2, 64)

    module.rms_norm[(2,)](x, x, y, 64, 1e-6, BLOCK=64)
    module.another[(2,)](x, x, y, 64, 1e-6, BLOCK=64)

    assert [report.kernel for report in module.runtime.reports()] == ["rms_norm", "another"]
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        module.tl.sum(x)


def test_the_language_is_itself_again_after_a_body_failed(load: Any) -> None:
    module = load(_RMS_NORM)
    x = torch.zeros(8)
    with pytest.raises(Exception, match="out-of-bounds"):
        module.rms_norm[(1,)](x, x, x, 64, 1e-6, BLOCK=64)

    y = torch.empty(2, 32)
    module.rms_norm[(2,)](_bf16(2, 32), _bf16(32), y, 32, 1e-6, BLOCK=32)

    assert y.isfinite().all()


def test_autotuning_takes_the_first_configuration_that_fits_and_compiles_no_other(
    load: Any, tiled_matmul: str
) -> None:
    tuned = tiled_matmul.replace(
        "@triton.jit",
        """
@triton.autotune(
    [
        triton.Config({"BM": 256, "BN": 256, "BK": 128}, num_stages=4, num_warps=8),
        triton.Config({"BM": 64, "BN": 32, "BK": 32}),
        triton.Config({"BM": 32, "BN": 32, "BK": 32}),
    ],
    key=["M"],
)
@triton.jit""",
    )
    module = load(tuned)
    a, c = _bf16(64, 64), torch.empty(64, 64)

    for _ in range(2):
        module.matmul[lambda meta: (64 // meta["BM"], 64 // meta["BN"])](
            a, a, c, 64, 64, 64, "ieee"
        )

    assert module.matmul.best_config.kwargs == {"BM": 64, "BN": 32, "BK": 32}
    assert len(module.runtime._compilation._kernels) == 2  # what was compiled, launched or not
    assert len(module.runtime.reports()) == 1
    assert len(module.runtime.launches()) == 2
    torch.testing.assert_close(c.double(), a.double() @ a.double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "units", "shared", "capability"),
    [("sm_90", 132, 232448, (9, 0)), ("gfx942", 304, 65536, (9, 4))],
)
def test_triton_answers_for_the_target(
    load: Any, target: str, units: int, shared: int, capability: tuple[int, int]
) -> None:
    driver = load("", target).triton.runtime.driver.active

    properties = driver.utils.get_device_properties(driver.get_current_device())
    assert properties["multiprocessor_count"] == units
    assert properties["max_shared_mem"] == shared
    assert driver.get_device_capability() == capability
    assert driver.get_active_torch_device() == torch.device("cpu")


def test_a_kernel_knows_its_registers(load: Any) -> None:
    module = load(_RMS_NORM)
    x = _bf16(2, 64)

    kernel = module.rms_norm[(2,)](x, x, torch.empty_like(x), 64, 1e-6, BLOCK=64)

    (report,) = module.runtime.reports()
    assert kernel.n_regs == report.registers
    assert kernel.n_regs >= 16


def test_triton_hooks_fire(load: Any) -> None:
    module = load(_RMS_NORM)
    x, y = _bf16(2, 64), torch.empty(2, 64)
    seen: list[Any] = []
    runtime = module.triton.knobs.runtime
    enter, leave = (
        (lambda data: seen.append(data.get()["name"])),
        (lambda data: seen.append("left")),
    )
    runtime.launch_enter_hook.add(enter)
    runtime.launch_exit_hook.add(leave)

    try:
        module.rms_norm[(2,)](x, x, y, 64, 1e-6, BLOCK=64)
    finally:
        runtime.launch_enter_hook.remove(enter)
        runtime.launch_exit_hook.remove(leave)

    assert seen == ["rms_norm", "left"]


def test_benchmarking_by_hand_returns(load: Any) -> None:
    module = load(_RMS_NORM)
    x, y = _bf16(2, 64), torch.empty(2, 64)

    milliseconds = module.triton.testing.do_bench(
        lambda: module.rms_norm[(2,)](x, x, y, 64, 1e-6, BLOCK=64)
    )

    assert milliseconds == 1000.0


@TARGETS
def test_a_small_norm_is_executed_again_and_again(load: Any, target: str) -> None:
    module = load(_RMS_NORM, target)
    x, w, y = _bf16(8, 1024), _bf16(1024, seed=1), torch.empty(8, 1024)
    module.rms_norm[(8,)](x, w, y, 1024, 1e-6, BLOCK=1024)

    for _ in range(5):
        y.fill_(torch.nan)
        module.rms_norm[(8,)](x, w, y, 1024, 1e-6, BLOCK=1024)

    wanted = torch.nn.functional.rms_norm(x.double(), (1024,), w.double(), 1e-6)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-5)
