"""What is to be computed, and who claims to compute it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Any

from attrs import field, frozen
from attrs.validators import ge, min_len

from atrex_core.model.dtype import DType
from atrex_core.model.hardware import ArithmeticPath


class Phase(StrEnum):
    """The part of inference a workload was observed in."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class Origin(StrEnum):
    """Published workloads score; added ones affect the pass rate only."""

    PUBLISHED = "published"
    ADDED = "added"


class Scale(StrEnum):
    """Production size, or small enough for any machine."""

    FULL = "full"
    SMOKE = "smoke"


class Container(StrEnum):
    """How `forward` hands its outputs back."""

    TENSOR = "tensor"
    TUPLE = "tuple"
    DICT = "dict"


@frozen(kw_only=True)
class TensorSpec:
    """A tensor without its values. Contiguous and row-major, always."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.item_bytes


@frozen(kw_only=True)
class Workload:
    """One concrete shape of a problem. Everything here may be shown to a candidate's author."""

    id: str = field(validator=min_len(1))
    axes: Mapping[str, Any]
    """Arguments of the input generator: sizes, and the dtype where a problem has several."""
    init: Mapping[str, Any] = field(factory=dict)
    """Keyword arguments of `Model`."""
    phase: Phase = Phase.BOTH
    origin: Origin = Origin.PUBLISHED
    scale: Scale = Scale.FULL


class Basis(StrEnum):
    """Where a weight comes from."""

    OBSERVED = "observed"
    """Times in production traces."""
    DERIVED = "derived"
    """Calls in production traces, times a time measured elsewhere."""
    UNIFORM = "uniform"
    """Nothing is known: equal parts."""


@frozen(kw_only=True)
class Weight:
    """A share of some whole, and how it is known."""

    share: float = field(validator=ge(0))
    basis: Basis


@frozen(kw_only=True)
class Pack:
    """A versioned set of problems. Scores of different versions or digests never mix."""

    name: str
    version: str
    digest: str


@frozen(kw_only=True)
class Cost:
    """The work any implementation must do: semantic operations and compulsory bytes."""

    flops: Mapping[ArithmeticPath, float]
    read_bytes: float = field(validator=ge(0))
    write_bytes: float = field(validator=ge(0))

    @property
    def total_bytes(self) -> float:
        """Each distinct input byte once and each output byte once."""
        return self.read_bytes + self.write_bytes


@frozen(kw_only=True)
class Tolerance:
    """How far an output may be from the high-precision expected value.

    All rules must hold. `honest` below is the error of an honest implementation in the
    stated precision, measured on the same inputs, so a rule never demands more than the
    problem's own arithmetic can give. A row is a slice along the last axis; `rms_honest(row)`
    is the root mean square of the honest error in it. Every bound also allows what flushing
    denormals to zero may cost, and every L2 bound is joined, as a root sum of squares, by
    `eps * |e|_4`: roundings average out over many elements, not over a few that dominate.
    """

    dtype: DType
    """Precision the output is stated in; its epsilon scales every rule."""
    relative_l2: float = 2.0
    """`|a - e|_2 <= relative_l2 * max(|honest - e|_2, eps/4 * |e|_2)` over the whole tensor."""
    row_l2: float = 4.0
    """The same for each row by itself, so that no row hides among many."""
    bias: float = 4.0
    """How far errors may lean one way, in standard deviations of their mean over the rows.

    `|<a - e, u>| <= max(bias * |a - e|_2 / sqrt(n), L2 / 4)`, where L2 is the bound of
    `relative_l2`, for u = e / |e| (a gain, as truncating instead of rounding gives) and
    u = 1 / |1| (an offset). Roundings lean neither way: those of a row's common factor average
    out over the n rows, of which few count where few dominate. Twice what `honest` leans comes
    on top.
    """
    element: float = 2.0
    """Each element: `|a - e| <= element * (eps * |e| + eps * rms(row) + 4 * rms_honest(row))`."""
    outlier_fraction: float = 0.0
    """Share of elements that may exceed the element rule (rounding flips), never the cap."""
    cap: float = 8.0
    """No element at all may exceed `cap` times the element rule's scale; at least `element`."""
    absolute: float = field(default=0.0, validator=ge(0))
    """Root mean square of the error that honest arithmetic makes whatever the output's size.

    For outputs in which large terms cancel: what is left may be smaller than the roundings of the
    terms, and by chance `honest` is nearly exact there. Joins every bound as flushing does.
    """

    def __attrs_post_init__(self) -> None:
        if self.cap < self.element:
            raise ValueError(f"cap {self.cap} is below element {self.element}")


@frozen(kw_only=True)
class CodeSteps:
    """How far an output in an 8-bit floating type may be from the nearest code, in codes.

    Two honest kernels that sum in another order, or multiply by a reciprocal where another
    divides, land on neighbouring codes now and then; a wrong scale or a narrower type does so
    often. The expected value is rounded to `dtype` and codes are counted between the two; where
    it lies within fp32 rounding of halfway, either neighbour is the nearest code.
    """

    dtype: DType
    """An 8-bit floating type."""
    flips: float = 0.05
    """Share of elements that may be off by a code, plus what chance may add.

    The codes of a row flip together when its scale moves, so few rows may flip more:
    `flips * (1 + 3 / sqrt(rows))`, which also holds for each row by itself.
    """
    cap: int = 1
    """No element may be further off than this many codes."""


@frozen(kw_only=True)
class Allclose:
    """One absolute and one relative bound for all elements, whatever their scale.

    `|e - a| <= absolute + relative * |a|`: the relative part is scaled by the *candidate's* value
    `a`, as `torch.allclose(e, a)` does. NaN is never right. For protocols that reproduce others.
    """

    absolute: float
    relative: float


Rule = Tolerance | CodeSteps | Allclose
"""How one floating-point output is compared."""


@frozen(kw_only=True)
class Candidate:
    """One submission: a file that exposes `Model`, aimed at one problem."""

    name: str
    problem: str
    backend: str
    path: Path
    source: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the source: the join key across devices and journals."""
        return hashlib.sha256(self.source).hexdigest()
