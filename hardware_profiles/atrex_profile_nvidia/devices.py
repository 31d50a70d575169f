"""The tables together. To add a device, append a row to the table of its architecture.

Peaks are dense: NVIDIA's data sheets since Ampere print figures with 2:4 sparsity first, twice
the rate that an ordinary product can reach.
"""

from __future__ import annotations

from typing import Final

from atrex_profile_nvidia import blackwell, hopper, volta_to_ada

PROFILES: Final = (*volta_to_ada.PROFILES, *hopper.PROFILES, *blackwell.PROFILES)
