"""A virtual device computes what the hardware would."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def _bf16(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _fp32(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


TARGETS = pytest.mark.parametrize("target", ["sm_90", "gfx942"])


@TARGETS
def test_bfloat16_arithmetic_rounds_as_the_hardware_does(load: Any, target: str) -> None:
    source = """
@triton.jit
def kernel(x, z, y, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    a, b = tl.load(x + o), tl.load(z + o)
    y += o
    tl.store(y, a + b)
    tl.store(y + BLOCK, a - b)
    tl.store(y + 2 * BLOCK, a * b)
    tl.store(y + 3 * BLOCK, -a)
    tl.store(y + 4 * BLOCK, tl.where(a > b, a, b * b))
    tl.store(y + 5 * BLOCK, tl.maximum(a, b))
    tl.store(y + 6 * BLOCK, tl.abs(a))
    tl.store(y + 7 * BLOCK, tl.full((BLOCK,), 1.5, tl.bfloat16) * a)
    tl.store(y + 8 * BLOCK, tl.max(a, 0))
"""
    module = load(source, target)
    x, z, y = _bf16(256, seed=1), _bf16(256, seed=2), torch.empty(9, 256, dtype=torch.bfloat16)

    module.kernel[(1,)](x, z, y, BLOCK=256)

    wanted = [x + z, x - z, x * z, -x, torch.where(x > z, x, z * z), torch.maximum(x, z), x.abs()]
    wanted += [1.5 * x, x.max().expand(256)]
    assert torch.equal(y, torch.stack(wanted))


def test_conversion_to_bfloat16_rounds_to_nearest_even(load: Any) -> None:
    source = """
@triton.jit
def kernel(x, y, z, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o).to(tl.bfloat16))
    tl.store(z + o, tl.load(x + o).to(tl.bfloat16, fp_downcast_rounding="rtz"))
"""
    module = load(source)
    x = torch.tensor([1.00390625, 1.01171875, -1.00390625, 3.0e38, float("inf"), float("nan")])
    x = torch.cat([x, torch.zeros(2)])
    y, z = torch.empty(8, dtype=torch.bfloat16), torch.empty(8, dtype=torch.bfloat16)

    module.kernel[(1,)](x, y, z, BLOCK=8)

    assert y[:3].tolist() == [1.0, 1.015625, -1.0]
    assert z[:3].tolist() == [1.0, 1.0078125, -1.0]
    assert y[3:5].tolist() == x.bfloat16()[3:5].tolist()
    assert y[5].isnan()


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("sm_90", torch.float8_e4m3fn),
        ("sm_90", torch.float8_e5m2),
        ("gfx942", torch.float8_e4m3fnuz),
        ("gfx942", torch.float8_e5m2fnuz),
    ],
    ids=str,
)
def test_fp8_rounds_and_saturates(load: Any, target: str, dtype: torch.dtype) -> None:
    source = """
@triton.jit
def kernel(x, y, z, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    rounded = tl.load(x + o).to(y.dtype.element_ty)
    tl.store(y + o, rounded)
    tl.store(z + o, rounded.to(tl.float32))
"""
    module = load(source, target)
    largest = torch.finfo(dtype).max
    x = (_fp32(1022) * torch.logspace(-9, 3, 1022)).clamp(-largest, largest)
    x = torch.cat([x, torch.tensor([4 * largest, -4 * largest])])
    y, z = torch.empty(1024, dtype=dtype), torch.empty(1024)

    module.kernel[(1,)](x, y, z, BLOCK=1024)

    assert torch.equal(y[:-2].float(), x[:-2].to(dtype).float())
    assert z[-2:].tolist() == [largest, -largest]
    assert torch.equal(z, y.float())


@TARGETS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_products_of_matrices(
    load: Any, target: str, dtype: torch.dtype, tiled_matmul: str
) -> None:
    module = load(tiled_matmul, target)
    a, b, c = _fp32(70, 50).to(dtype), _fp32(50, 40, seed=1).to(dtype), torch.empty(70, 40)

    module.matmul[(2, 1)](a, b, c, 70, 40, 50, "ieee", BM=64, BN=64, BK=32)

    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("target", "dtype", "sums"),
    [
        ("sm_90", torch.int8, torch.int32),
        ("gfx942", torch.int8, torch.int32),
        ("sm_90", torch.float8_e4m3fn, torch.float32),
        ("gfx942", torch.float8_e4m3fnuz, torch.float32),
    ],
    ids=str,
)
def test_products_of_eight_bit_matrices(
    load: Any, target: str, dtype: torch.dtype, sums: torch.dtype
) -> None:
    source = """
@triton.jit
def kernel(a, b, c, SIZE: tl.constexpr):
    o = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o)))
