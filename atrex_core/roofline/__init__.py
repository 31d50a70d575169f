"""The least time a profile allows, and how measured times stand to it. Knows no device by name.

    T_sol = max over pipes(sum of W_d / P_d on that pipe, Q / B)

Work on one pipe adds up, whatever its types; pipes and memory overlap perfectly. So it is a true
lower bound, and a share above 1 is a fault to be explained: in the counts, in the profile, in the
clock or in the candidate. It is never clipped.
"""

from atrex_core.roofline.bound import Unbounded, bound, has_no_arithmetic
from atrex_core.roofline.causes import Cause, Evidence, causes, leading, needed
from atrex_core.roofline.standing import (
    ABOVE_ROOFLINE,
    LATENCY_BOUND,
    NO_ARITHMETIC,
    ROOFLINE_VIOLATION,
    TOLERANCE,
    flags,
    gap,
    highest,
    is_latency_bound,
    is_violation,
    limit,
    share,
)

__all__ = [
    "ABOVE_ROOFLINE",
    "LATENCY_BOUND",
    "NO_ARITHMETIC",
    "ROOFLINE_VIOLATION",
    "TOLERANCE",
    "Cause",
    "Evidence",
    "Unbounded",
    "bound",
    "causes",
    "flags",
    "gap",
    "has_no_arithmetic",
    "highest",
    "is_latency_bound",
    "is_violation",
    "leading",
    "limit",
    "needed",
    "share",
]
