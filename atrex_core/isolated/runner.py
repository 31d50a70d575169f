"""Run the public half of problems where nothing else is: no package of ours, no pack.

Started as `python -I -B runner.py REQUEST_FD REPLY_FD`. Imports torch once, then answers each
request in a fork of itself, so that what one public half does to the process stays with it. Nothing
here imports `atrex_core`: what passes here runs wherever there is torch.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

Request = dict[str, Any]
"""Paths of the two files by name; axes, init, regimes, seed; inputs, container, outputs; dtypes: a
name for each of torch's; timeout_s."""
Run = dict[str, Any]
"""What came of one regime: see `_nothing_yet`. The last of a reply may say how it ended early."""
Stated = list[list[Any]]
"""Tensors, each as its name, dtype and shape."""

_ALLOWED = frozenset(sys.stdlib_module_names) | {"torch"}
_PR_SET_PDEATHSIG = 1
_LISTINGS = ("open", "os.listdir", "os.scandir")
_STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "socket.", "ctypes.")
_SYSTEM = ("/proc/cpuinfo", "/proc/meminfo", "/sys/devices", "/dev/null")
_PACKAGES = ("torch", "numpy", "sympy", "mpmath", "networkx", "typing_extensions", "packaging")
"""Torch, and what it imports late."""


def main(request_fd: int, reply_fd: int) -> None:
    """Answer requests, one JSON line each, until there are no more."""
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort leaves no file behind
    with os.fdopen(request_fd) as requests, os.fdopen(reply_fd, "w") as replies:
        for line in requests:
            runs = _forked(json.loads(line), ours=(request_fd, reply_fd))
            replies.write(json.dumps(runs) + "\n")
            replies.flush()


def _forked(request: Request, ours: tuple[int, int]) -> list[Run]:
    """Run one public half in a child, and say how it ended if it did not come to its end."""
    with os.fdopen(os.memfd_create("answer"), "w+") as answer:
        child = os.fork()
        if child == 0:
            _die_with_parent()
            for fd in ours:
                os.close(fd)
            for run in _runs(request):
                answer.write(json.dumps(run) + "\n")
                answer.flush()
            os._exit(0)
        status = _status(child, request["timeout_s"])
        answer.seek(0)
        runs: list[Run] = [json.loads(line) for line in answer]
    if len(runs) < len(request["regimes"]):
        runs.append(_nothing_yet(_end(status, request["timeout_s"])))
    return runs


def _status(child: int, timeout_s: float) -> int | None:
    """Wait for a child, and return how it ended: None where it had to be killed."""
    handle = os.pidfd_open(child)
    has_ended, _, _ = select.select([handle], [], [], timeout_s)
    os.close(handle)
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if has_ended else None


def _end(status: int | None, timeout_s: float) -> str:
    if status is None:
        return f"it gave no answer within {timeout_s} s"
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process exited with {status}"


def _nothing_yet(fault: str | None = None) -> Run:
    return {
        "fault": fault,  # what kept it from an answer
        "where": None,  # the innermost line that is not ours, if it raised
        "unlike": None,  # "inputs" or "outputs", found, stated: the first that are not as stated
        "touched": [],  # pairs: an event, and the place it was about or ""
        "digests": {},  # of the inputs, by name
    }


def _runs(request: Request) -> Iterator[Run]:
    """Yield what comes of each regime, whatever the public half raises in another."""
    own = os.getpid()
    torch.set_num_threads(1)
    _guard_imports({request["inputs.py"], request["reference.py"]})
    watch = _Watch(request)
    for regime in request["regimes"]:
        run = _nothing_yet()
        try:
            with watch.noting(run["touched"]):
                _try(request, regime, run)
        except BaseException as error:  # noqa: BLE001  (whatever it raises is the answer)
            run["fault"] = f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            for frame in (frame for frame in frames if frame.filename != __file__):
                run["where"] = f"{Path(frame.filename).name}:{frame.lineno}"
        if os.getpid() != own:
            os._exit(0)  # a fork made by the public half has come back here: it has no say
        yield run


