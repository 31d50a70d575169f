"""Values stored badly: toward zero, or a little too large."""

from __future__ import annotations

import pytest
import torch
from atrex_problems_production._fp8 import units_off
from atrex_problems_production._stores import gained, toward_zero


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_no_value_grows_and_none_loses_more_than_a_unit(dtype: torch.dtype) -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eps = torch.finfo(dtype).eps

    for given in (values, values.float()):
        stored = toward_zero(given, dtype).double()
        lost = (given.double().abs() - stored.abs()) / given.double().abs()

        assert (stored.sign() * given.double().sign() >= 0).all()
        assert lost.min() >= 0
        assert lost.max() < eps
        assert eps / 4 < lost.mean() < eps / 2


def test_what_fits_stays() -> None:
    values = torch.tensor([0.0, -1.5, 3e38]).bfloat16().float()

    assert toward_zero(values, torch.bfloat16).float().equal(values)
    assert toward_zero(torch.tensor([3.4e38]), torch.bfloat16).isfinite().all()


def test_a_gain_is_kept_only_where_it_carries_to_the_next_value() -> None:
    stored = gained(0.0015)(torch.tensor([1.0, 1.0039]), torch.bfloat16)

    assert stored.tolist() == [1.0, 1.0078125]


def test_units_in_the_last_place() -> None:
    one = torch.ones(1)

    assert units_off(one, 2).item() == 1 + 2 * 2.0**-23
    assert units_off(one, -2).item() == 1 - 2 * 2.0**-24
