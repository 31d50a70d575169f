"""The interpreter's builder with its arithmetic repaired and its memory accesses checked.

Repaired: bfloat16 (the interpreter computes on its bits), rounding into fp8, NaN in min and max,
tf32 operands of `dot`, bfloat16 atomics. Added: the vendors' math libraries.
"""

# Triton's own signatures differ between its versions.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from atrex_backend_triton.virtual.device_math import erf, evaluate
from atrex_backend_triton.virtual.formats import Array, decode, encode, is_bf16, is_fp8, to_tf32
from atrex_backend_triton.virtual.memory import Extents
from atrex_core import Unavailable

_FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64)
_RTZ = ir.ROUNDING_MODE.RTZ


def _widened(handle: Any) -> Any:
    return TensorHandle(decode(handle.data, tl.bfloat16), tl.float32)


def _narrowed(data: Array) -> Any:
    return TensorHandle(encode(data, tl.bfloat16), tl.bfloat16)


def _repaired(name: str) -> Callable[..., Any]:
    """Return the interpreter's operation `name` made right for bfloat16.

    Widening to float32, one operation and rounding back equals a bfloat16 operation: 24 bits
    are more than twice 8 bits plus 2, so rounding twice gives what rounding once would.
    """
    original: Callable[..., Any] = getattr(interpreter.InterpreterBuilder, name)

    def operation(self: Any, *args: Any) -> Any:
        for arg in args:
            if isinstance(arg, TensorHandle) and is_bf16(arg):
                break
        else:
            return original(self, *args)
        result = original(
            self,
            *(_widened(a) if isinstance(a, TensorHandle) and is_bf16(a) else a for a in args),
        )
        return _narrowed(result.data) if result.data.dtype == np.float32 else result

    operation.__name__ = name
    return operation


