"""sigmoid(x W^T + b) * m in bfloat16: a blocked matrix product with a fused epilogue.

Both operands are read along k, where they are contiguous, so nothing is packed: four rows of x meet
four rows of W, and their sixteen dot products run on vector lanes in float32. A block of 48 by 48
outputs keeps its rows in the second-level cache; short inputs repeat their last row to fill a tile.
"""

import numba
import numpy as np
import torch

# Reassociation lets a sum use vector lanes. NaN and infinity keep their meaning: no "nnan", "ninf".
OPTIONS = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
# Argument reduction in `exponential` must happen in the order it is written in.
ORDERED = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}

TILE = 4
BLOCK = 48


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


@numba.njit(**ORDERED)
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


@numba.njit(**OPTIONS)
def tile_product(x, w, i, j, sums, row, column):
    """Write the dot products of x[i:i+4] and w[j:j+4] to sums[row:row+4, column:column+4]."""
    last_i, last_j = x.shape[0] - 1, w.shape[0] - 1
    i1, i2, i3 = min(i + 1, last_i), min(i + 2, last_i), min(i + 3, last_i)
    j1, j2, j3 = min(j + 1, last_j), min(j + 2, last_j), min(j + 3, last_j)
    s00 = s01 = s02 = s03 = np.float32(0.0)
    s10 = s11 = s12 = s13 = np.float32(0.0)
    s20 = s21 = s22 = s23 = np.float32(0.0)
    s30 = s31 = s32 = s33 = np.float32(0.0)
    for k in range(x.shape[1]):
        w0, w1, w2, w3 = widen(w[j, k]), widen(w[j1, k]), widen(w[j2, k]), widen(w[j3, k])
        a = widen(x[i, k])
        s00 += a * w0
        s01 += a * w1
        s02 += a * w2
        s03 += a * w3
        a = widen(x[i1, k])
        s10 += a * w0
        s11 += a * w1
        s12 += a * w2
        s13 += a * w3
        a = widen(x[i2, k])
        s20 += a * w0
        s21 += a * w1
        s22 += a * w2
        s23 += a * w3
        a = widen(x[i3, k])
        s30 += a * w0
        s31 += a * w1
        s32 += a * w2
        s33 += a * w3
    target = sums[row : row + TILE, column : column + TILE]
    target[0, 0], target[0, 1], target[0, 2], target[0, 3] = s00, s01, s02, s03
    target[1, 0], target[1, 1], target[1, 2], target[1, 3] = s10, s11, s12, s13
    target[2, 0], target[2, 1], target[2, 2], target[2, 3] = s20, s21, s22, s23
    target[3, 0], target[3, 1], target[3, 2], target[3, 3] = s30, s31, s32, s33


@numba.njit(parallel=True, **OPTIONS)
def linear_sigmoid_mul_kernel(x, w, bias, m, out):
    rows, columns = out.shape
    across = (columns + BLOCK - 1) // BLOCK
    down = (rows + BLOCK - 1) // BLOCK
    for block in numba.prange(down * across):
        top, left = block // across * BLOCK, block % across * BLOCK
        height, width = min(BLOCK, rows - top), min(BLOCK, columns - left)
        sums = np.empty((BLOCK, BLOCK), np.float32)
        for j in range(0, width, TILE):
            for i in range(0, height, TILE):
                tile_product(x, w, top + i, left + j, sums, i, j)
        for i in range(height):
            for j in range(width):
                z = widen(narrow(sums[i, j] + widen(bias[left + j])))
                gate = np.float32(1.0) / (np.float32(1.0) + exponential(-z))
                out[top + i, left + j] = narrow(gate * widen(m[top + i, left + j]))


def bits_of(tensor):
    """Return the 16-bit words of `tensor` as a NumPy array that shares its memory."""
    return tensor.view(torch.uint16).numpy()


class Model(torch.nn.Module):
    def forward(self, hidden_states, weight, bias, post_mul_mat):
        out = torch.empty_like(post_mul_mat)
        linear_sigmoid_mul_kernel(
            bits_of(hidden_states),
            bits_of(weight),
            bits_of(bias),
            bits_of(post_mul_mat),
            bits_of(out),
        )
        return out
