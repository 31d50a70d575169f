"""The vendors' math libraries, by symbol: `__nv_tanhf`, `__ocml_tanh_f32`.

Triton's interpreter has none of them. A symbol that is missing here is reported, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from atrex_backend_triton.virtual.formats import Array
from atrex_core import Unavailable

Function = Callable[..., Any]

_VENDOR_NAME = re.compile(r"__(?:nv_(?P<nv>\w+)|ocml_(?P<ocml>\w+?)_f(?:16|32|64))")
_ROUNDED = re.compile(r"[fd](?P<operation>add|sub|mul|div|rcp|sqrt|rsqrt)_rn")
_CONVERSION = re.compile(r"(?:float|double)2(?:u?int|u?ll)_(?P<rounding>r[nzdu])")
_WIDENING = re.compile(r"(?:u?int|u?ll)2(?:float|double)_rn|double2float_rn")


def evaluate(symbol: str, args: Sequence[Array], result: np.dtype[Any]) -> Array:
    """Return the library function `symbol` of `args`, elementwise, as dtype `result`.

    Raises:
        Unavailable: the function has no counterpart here.
    """
    match = _VENDOR_NAME.fullmatch(symbol)
    name = (match["ocml"] or match["nv"]).removeprefix("fast_") if match else ""
    if re.fullmatch(r"\w+_as_\w+", name):
        return args[0].view(result)
    function = _function(name)
    if function is None:
        raise Unavailable(
            f'the library function "{symbol}" cannot be executed on a virtual device',
            hint="run this kernel on the hardware itself",
        )
    return np.asarray(function(*args)).astype(result)


def _function(name: str) -> Function | None:
    if rounded := _ROUNDED.fullmatch(name):
        return _FUNCTIONS[rounded["operation"]]
    if conversion := _CONVERSION.fullmatch(name):
        return _ROUNDINGS[conversion["rounding"]]
    if _WIDENING.fullmatch(name):
        return np.asarray
    # Precision is a suffix of most names; those of erf, fdiv and the like end in it anyway.
    for spelling in (name, name.removesuffix("f"), name.removesuffix("d")):
        if spelling in _FUNCTIONS:
            return _FUNCTIONS[spelling]
    return None


def _special(name: str) -> Function:
    """Return one of torch's special functions, computed in double precision."""

    def apply(x: Array) -> Array:
        import torch

        numbers = torch.from_numpy(np.array(x, dtype=np.float64))
        return np.asarray(getattr(torch.special, name)(numbers).numpy())

    return apply


erf = _special("erf")


def _fused(x: Array, y: Array, z: Array) -> Array:
    return np.asarray(x.astype(np.float64) * y + z)


def _half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


_ROUNDINGS: dict[str, Function] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}

_FUNCTIONS: dict[str, Function] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add": np.add,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * x.astype(np.float64)),
    "cyl_bessel_i0": _special("i0"),
    "cyl_bessel_i1": _special("i1"),
    "div": np.divide,
    "erf": erf,
    "erfc": _special("erfc"),
    "erfcx": _special("erfcx"),
    "erfinv": _special("erfinv"),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x.astype(np.float64)),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fdivide": np.divide,
    "finite": np.isfinite,
    "floor": np.floor,
    "fma": _fused,
    "fma_rn": _fused,
    "fmaf_rn": _fused,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "i0": _special("i0"),
    "i1": _special("i1"),
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "j0": _special("bessel_j0"),
    "j1": _special("bessel_j1"),
    "ldexp": np.ldexp,
    "lgamma": _special("gammaln"),
    "llabs": np.abs,
    "llrint": np.rint,
    "llround": _half_away,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "mul": np.multiply,
    "nearbyint": np.rint,
    "nextafter": np.nextafter,
    "normcdf": _special("ndtr"),
    "normcdfinv": _special("ndtri"),
    "pow": np.power,
    "powi": np.power,
    "pown": np.power,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rcp": np.reciprocal,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "rint": np.rint,
    "round": _half_away,
    "rsqrt": _rsqrt,
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "scalbn": np.ldexp,
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * x.astype(np.float64)),
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
