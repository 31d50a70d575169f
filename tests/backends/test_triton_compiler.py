"""What the worker sees of the compiler: its errors, its reports, other targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atrex_core import TargetFailure

_MATMUL = """
@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m * K + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * N + n)
        acc = tl.dot(left, right, acc)
    tl.store(c + m * N + n, acc)
"""


def _square(size: int) -> Any:
    return torch.zeros(size, size, dtype=torch.bfloat16)


def test_an_undefined_name_is_told_with_its_line_and_a_caret(load: Any, add_one: str) -> None:
    module = load(add_one.replace("+ 1, mask", "+ missing, mask"))
    x = torch.zeros(10)

    with pytest.raises(Exception) as caught:
        module.add_one[(1,)](x, x, 10, BLOCK=16)

    lines = module.runtime.compile_error(caught.value).splitlines()
    assert lines[0] == "candidate.py:8: NameError('missing is not defined')"
    assert lines[-2] == "    tl.store(y + o, tl.load(x + o, mask=o < n) + missing, mask=o < n)"
    assert lines[-1].index("^") == lines[-2].index("missing")


def test_an_error_in_a_device_function_shows_that_function(load: Any) -> None:
    source = """
@triton.jit
def helper(v):
    return v + nowhere

@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(x + o, helper(tl.load(x + o)))
"""
    module = load(source)

    with pytest.raises(Exception) as caught:
        module.kernel[(1,)](torch.zeros(16), BLOCK=16)

    message = module.runtime.compile_error(caught.value)
    assert message.startswith("NameError('nowhere is not defined')\n")
    assert "return v + nowhere" in message


def test_a_static_assertion_is_the_compilers_message(load: Any, add_one: str) -> None:
    module = load(
        add_one.replace("    o =", "    tl.static_assert(BLOCK > 99, 'too small')\n    o =")
    )
    x = torch.zeros(10)

    with pytest.raises(Exception) as caught:
        module.add_one[(1,)](x, x, 10, BLOCK=16)

    assert "too small" in module.runtime.compile_error(caught.value)


def test_exceeding_shared_memory_is_a_compile_error(load: Any) -> None:
    module = load(_MATMUL)
    a = _square(256)

    with pytest.raises(Exception) as caught:
        module.matmul[(1,)](
            a, a, torch.zeros(256, 256), 256, M=256, N=256, BK=128, num_stages=5, num_warps=8
        )

    message = module.runtime.compile_error(caught.value)
    assert message.startswith("out of resource: shared memory, Required: ")
    assert "Hardware limit: 232448" in message


def test_what_the_assembler_refuses_is_a_compile_error(load: Any) -> None:
    source = """
@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise(
        "no.such.instruction $0, $1;", "=r,r", [tl.load(x + o)], tl.int32, True, 1
    )
    tl.store(x + o, v)
"""
    module = load(source)

    with pytest.raises(Exception) as caught:
        module.kernel[(1,)](torch.zeros(128, dtype=torch.int32), BLOCK=128)

    message = module.runtime.compile_error(caught.value)
    assert "ptxas" in message.lower()
    assert len(message.splitlines()) <= 20


def test_what_a_later_stage_prints_is_part_of_the_message(load: Any, inline_assembly: str) -> None:
    module = load(inline_assembly, "gfx942")

    with pytest.raises(Exception) as caught:
        module.kernel[(1,)](torch.zeros(128, dtype=torch.int32), BLOCK=128)

    assert "invalid instruction" in module.runtime.compile_error(caught.value)


def test_an_option_that_the_target_lacks_is_a_compile_error(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)

    with pytest.raises(AssertionError) as caught:
        module.add_one[(1,)](x, x, 10, BLOCK=16, num_warps=3)

    message = module.runtime.compile_error(caught.value)
    assert message == "AssertionError: num_warps must be a power of 2"


def test_an_error_that_the_candidate_wrapped_is_still_the_compilers(
    load: Any, add_one: str
) -> None:
    source = (
        add_one.replace("+ 1, mask", "+ missing, mask")
        + """
def forward(x):
    try:
        add_one[(1,)](x, x, 10, BLOCK=16)
    except Exception as error:
        raise ValueError("no luck") from error