def _try(request: Request, regime: str, run: Run) -> None:
    """Draw inputs in a regime and run the definition on them, if they are as stated."""
    make_inputs = _module("inputs", request["inputs.py"]).make_inputs
    model = _module("reference", request["reference.py"]).Model(**request["init"])
    inputs = make_inputs(**request["axes"], regime=regime, seed=request["seed"], device="cpu")
    found = _stated(inputs, request["dtypes"])
    if found != request["inputs"]:
        run["unlike"] = ["inputs", found, request["inputs"]]
        return
    run["digests"] = {name: _digest(tensor) for name, tensor in inputs.items()}
    with torch.no_grad():
        returned = model(**inputs)
    names = [name for name, _, _ in request["outputs"]]
    found = _stated(_named(returned, request["container"], names), request["dtypes"])
    if found != request["outputs"]:
        run["unlike"] = ["outputs", found, request["outputs"]]


def _guard_imports(files: set[str]) -> None:
    """Let the code in `files` import the standard library and torch, and nothing else."""
    load = builtins.__import__

    def guarded(name: str, globals: Any = None, *others: Any, **more: Any) -> ModuleType:  # noqa: A002  (Python's own)
        if (globals or {}).get("__file__") in files and name.partition(".")[0] not in _ALLOWED:
            raise ImportError(f"a public file imports {name!r}: it may use torch alone")
        return load(name, globals, *others, **more)

    builtins.__import__ = guarded


class _Watch:
    """Notes what is opened, started or connected to, whatever the source looks like.

    Files of the standard library, of torch and of the public half itself are no news.
    """

    def __init__(self, request: Request) -> None:
        files = (Path(request["inputs.py"]), Path(request["reference.py"]))
        own = {f"{os.path.realpath(file.parent)}/" for file in files}
        sites = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
        libraries = (sysconfig.get_path("stdlib"), str(Path(torch.__file__).parent))
        self._sites = tuple(map(os.path.realpath, sites))
        self._in_sites = (*own, *(f"{s}/{name}" for s in self._sites for name in _PACKAGES))
        self._elsewhere = (*own, *(f"{os.path.realpath(lib)}/" for lib in libraries), *_SYSTEM)
        self._touched: list[list[str]] | None = None
        sys.addaudithook(self._note)  # it cannot be taken away again

    @contextmanager
    def noting(self, touched: list[list[str]]) -> Iterator[None]:
        """Add pairs of an event and the place it is about, or "", to `touched`."""
        self._touched = touched
        try:
            yield
        finally:
            self._touched = None

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._touched is None:
            return
        if event in _LISTINGS:
            place = arguments[0]
            if isinstance(place, int) or place is None:
                return
            place = os.path.realpath(os.fsdecode(place))
            known = self._in_sites if place.startswith(self._sites) else self._elsewhere
            if not f"{place}/".startswith(known):
                self._touched.append([event, place])
        elif event.startswith(_STARTS):
            self._touched.append([event, ""])


def _module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named(returned: Any, container: str, names: list[str]) -> dict[str, Any]:
    """Return by name what `forward` returned, in the stated order; what is too much comes last."""
    match container:
        case "tensor":
            return {names[0]: returned}
        case "tuple":
            more = map(str, range(len(names), len(returned)))
            return dict(zip([*names, *more], returned, strict=False))
    known = {name: returned[name] for name in names if name in returned}
    return known | {name: returned[name] for name in returned if name not in known}


def _stated(tensors: dict[str, Any], dtypes: dict[str, str]) -> Stated:
    short = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    return [[n, dtypes.get(short[n], short[n]), list(t.shape)] for n, t in tensors.items()]


def _digest(tensor: Any) -> str:
    plain = tensor.clone(memory_format=torch.contiguous_format)  # strides of one element may be odd
    raw = plain.reshape(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
