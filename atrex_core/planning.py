"""From what the user named to a list of candidates and workloads. No torch, no processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from attrs import frozen

from atrex_core.config import Settings
from atrex_core.errors import NothingToDo, Unavailable, UnknownName, UsageError
from atrex_core.interfaces import Accelerator, Backend, Problem
from atrex_core.model import Candidate, Device, Pack, Scale, Workload
from atrex_core.plugins import PluginHost
from atrex_core.probe import PROBE_NAME, ProbeProblem
from atrex_core.suggest import did_you_mean, listed

_MOST_SOURCE_BYTES = 4 * 2**20


@frozen(kw_only=True)
class Plan:
    """What a run will do, in order."""

    backend: Backend
    accelerator: Accelerator
    device: Device
    scale: Scale
    targets: tuple[str, ...]
    items: tuple[tuple[Candidate, tuple[Workload, ...]], ...]
    problems: tuple[Problem, ...]
    """Every problem of the selected pack, chosen or not: a missing operator scores 0."""

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


def choose_device(
    host: PluginHost, backend: Backend, name: str | None
) -> tuple[Accelerator, Device]:
    """Return the device to run on: the one asked for, else the first real, else a virtual one.

    Raises:
        UnknownName: no accelerator knows the name.
        Unavailable: it is not here, or this backend cannot use it.
    """
    if name is not None:
        accelerator, device = find_device(host, name)
        _check_supported(backend, accelerator, device)
        return accelerator, device
    for kind in backend.accelerators:
        if kind not in host.accelerators:
            continue
        accelerator = host.accelerators[kind]
        for device in accelerator.devices():
            return accelerator, device
    for arch in backend.virtual_targets:
        return find_device(host, f"virtual:{arch}")
    reasons = [
        host.accelerators[k].absence() for k in backend.accelerators if k in host.accelerators
    ]
    raise Unavailable(
        f"backend {backend.name!r} has no device here: {'; '.join(reasons) or 'no accelerator'}",
        hint="`atrex-eval doctor` shows what works on this machine",
    )


def find_device(host: PluginHost, device_id: str) -> tuple[Accelerator, Device]:
    """Return the device that any accelerator knows as `device_id`.

    Raises:
        Unavailable: the accelerator exists, the device does not.
        UnknownName: no accelerator knows such a name.
    """
    for accelerator in host.accelerators:
        device = accelerator.device(device_id)
        if device is not None:
            return accelerator, device
    kind = device_id.partition(":")[0]
    for accelerator in host.accelerators:
        if accelerator.name == kind:
            present = ", ".join(device.id for device in accelerator.devices())
            raise Unavailable(
                f"device {device_id!r} is not available here: "
                f"{f'there is only {present}' if present else accelerator.absence()}",
                hint="see `atrex-eval list devices`",
            )
    known = [device.id for accelerator in host.accelerators for device in accelerator.devices()]
    raise UnknownName(f"no device is named {device_id!r}", hint=did_you_mean(device_id, known))


def _check_supported(backend: Backend, accelerator: Accelerator, device: Device) -> None:
    if device.virtual:
        if device.arch in backend.virtual_targets:
            return
        offers = ", ".join(f"virtual:{arch}" for arch in backend.virtual_targets) or "none"
        raise Unavailable(
            f"backend {backend.name!r} cannot stand in for {device.arch!r}",
            hint=f"virtual devices it offers: {offers}",
        )
    if accelerator.name not in backend.accelerators:
        raise Unavailable(
            f"backend {backend.name!r} does not run on {device.id!r}",
            hint=f"it runs on: {', '.join(backend.accelerators)}",
        )


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
        UnknownName, UsageError, Unavailable: see the functions above.
        NothingToDo: the selection is empty.
    """
    backend = choose_backend(host, settings.backend)
    backend.check_available()
    accelerator, device = choose_device(host, backend, settings.device)
    if settings.profile is not None:
        _ = host.profiles[settings.profile]  # a wrong name is found out before the work
    scale = settings.scale or accelerator.default_scale
    chosen = host.problems.select(*settings.problem)
    candidates = list(find_candidates(host, backend, chosen, paths))
    items = []
    for candidate in candidates:
        workloads = _workloads(host.problems[candidate.problem], scale, settings.workload)
        if workloads:
            items.append((candidate, workloads))
    if not items:
        raise NothingToDo(
            _why_empty(backend, candidates, paths, settings),
            hint="`atrex-eval list problems` shows names; a candidate is named <problem>.py",
        )
    return Plan(
        backend=backend,
        accelerator=accelerator,
        device=device,
        scale=scale,
        targets=choose_targets(backend, device, settings.targets),
        items=tuple(items),
        problems=tuple(host.problems),
    )


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
        device=device,
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


# -- candidates --------------------------------------------------------------------------------


def find_candidates(
    host: PluginHost, backend: Backend, problems: Sequence[Problem], paths: Sequence[Path]
) -> Iterator[Candidate]:
    """Yield the candidates in `paths`, or the backend's own kernels when there are none.

    A file is named after its problem, or lies in a folder that is. When exactly one problem
    is selected, a file may have any name.

    Raises:
        UsageError: a path cannot be read, or it cannot be told which problem it solves.
    """
    names = {problem.name for problem in problems}
    if not paths:
        folder = backend.kernels
        for problem in problems:
            path = folder / f"{problem.name}.py" if folder else None
            if path is not None and path.is_file():
                yield read_candidate(path, problem.name, backend.name, submission=backend.name)
        return
    for path in paths:
        if path.is_dir():
            yield from _in_folder(path, names, backend.name)
        elif path.is_file():
            problem_name = _problem_of(path, host, problems)
            if problem_name in names:
                yield read_candidate(path, problem_name, backend.name, submission=path.stem)
        else:
            raise UsageError(
                f"no such file or folder: {str(path)!r}",
                hint="a candidate is a .py file that exposes `Model`",
            )


def _in_folder(folder: Path, names: set[str], backend: str) -> Iterator[Candidate]:
    for path in sorted(folder.rglob("*.py")):
        if path.stem in names:
            label = "/".join(path.relative_to(folder).with_suffix("").parts[:-1]) or folder.name
            yield read_candidate(path, path.stem, backend, submission=label)
        elif path.parent.name in names:
            yield read_candidate(path, path.parent.name, backend, submission=path.stem)


def _problem_of(path: Path, host: PluginHost, chosen: Sequence[Problem]) -> str:
    for name in (path.stem, path.resolve().parent.name):
        if name in host.problems:
            return name
    if len(chosen) == 1:
        return chosen[0].name
    raise UsageError(
        f"cannot tell which problem {str(path)!r} solves",
        hint="name the file after its problem, or select one with --problem NAME",
    )


def read_candidate(path: Path, problem: str, backend: str, *, submission: str) -> Candidate:
    """Read a candidate's file.

    Raises:
        UsageError: it cannot be read, or is absurdly large.
    """
    try:
        if path.stat().st_size > _MOST_SOURCE_BYTES:
            raise UsageError(
                f"{str(path)!r} is larger than {_MOST_SOURCE_BYTES >> 20} MiB",
                hint="a candidate is one source file",
            )
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {(error.strerror or '').lower()}",
            hint="check the path and its rights",
        ) from error
    return Candidate(name=submission, problem=problem, backend=backend, path=path, source=source)
