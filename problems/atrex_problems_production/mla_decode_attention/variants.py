"""Honest implementations of `mla_decode_attention`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

from atrex_problems_production._attention import common_variants
from atrex_problems_production.mla_decode_attention.private import attention

from atrex_core import Implementation

VARIANTS: Mapping[str, Implementation] = common_variants(attention)