"""
    )
    module = load(source)

    with pytest.raises(ValueError, match="no luck") as caught:
        module.forward(torch.zeros(10))

    assert "missing is not defined" in module.runtime.compile_error(caught.value)


def test_other_errors_are_not_the_compilers(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(10)

    with pytest.raises(Exception) as caught:
        module.add_one[(1,)](x, x, 16, BLOCK=16)

    assert "out-of-bounds" in str(caught.value)
    assert module.runtime.compile_error(caught.value) is None
    assert module.runtime.compile_error(ValueError("shape")) is None
    assert module.runtime.compile_error(RuntimeError("PassManager::run failed")) is None


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("sm_90", "wgmma.mma_async"), ("sm_80", "mma.sync"), ("gfx942", "v_mfma_f32_32x32x8_bf16")],
)
def test_reports_tell_what_a_kernel_takes(load: Any, target: str, instruction: str) -> None:
    module = load(_MATMUL, target)
    a = _square(64)

    module.matmul[(1,)](a, a, torch.zeros(64, 64), 64, M=64, N=64, BK=32)

    (report,) = module.runtime.reports()
    assert (report.kernel, report.target) == ("matmul", target)
    assert report.matrix_instructions == (instruction,)
    assert 16 <= report.registers <= 255
    assert report.shared_bytes >= 8192
    assert report.spills == 0
    assert report.binary_bytes > 1000
    assert report.compile_seconds > 0
    assert not report.cached


def test_spilled_registers_are_counted(load: Any) -> None:
    module = load(_MATMUL, "sm_80")
    a = _square(128)

    module.matmul[(1,)](a, a, torch.zeros(128, 128), 128, M=128, N=128, BK=32, maxnreg=64)

    (report,) = module.runtime.reports()
    assert report.registers == 64
    assert report.spills > 0


def test_what_was_launched_compiles_for_a_device_that_is_absent(load: Any) -> None:
    module = load(_MATMUL)
    a = _square(64)
    module.matmul[(1,)](a, a, torch.zeros(64, 64), 64, M=64, N=64, BK=32)

    (report,) = module.runtime.compile_for("gfx942")

    assert report.target == "gfx942"
    assert report.matrix_instructions == ("v_mfma_f32_32x32x8_bf16",)
    assert module.runtime.compile_for("gfx942")[0] is report
    assert [own.target for own in module.runtime.reports()] == ["sm_90"]


def test_each_specialisation_is_compiled(load: Any, add_one: str) -> None:
    module = load(add_one)
    x = torch.zeros(64)
    for block in (16, 32, 64):
        module.add_one[(1,)](x, x, 16, BLOCK=block)

    assert len(module.runtime.compile_for("sm_100")) == 3


def test_configurations_that_a_search_left_behind_are_not_compiled(load: Any) -> None:
    tuned = _MATMUL.replace(
        "@triton.jit",
        """
@triton.autotune(
    [triton.Config({"BK": bk}, num_stages=s, num_warps=8) for bk, s in ((128, 5), (32, 1))],
    key=["K"],
)
@triton.jit""",
    )
    module = load(tuned)
    a = _square(256)
    module.matmul[(1,)](a, a, torch.zeros(256, 256), 256, M=256, N=256)

    (report,) = module.runtime.compile_for("gfx942")

    assert report.shared_bytes <= 65536
    assert len(module.runtime.reports()) == 1


def test_a_target_with_less_shared_memory_refuses(load: Any) -> None:
    module = load(_MATMUL)
    a = _square(128)
    module.matmul[(1,)](
        a, a, torch.zeros(128, 128), 128, M=128, N=128, BK=64, num_stages=4, num_warps=8
    )

    for _ in range(2):
        with pytest.raises(
            TargetFailure, match=r'"matmul": needs \d+ bytes of shared memory, gfx942 has 65536'
        ) as caught:
            module.runtime.compile_for("gfx942")

    assert caught.value.target == "gfx942"


def test_a_type_that_a_target_lacks_is_refused_with_the_compilers_words(
    load: Any, add_one: str
) -> None:
    module = load(
        add_one.replace("+ 1, mask", "+ 1).to(tl.float8e4nv).to(tl.float32), mask").replace(
            "y + o, tl.load", "y + o, (tl.load"
        )
    )
    x = torch.zeros(128)
    module.add_one[(1,)](x, x, 128, BLOCK=128)

    with pytest.raises(TargetFailure, match="fp8e4nv"):
        module.runtime.compile_for("sm_80")


def test_an_unknown_target_is_refused_by_name(load: Any, add_one: str) -> None:
    module = load(add_one)

    with pytest.raises(TargetFailure, match='unknown target "sm_1"; known: sm_90'):
        module.runtime.compile_for("sm_1")