"""
    module = load(source, target)
    a, c = (_fp32(32, 32) * 8).to(dtype), torch.empty(32, 32, dtype=sums)

    module.kernel[(1,)](a, a, c, SIZE=32)

    torch.testing.assert_close(c.double(), a.double() @ a.double(), rtol=0, atol=1e-3)


def test_single_precision_products_lose_what_tf32_loses(load: Any, tiled_matmul: str) -> None:
    module = load(tiled_matmul)
    a, b, c = _fp32(64, 32), _fp32(32, 64, seed=1), torch.empty(64, 64)

    module.matmul[(1, 1)](a, b, c, 64, 64, 32, None, BM=64, BN=64, BK=32)

    error = (c.double() - a.double() @ b.double()).abs().max().item()
    assert 1e-4 < error < 5e-2


@TARGETS
def test_math_libraries_and_names_imported_one_by_one(load: Any, target: str) -> None:
    source = """
from triton.language.extra import libdevice
from triton.language.extra.libdevice import tanh as imported_tanh
from triton.language import exp as imported_exp

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    total = libdevice.tanh(v) + imported_tanh(2 * v) + imported_exp(v) + libdevice.erf(v)
    total += tl.math.exp2(v) + tl.sigmoid(v) + tl.erf(v) + libdevice.pow(tl.abs(v) + 1.0, v)
    tl.store(y + o, total + tl.fma(v, v, v) + libdevice.rsqrt(v * v + 1.0), mask=o < n)
"""
    module = load(source, target)
    x, y = _fp32(300), torch.empty(300)

    module.kernel[(1,)](x, y, 300, BLOCK=512)

    v = x.double()
    wanted = v.tanh() + (2 * v).tanh() + v.exp() + 2 * v.erf() + v.exp2() + v.sigmoid()
    wanted += (v.abs() + 1).pow(v) + v * v + v + (v * v + 1).rsqrt()
    torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-5)


@TARGETS
def test_reductions_and_scans(load: Any, target: str) -> None:
    source = """
@triton.jit
def best(a, i, b, j):
    first = a > b or (a == b and i < j)
    return tl.where(first, a, b), tl.where(first, i, j)

@triton.jit
def linear(a, b, c, d):
    return a * c, b * c + d

@triton.jit
def larger(a, b):
    if a > b:
        result = a
    else:
        result = b
    return result

@triton.jit
def kernel(x, y, ids, wide, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    v = tl.load(x + r[:, None] * BLOCK + c[None, :])
    places = tl.broadcast_to(c[None, :], (ROWS, BLOCK))
    top, place = tl.reduce((v, places), 1, best)
    tl.store(y + r, top)
    tl.store(ids + r, place)
    tl.store(ids + ROWS + r, v.argmin(1))
    tl.store(ids + 2 * ROWS + r, tl.argmax(v, 1, tie_break_left=False))
    tl.store(y + ROWS + r, v.sum(axis=1))
    tl.store(y + 2 * ROWS + r, tl.reduce(v, 1, larger))
    tl.store(y + 3 * ROWS + r, tl.zeros((ROWS,), tl.float32) + tl.sum(v))
    cells = r[:, None] * BLOCK + c[None, :]
    tl.store(wide + cells, tl.cumsum(v, 1))
    tl.store(wide + ROWS * BLOCK + cells, tl.sort(v, 1))
    _, state = tl.associative_scan((v, v), 1, linear)
    tl.store(wide + 2 * ROWS * BLOCK + cells, state)
    tl.store(wide + 3 * ROWS * BLOCK + cells, tl.cumsum(v, 1, reverse=True))
"""
    module = load(source, target)
    x = _fp32(4, 32)
    y, ids, wide = torch.empty(4, 4), torch.empty(3, 4, dtype=torch.int32), torch.empty(4, 4, 32)

    module.kernel[(1,)](x, y, ids, wide, ROWS=4, BLOCK=32)

    state, states = torch.zeros(4), []
    for column in x.unbind(1):
        state = state * column + column
        states.append(state)
    assert torch.equal(y[0], x.amax(1))
    assert torch.equal(y[2], x.amax(1))
    assert ids.tolist() == [x.argmax(1).tolist(), x.argmin(1).tolist(), x.argmax(1).tolist()]
    torch.testing.assert_close(y[1], x.sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(y[3], x.sum().expand(4), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wide[0], x.cumsum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(wide[1], x.sort(1).values)
    torch.testing.assert_close(wide[2], torch.stack(states, 1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(wide[3], x.flip(1).cumsum(1).flip(1), rtol=1e-5, atol=1e-5)


def test_a_nan_does_not_win_a_maximum(load: Any) -> None:
    source = """
@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y, tl.max(v, 0))
    tl.store(y + 1, tl.max(tl.maximum(v, 1.0), 0))
