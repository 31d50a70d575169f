"""From what the user named to a list of candidates and workloads. No torch, no processes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from attrs import field, frozen
from attrs.validators import min_len

from atrex_core.candidates import find_candidates, read_candidate
from atrex_core.config import Settings
from atrex_core.device_choice import choose_devices
from atrex_core.errors import AtrexError, NothingToDo, Unavailable, UnknownName, UsageError
from atrex_core.interfaces import Accelerator, Backend, Problem
from atrex_core.model import Candidate, Device, Pack, Phase, Protocol, Scale, Weight, Workload
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.printable import one_line
from atrex_core.probe import PROBE_NAME, ProbeProblem
from atrex_core.profile_choice import check_profile
from atrex_core.suggest import listed

log = logging.getLogger(__name__)

NO_RULES = (
    f"--protocol {Protocol.STRICT} works for every problem; to give one other rules, let its "
    f"`under(protocol)` return a Problem that has them"
)
"""What to do where a problem has no rules for a protocol."""


@frozen(kw_only=True)
class Plan:
    """What a run will do, in order."""

    backend: Backend
    accelerator: Accelerator
    devices: tuple[Device, ...] = field(validator=min_len(1))
    """All of one kind: see `choose_devices`."""
    scale: Scale
    targets: tuple[str, ...]
    items: tuple[tuple[Candidate, tuple[Workload, ...]], ...]
    problems: tuple[Problem, ...]
    """Every problem of the selected pack, chosen or not: a missing operator scores 0."""

    @property
    def device(self) -> Device:
        """The first device, which stands for the others where only the kind matters."""
        return self.devices[0]

    @property
    def pack(self) -> Pack:
        """The pack that the run scores: that of its first candidate."""
        first = self.items[0][0].problem
        return next(problem.pack for problem in self.problems if problem.name == first)

    def __len__(self) -> int:
        return sum(len(workloads) for _, workloads in self.items)

    def __iter__(self) -> Iterator[tuple[Candidate, Workload]]:
        for candidate, workloads in self.items:
            for workload in workloads:
                yield candidate, workload


def choose_backend(host: PluginHost, name: str | None) -> Backend:
    """Return the backend called `name`, or the installed one that is meant as the default.

    Raises:
        UnknownName: there is no such backend.
        UsageError: none was named and none is the default.
    """
    if name is not None:
        return host.backends[name]
    if host.default_backend is not None:
        return host.default_backend
    hint = f"use --backend NAME; available: {listed(host.backends.names)}"
    raise UsageError("no backend was named", hint=hint)


def choose_targets(backend: Backend, device: Device, named: Sequence[str]) -> tuple[str, ...]:
    """Return the architectures the compile gate also builds for.

    Raises:
        UnknownName: the backend cannot compile for one of them.
    """
    for target in named:
        if target not in backend.targets:
            raise UnknownName(
                f"backend {backend.name!r} cannot compile for target {target!r}",
                hint=f"targets: {', '.join(backend.targets) or 'none'}",
            )
    if named:
        return tuple(dict.fromkeys(named))
    return backend.default_targets if device.virtual else ()


def plan(host: PluginHost, settings: Settings, paths: Sequence[Path]) -> Plan:
    """Decide what a run does, or say in one error why it can do nothing.

    Raises:
        UnknownName, UsageError, Unavailable: see the functions above and `choose_devices`.
        NothingToDo: the selection is empty.
    """
    backend = choose_backend(host, settings.backend)
    backend.check_available()
    accelerator, devices = choose_devices(host, backend, settings.device)
    check_profile(host, devices[0], settings.profile)  # a wrong one is found out before the work
    scale = settings.scale or accelerator.default_scale
    chosen = host.problems.select(*settings.problem)
    candidates = list(find_candidates(host, backend, chosen, paths))
    items = []
    for candidate in candidates:
        check_problem(host, host.problems[candidate.problem])
        problem_under(host, candidate.problem, settings.protocol)
        workloads = _workloads(host.problems[candidate.problem], scale, settings.workload)
        if workloads:
            items.append((candidate, workloads))
    if not items:
        raise NothingToDo(
            _why_empty(backend, candidates, paths, settings),
            hint=(
                "`atrex-eval problems show NAME` lists a problem's workloads"
                if candidates
                else "`atrex-eval list problems` shows names; a candidate is named <problem>.py"
            ),
        )
    is_scored = scale is Scale.FULL and not settings.problem
    return Plan(
        backend=backend,
        accelerator=accelerator,
        devices=devices,
        scale=scale,
        targets=choose_targets(backend, devices[0], settings.targets),
        items=tuple(items),
        problems=tuple(_sound(host, {c.problem for c, _ in items}, is_whole=is_scored)),
    )


def check_problem(host: PluginHost, problem: Problem) -> None:
    """Find out whether a problem says of itself what everything else relies on.

    Raises:
        PluginError: it does not; the message names it and its plugin.
    """
    with blaming(host.problems, problem.name):
        pack: object = problem.pack
        if not isinstance(pack, Pack):
            raise TypeError(f"its pack is {pack!r}")
        workloads: object = problem.workloads
        if not isinstance(workloads, Sequence) or isinstance(workloads, str | bytes):
            raise TypeError(f"its workloads are {workloads!r}")
        for workload in workloads:
            if not isinstance(workload, Workload):
                raise TypeError(f"one of its workloads is {workload!r}")
        phases: object = problem.phases
        if not isinstance(phases, tuple) or not all(isinstance(p, Phase) for p in phases):
            raise TypeError(f"its phases are {phases!r}")
        importance: object = problem.importance
        if not isinstance(importance, int | float) or not 0 <= importance < math.inf:
            raise ValueError(f"its importance is {importance!r}")
        for id_, weight in problem.workload_weights().items():
            if not isinstance(weight, Weight) or not 0 <= weight.share < math.inf:
                raise ValueError(f"the weight of its workload {id_!r} is {weight!r}")
        summary: object = problem.summary
        if not isinstance(summary, str):
            raise TypeError(f"its summary is {summary!r}")


def problem_under(host: PluginHost, name: str, protocol: Protocol) -> Problem:
    """Return a problem as `protocol` judges it.

    Raises:
        NothingToDo: it has no rules for that protocol.
    """
    with blaming(host.problems, name):
        problem = host.problems[name].under(protocol)
    if problem is None:
        raise NothingToDo(
            f"problem {name!r} has no rules for the {protocol} protocol",
            hint=NO_RULES,
        )
    return problem


def _sound(host: PluginHost, chosen: set[str], *, is_whole: bool) -> Iterator[Problem]:
    """Yield every problem but the broken ones of plugins that this run does not score."""
    scored = {host.problems.origins[name] for name in chosen}
    if is_whole:
        for broken in host.problems.broken.values():
            if broken.origin in scored:
                raise broken.refusal()
    for problem in host.problems:
        try:
            check_problem(host, problem)
        except AtrexError as error:
            if host.problems.origins[problem.name] in scored:
                raise
            log.warning("%s", one_line(str(error)))
        else:
            yield problem


def probe_plan(backend: Backend, accelerator: Accelerator, device: Device) -> Plan:
    """Return a plan that runs a backend's own tiny kernel on one device.

    Raises:
        Unavailable: the backend ships no such kernel.
    """
    path = backend.kernels / f"{PROBE_NAME}.py" if backend.kernels else None
    if path is None or not path.is_file():
        raise Unavailable(f"backend {backend.name!r} ships no {PROBE_NAME}.py to try")
    problem = ProbeProblem()
    candidate = read_candidate(path, problem.name, backend.name, submission=backend.name)
    return Plan(
        backend=backend,
        accelerator=accelerator,
        devices=(device,),
        scale=Scale.SMOKE,
        targets=(),
        items=((candidate, tuple(problem.select(Scale.SMOKE))),),
        problems=(problem,),
    )


def _why_empty(
    backend: Backend, candidates: Sequence[Candidate], paths: Sequence[Path], settings: Settings
) -> str:
    if candidates:
        return f"no workload matches {', '.join(settings.workload)!r} at this scale"
    if paths:
        return f"no candidate for the selected problems in {', '.join(map(str, paths))}"
    return f"backend {backend.name!r} ships no kernel for the selected problems"


def _workloads(problem: Problem, scale: Scale, globs: Sequence[str]) -> tuple[Workload, ...]:
    found = problem.select(scale)
    if not globs:
        return tuple(found)
    return tuple(w for w in found if any(fnmatchcase(w.id, glob) for glob in globs))
