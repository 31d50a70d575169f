"""What arithmetic gives: products of square matrices on each path that a profile names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from attrs import evolve, frozen

from atrex_core.calibration.clock import Clock, Unmeasured
from atrex_core.interfaces import Tensor
from atrex_core.model.calibration import Measured
from atrex_core.model.hardware import ArithmeticPath

EDGES: Final = (4096, 8192)
HOST_EDGES: Final = (512, 1024)
"""Where the host computes."""

_FREE_SHARE: Final = 4
_CHECKED: Final = 16
_INT8_DEVIATION: Final = 32.0

Torch = Any
Prepare = Callable[[Torch, Tensor, Tensor, Tensor], Callable[[], Tensor]]
"""Of two operands and room for the product: what computes it."""


@frozen(kw_only=True)
class Route:
    """How torch is made to compute on one path, and how it shows that it did."""

    dtypes: tuple[str, ...]
    """Of the operands: the first that this torch has and that the device takes."""
    output: str
    precision: str = "highest"
    """Of products of 32-bit matrices."""
    prepare: Prepare
    what: str
    least_error: float = 0.0
    most_error: float
    """Relative L2 error of the result. Outside of these, something else was computed."""


def _mm(torch: Torch, a: Tensor, b: Tensor, out: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.mm(a, b, out=out)


def _integers(torch: Torch, a: Tensor, b: Tensor, out: Tensor) -> Callable[[], Tensor]:
    return lambda: torch._int_mm(a, b, out=out)


def _scaled(torch: Torch, a: Tensor, b: Tensor, out: Tensor) -> Callable[[], Tensor]:
    one = torch.ones((), dtype=torch.float32, device=a.device)
    return lambda: torch._scaled_mm(
        a, b, scale_a=one, scale_b=one, out_dtype=out.dtype, use_fast_accum=True
    )


_FP64: Final = Route(
    dtypes=("float64",), output="float64", prepare=_mm, what="mm", most_error=1e-11
)
_ROUTES: Final[Mapping[ArithmeticPath, Route]] = {
    ArithmeticPath.FP64_MATRIX: _FP64,
    ArithmeticPath.FP64_VECTOR: _FP64,
    ArithmeticPath.FP32_VECTOR: Route(
        dtypes=("float32",), output="float32", prepare=_mm, what="mm", most_error=3e-5
    ),
    ArithmeticPath.TF32_MATRIX: Route(
        dtypes=("float32",),
        output="float32",
        precision="high",
        prepare=_mm,
        what="mm, 32-bit products at precision 'high'",
        least_error=3e-5,
        most_error=3e-3,
    ),
    ArithmeticPath.FP16_MATRIX: Route(
        dtypes=("float16",), output="float16", prepare=_mm, what="mm", most_error=3e-3
    ),
    ArithmeticPath.BF16_MATRIX: Route(
        dtypes=("bfloat16",), output="bfloat16", prepare=_mm, what="mm", most_error=1e-2
    ),
    ArithmeticPath.FP8_MATRIX: Route(
        dtypes=("float8_e4m3fn", "float8_e4m3fnuz"),
        output="bfloat16",
        prepare=_scaled,
        what="_scaled_mm, fast accumulation",
        most_error=5e-2,
    ),
    ArithmeticPath.INT8_MATRIX: Route(
        dtypes=("int8",), output="int32", prepare=_integers, what="_int_mm", most_error=0.0
    ),
}


def edges(*, is_synchronous: bool) -> tuple[int, ...]:
    """Return the sizes to measure."""
    return HOST_EDGES if is_synchronous else EDGES


def why_not(path: ArithmeticPath, paths: Collection[ArithmeticPath]) -> str | None:
    """Return why no product shows what `path` gives on a device that has `paths`, if so."""
    if path not in _ROUTES:
        return f"torch has no product of {path.removesuffix('_matrix')} matrices"
    if path is ArithmeticPath.FP64_VECTOR and ArithmeticPath.FP64_MATRIX in paths:
        return "products in fp64 use the matrix pipe of this device"
    return None


def measure(torch: Torch, clock: Clock, path: ArithmeticPath, edge: int) -> Measured:
    """Return the rate of products of `edge` x `edge` matrices, in FLOP/s.

    Raises:
        Unmeasured: this torch or this device has no such product; the message says why.
    """
    route = _ROUTES[path]
    free = clock.context.free_bytes()
    needed = 4 * 8 * edge * edge
    if free is not None and free // _FREE_SHARE < needed:
        raise Unmeasured(f"{needed} bytes are more than a quarter of the free memory")
    reasons = []
    for name in route.dtypes:
        dtype = getattr(torch, name, None)
        if dtype is None:
            reasons.append(f"this torch has no {name}")
            continue
        try:
            return _measure(torch, clock, route, dtype, edge)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
            reasons.append(f"{name}: {error}")
    raise Unmeasured("; ".join(reasons))


def _measure(torch: Torch, clock: Clock, route: Route, dtype: Any, edge: int) -> Measured:
    device = clock.context.torch_device
    a = _drawn(torch, dtype, edge, device)
    b = _drawn(torch, dtype, edge, device).t()  # the layout that narrow types ask for
    out = torch.empty((edge, edge), dtype=getattr(torch, route.output), device=device)
    with _precision(torch, route.precision):
        multiply = route.prepare(torch, a, b, out)
        _check(torch, route, a, b, multiply())
        times = clock.times(multiply)
    name = str(dtype).removeprefix("torch.")
    measured = times.as_rate(2.0 * edge**3)
    return evolve(measured, method=f"{route.what} of {name}; {measured.method}")


def _drawn(torch: Torch, dtype: Any, edge: int, device: str) -> Tensor:
    """Return normal draws: a device that multiplies zeros takes less power, and runs faster."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    drawn = torch.empty((edge, edge), dtype=wide, device=device).normal_()
    if dtype is torch.int8:
        drawn = drawn.mul_(_INT8_DEVIATION).round_().clamp_(-127, 127)
    return drawn.to(dtype)


@contextmanager
def _precision(torch: Torch, name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check(torch: Torch, route: Route, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Raise `Unmeasured` where the error of a corner of the result is not that of the path."""
    rows = _exact(torch, a[:_CHECKED])
    columns = _exact(torch, b.t()[:_CHECKED]).t()
    expected = rows @ columns
    found = _exact(torch, out[:_CHECKED, :_CHECKED])
    error = float((found - expected).norm() / expected.norm())
    if not route.least_error <= error <= route.most_error:
        raise Unmeasured(
            f"the product's relative error of {error:.1e} is not that of this path "
            f"({route.least_error:.0e} to {route.most_error:.0e}): something else was computed"
        )


def _exact(torch: Torch, part: Tensor) -> Tensor:
    """Return `part` on the host: not every device computes in fp64."""
    return part.contiguous().cpu().to(torch.float64)