"""
    module = load(source)
    x, y = torch.tensor([float("nan"), 0.5, -2.0, float("nan")]), torch.empty(2)

    module.kernel[(1,)](x, y, BLOCK=4)

    assert y.tolist() == [0.5, 1.0]


@pytest.mark.filterwarnings("ignore:Logical operators")
def test_control_flow_closures_and_wide_integers(load: Any) -> None:
    source = """
def make(factor):
    @triton.jit
    def kernel(x, y, n, wide, flag, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        o = pid * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + o, mask=o >= 0 and o < n, other=0)
        if flag and not (n > 1000):
            v = v * factor
        v = v if pid > 0 else v + 100
        step = 0
        while step < 3:
            v += step
            step += 1
        for i in tl.range(0, n, BLOCK, num_stages=2):
            v += i // BLOCK
        for i in tl.static_range(2):
            v += i
        tl.store(y + o, v + (wide >> 33), mask=o < n)
    return kernel

kernel = make(tl.constexpr(3))
"""
    module = load(source)
    x, y = torch.arange(100, dtype=torch.int32), torch.empty(100, dtype=torch.int64)

    module.kernel[(2,)](x, y, 100, 1 << 34, True, BLOCK=64)

    wanted = x.long() * 3 + 3 + 1 + 1 + 2
    wanted[:64] += 100
    assert torch.equal(y, wanted)


@TARGETS
def test_descriptors_made_on_the_host_and_on_the_device(load: Any, target: str) -> None:
    source = """
@triton.jit
def by_host(source, sink, BM: tl.constexpr):
    sink.store([tl.program_id(0) * BM, 0], source.load([tl.program_id(0) * BM, 0]) * 2)

@triton.jit
def by_device(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    sink = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    sink.store([tl.program_id(0) * BM, 0], source.load([tl.program_id(0) * BM, 0]) + 1)
"""
    from triton.tools.tensor_descriptor import TensorDescriptor

    module = load(source, target)
    x, y, z = _bf16(70, 64), torch.zeros(70, 64).bfloat16(), torch.zeros(70, 64).bfloat16()

    module.by_host[(3,)](
        TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(y, [32, 64]), BM=32
    )
    module.triton.set_allocator(lambda size, alignment, stream: torch.empty(size))
    module.by_device[(3,)](x, z, 70, 64, BM=32, BN=64)

    assert torch.equal(y, x * 2)
    assert torch.equal(z, x + 1)


@TARGETS
def test_atomics(load: Any, target: str) -> None:
    source = """
@triton.jit
def kernel(x, total, halves, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    tl.atomic_add(total, tl.sum(v, 0))
    tl.atomic_add(halves + o % 2, v.to(tl.bfloat16), mask=o < n)
"""
    module = load(source, target)
    x, total, halves = torch.ones(100), torch.zeros(1), torch.zeros(2).bfloat16()

    module.kernel[(4,)](x, total, halves, 100, BLOCK=32)

    assert total.tolist() == [100.0]
    assert halves.tolist() == [50.0, 50.0]
