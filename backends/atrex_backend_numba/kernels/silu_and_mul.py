"""SiLU of the first half of each row, times the second half, in bfloat16.

The activation is computed in float32 and rounded to bfloat16 before the product. The exponential
is a polynomial on vector lanes: a call to the scalar one would take most of the time.
"""

import numba
import numpy as np
import torch

# Division by a reciprocal is fine; NaN and infinity keep their meaning: no "nnan", "ninf".
OPTIONS = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}


@numba.njit(**OPTIONS)
def widen(h):
    """Turn the bits of a bfloat16 into a float32."""
    return np.uint32(np.uint32(h) << np.uint32(16)).view(np.float32)


@numba.njit(**OPTIONS)
def narrow(value):
    """Round a float32 to the bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = np.float32(value).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.uint16((bits | np.uint32(0x400000) if is_nan else rounded) >> np.uint32(16))


@numba.njit(**OPTIONS)
def exponential(x):
    """Return e**x within 2 ulp: at least about 1e-38, and infinity from 127.5 ln 2 up.

    x = n ln 2 + r, so e**x = 2**n * e**r with a Taylor polynomial for |r| <= ln 2 / 2.
    """
    # Written so that a NaN passes both comparisons and reaches the polynomial.
    if x < np.float32(-87.33654):
        x = np.float32(-87.33654)
    if x > np.float32(88.72284):
        x = np.float32(88.72284)
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 5040.0)
    p = p * r + np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    exponent = np.uint32(np.int32(n) + np.int32(127)) << np.uint32(23)
    return p * np.uint32(exponent).view(np.float32)


@numba.njit(parallel=True, **OPTIONS)
def silu_and_mul_kernel(x, out):
    rows, columns = out.shape
    for i in numba.prange(rows):
        for j in range(columns):
            gate = widen(x[i, j])
            activated = widen(narrow(gate / (np.float32(1.0) + exponential(-gate))))
            out[i, j] = narrow(activated * widen(x[i, columns + j]))


class Model(torch.nn.Module):
    def forward(self, x):
        columns = x.shape[-1] // 2
        out = torch.empty((*x.shape[:-1], columns), dtype=x.dtype)
        rows = out.numel() // max(columns, 1)
        silu_and_mul_kernel(
            x.view(torch.uint16).numpy().reshape(rows, x.shape[-1]),
            out.view(torch.uint16).numpy().reshape(rows, columns),
        )
        return out