class Builder(interpreter.InterpreterBuilder):
    """Executes one triton operation at a time on numpy arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.extents = Extents(())

    def __getattr__(self, name: str) -> Any:
        """Name an operation that this version of the interpreter lacks.

        Raises:
            Unavailable: for every operation.
        """
        if name.startswith("create_"):
            raise Unavailable(
                f'the operation "{name.removeprefix("create_")}" cannot be executed on a virtual '
                "device with this version of triton",
                hint="run this kernel on the hardware itself",
            )
        raise AttributeError(name)

    # Everything elementwise goes through these.
    binary_op = _repaired("binary_op")
    ternary_op = _repaired("ternary_op")
    unary_op = _repaired("unary_op")
    create_rsqrt = _repaired("create_rsqrt")

    def create_erf(self, arg: Any) -> Any:
        """Return the error function, many elements at once."""
        dtype = arg.dtype.scalar
        return TensorHandle(encode(erf(decode(arg.data, dtype)), dtype), dtype)

    def create_select(self, condition: Any, left: Any, right: Any) -> Any:
        """Choose without looking at the values: bits are as good as numbers."""
        return TensorHandle(np.where(condition.data, left.data, right.data), right.dtype.scalar)

    def create_minnumf(self, left: Any, right: Any) -> Any:
        """Return the smaller operand, or the one that is a number."""
        return self.binary_op(left, right, np.fmin)

    def create_maxnumf(self, left: Any, right: Any) -> Any:
        """Return the larger operand, or the one that is a number."""
        return self.binary_op(left, right, np.fmax)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """Multiply and add in double precision, which holds the product exactly."""
        if z.data.dtype == np.float64:
            return super().create_fma(x, y, z)
        dtype = z.dtype.scalar
        factors = [decode(h.data, dtype).astype(np.float64) for h in (x, y, z)]
        return TensorHandle(encode(factors[0] * factors[1] + factors[2], dtype), dtype)

    def get_bf16(self, value: float) -> Any:
        """Return a scalar constant."""
        return _narrowed(np.array([value], dtype=np.float32))

    # Conversions

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """Convert numbers, rounding to nearest even."""
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return TensorHandle(src.data, target)
        if tl.bfloat16 not in (source, target) and not is_fp8(source) and not is_fp8(target):
            return super().cast_impl(src, dst_type)
        numbers = decode(src.data, source)
        if target in _FLOATS or is_fp8(target):
            return TensorHandle(encode(numbers, target), target)
        return super().cast_impl(TensorHandle(numbers, tl.float32), dst_type)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """Convert between float formats with a stated rounding."""
        target = dst_type.scalar
        numbers = decode(src.data, src.dtype.scalar)
        return TensorHandle(encode(numbers, target, toward_zero=rounding_mode == _RTZ), target)

    def create_dot(
        self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
    ) -> Any:
        """Multiply matrices, accumulating in the accumulator's precision."""
        left, right = decode(a.data, a.dtype.scalar), decode(b.data, b.dtype.scalar)
        accumulator = decode(d.data, d.dtype.scalar)
        if left.dtype.kind in "iub":
            # Double precision is exact below 2**53, and much faster than integer products.
            product = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
            return TensorHandle((product + accumulator).astype(d.data.dtype), d.dtype.scalar)
        if a.dtype.scalar == tl.float32 and input_precision == ir.INPUT_PRECISION.TF32:
            left, right = to_tf32(left), to_tf32(right)
        wide = np.float64 if accumulator.dtype == np.float64 else np.float32
        product = left.astype(wide, copy=False) @ right.astype(wide, copy=False)
        return TensorHandle(encode(product + accumulator, d.dtype.scalar), d.dtype.scalar)

    # Memory

    def create_masked_load(self, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        """Load, after checking that every active lane is inside an argument's memory."""
        self.extents.check("load", ptrs, mask)
        return super().create_masked_load(ptrs, mask, *rest, **named)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        """Store, after checking that every active lane is inside an argument's memory."""
        self.extents.check("store", ptrs, mask)
        return super().create_masked_store(ptrs, value, mask, *rest)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Compare and swap."""
        self.extents.check("atomic_cas", ptr, None)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_atomic_rmw(
        self, rmw_op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        """Read, modify and write."""
        self.extents.check("atomic", ptr, mask)
        if is_bf16(val):
            return self._atomic_bf16(rmw_op, ptr, val, mask)
        return super().create_atomic_rmw(rmw_op, ptr, val, mask, sem, scope)

    def _atomic_bf16(self, rmw_op: Any, ptr: Any, val: Any, mask: Any) -> Any:
        if rmw_op not in (ir.ATOMIC_OP.FADD, ir.ATOMIC_OP.XCHG):
            raise ValueError(f"unsupported bfloat16 atomic {rmw_op}")
        old = np.zeros(val.data.shape, dtype=np.uint16)
        # Lane by lane: several lanes may name one address.
        for index in np.ndindex(val.data.shape):
            if not mask.data[index]:
                continue
            cell = ctypes.c_uint16.from_address(int(ptr.data[index]))
            old[index] = cell.value
            new = val.data[index]
            if rmw_op == ir.ATOMIC_OP.FADD:
                pair = decode(np.array([cell.value, new], dtype=np.uint16), tl.bfloat16)
                new = encode(pair[0] + pair[1], tl.bfloat16)
            cell.value = int(new)
        return TensorHandle(old, tl.bfloat16)

    # What only a device's own instructions can do

    def create_extern_elementwise(
        self,
        lib_name: str,
        lib_path: str,
        symbol: str,
        args: Sequence[Any],
        ret_type: Any,
        is_pure: bool,
    ) -> Any:
        """Call a function of the vendor's math library by its symbol."""
        dtype = ret_type.scalar
        storage = interpreter._get_np_dtype(dtype)
        return TensorHandle(evaluate(symbol, [arg.data for arg in args], storage), dtype)

    def create_inline_asm(self, *args: Any) -> Any:
        """Refuse: there is no hardware to run it.

        Raises:
            Unavailable: always.
        """
        raise Unavailable(
            "inline assembly cannot be executed on a virtual device",
            hint="run this kernel on the hardware itself",
        )
