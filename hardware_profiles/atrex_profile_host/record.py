"""What a calibration found, how two of them combine, and how one is kept on disk."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import asdict, evolve, frozen

from atrex_profile_host.machine import Machine

_SCHEMA: Final = 1
_CALM_CPU_SHARE: Final = 0.9
"""Below this the threads lost CPUs to others, and the figures may be too low."""
_ENOUGH_RUNS: Final = 5


@frozen(kw_only=True)
class Calibration:
    """Rates in SI units by the name of what was done, and how the measuring went."""

    rates: Mapping[str, float]
    """Best rate seen: bytes/s of a stream, FLOP/s of a product."""
    typical: Mapping[str, float]
    """Median of the best rates of each round; beside `rates` it shows the spread."""
    measured_at: str
    """UTC, ISO 8601."""
    threads: int
    cores: int
    virtual: bool
    """Whether a hypervisor places the CPUs."""
    array_bytes: int
    cache_bytes: int
    cpu_share: float
    """Share of their wall time for which the measuring threads had a CPU."""
    runs: int = 1

    @property
    def is_final(self) -> bool:
        """Whether it may be used from the cache as it is.

        On a busy machine the envelope is measured again at each first use and only grows,
        until one run had the machine to itself or enough of them have been folded together.
        """
        return self.cpu_share >= _CALM_CPU_SHARE or self.runs >= _ENOUGH_RUNS

    def envelope(self, earlier: Calibration | None) -> Calibration:
        """Fold an earlier run of the same machine in: the higher of each rate."""
        if earlier is None:
            return self
        rates = {
            figure: max(self.rates.get(figure, 0.0), earlier.rates.get(figure, 0.0))
            for figure in sorted({*self.rates, *earlier.rates})
        }
        return evolve(
            self,
            rates=rates,
            typical={**earlier.typical, **self.typical},
            runs=self.runs + earlier.runs,
        )


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return where calibrations are kept; None when this user has no home."""
    if override := environment.get("ATREX_CACHE_DIR"):
        return Path(override) / "calibration"
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG rules say to ignore a relative one
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "atrex-eval" / "calibration"


def load(folder: Path | None, machine: Machine) -> Calibration | None:
    """Return the calibration kept for `machine`; None if there is none that can be trusted."""
    if folder is None:
        return None
    try:
        document: Any = json.loads((folder / f"{machine.identity}.json").read_text())
        if document["schema"] != _SCHEMA or document["machine"] != asdict(machine):
            return None
        found = document["calibration"]
        calibration = Calibration(
            rates=_rates(found["rates"]),
            typical=_rates(found["typical"]),
            measured_at=str(found["measured_at"]),
            threads=int(found["threads"]),
            cores=int(found["cores"]),
            virtual=bool(found["virtual"]),
            array_bytes=int(found["array_bytes"]),
            cache_bytes=int(found["cache_bytes"]),
            cpu_share=float(found["cpu_share"]),
            runs=int(found["runs"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    return calibration if calibration.rates else None


def save(folder: Path | None, machine: Machine, calibration: Calibration) -> None:
    """Keep `calibration`, whole or not at all. A folder that cannot be written is no error."""
    if folder is None:
        return
    document = {
        "schema": _SCHEMA,
        "machine": asdict(machine),
        "calibration": asdict(calibration),
    }
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "w") as stream:
                json.dump(document, stream, indent=1, allow_nan=False)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(folder / f"{machine.identity}.json")
        finally:
            Path(temporary).unlink(missing_ok=True)


def _rates(found: Mapping[str, Any]) -> dict[str, float]:
    rates = {str(figure): float(rate) for figure, rate in found.items()}
    if not all(math.isfinite(rate) and rate > 0 for rate in rates.values()):
        raise ValueError("a rate is not a positive number")
    return rates
