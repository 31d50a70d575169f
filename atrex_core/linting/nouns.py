"""What a lint is asked for, and what it will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from atrex_core.config import Settings
from atrex_core.interfaces import Accelerator
from atrex_core.model import Device, Pack, Protocol, Scale
from atrex_core.model.lint import Finding, Task
from atrex_core.planning import Plan

HOST = "cpu"
"""The device on which problems are linted unless another is named: every machine has it."""


@frozen(kw_only=True)
class LintRequest:
    """Everything a lint can be told."""

    problems: tuple[str, ...] = ()
    """Globs; none selects all."""
    workloads: tuple[str, ...] = ()
    """Globs; none selects all."""
    protocols: tuple[Protocol, ...] = ()
    """None: every protocol that a problem has rules for."""
    scale: Scale | None = None
    """None takes what the device's accelerator is meant for."""
    spread: int | None = None
    """Only so many workloads of each problem, from the smallest to the largest."""
    device: str | None = None
    backend: str | None = None
    """Also try this backend's own kernels."""
    cases: int = 5
    seed: int | None = None
    """None draws one."""
    jobs: int | None = None
    """None: as many as the device can do side by side."""
    timeout_s: float = 120.0
    """For each thing that is tried."""
    journal: Path | None = None
    resume: bool = False
    """Skip what the journal holds already."""
    disabled_plugins: tuple[str, ...] = ()


@frozen(kw_only=True)
class LintPlan:
    """What a lint will do."""

    accelerator: Accelerator
    device: Device
    scale: Scale
    seed: int
    jobs: int
    packs: Mapping[str, Pack]
    """By problem."""
    tasks: tuple[Task, ...]
    """In the order they are begun: the largest first, so that no process ends long after others."""
    kernels: tuple[tuple[Settings, Plan], ...] = ()
    """What a backend's own kernels are tried on, by protocol."""
    unusable: tuple[Finding, ...] = ()
    """Problems that do not even say what there is to lint."""
    is_whole: bool = False
    """Whether every workload of this scale is among the tasks."""

    @property
    def kernel_files(self) -> Sequence[Path]:
        """The kernels that are tried, and everything that is beside them."""
        folders = (planned.backend.kernels for _, planned in self.kernels)
        tried = (candidate.path for _, planned in self.kernels for candidate, _ in planned.items)
        return tuple(dict.fromkeys([*(path for path in folders if path is not None), *tried]))

    @property
    def works_on_host(self) -> bool:
        """Whether tensors are the host's own."""
        return self.device.virtual or self.device.id == HOST
