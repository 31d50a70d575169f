"""Run the public half of problems where nothing else is: no package of ours, no pack.

Started as `python -I alone.py REQUEST_FD REPLY_FD`. Imports torch once, then answers each request
in a fork of itself, so that what one public half does to the process stays with it. Nothing here
imports `atrex_core`: what passes here runs wherever there is torch.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import importlib.util
import json
import os
import signal
import sys
import traceback
from types import ModuleType
from typing import Any

import torch

Request = dict[str, Any]
"""Paths of the two files by name; axes, init, regimes, seed; container, outputs; timeout_s."""
Reply = dict[str, Any]
"""Either a fault, or the digests of the inputs by regime and name."""

_ALLOWED = frozenset(sys.stdlib_module_names) | {"torch"}
_PR_SET_PDEATHSIG = 1


def main(request_fd: int, reply_fd: int) -> None:
    """Answer requests, one JSON line each, until there are no more."""
    _die_with_parent()
    with os.fdopen(request_fd) as requests, os.fdopen(reply_fd, "w") as replies:
        for line in requests:
            replies.write(json.dumps(_forked(json.loads(line))) + "\n")
            replies.flush()


def _forked(request: Request) -> Reply:
    """Run one public half in a child, and say how it ended if it gives no answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _die_with_parent()
        signal.alarm(request["timeout_s"])  # the default action ends even what never returns
        os.close(reading)
        with os.fdopen(writing, "w") as answer:
            json.dump(_answered(request), answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0 and text:
        reply: Reply = json.loads(text)
        return reply
    if status == -signal.SIGALRM:
        return {"fault": f"it gave no answer within {request['timeout_s']} s"}
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"
    return {"fault": f"its process {how}"}


def _answered(request: Request) -> Reply:
    try:
        return {"fault": None, "digests": _run(request)}
    except BaseException as error:  # noqa: BLE001  (whatever the public half raises is the answer)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.split(last.filename)[1]}:{last.lineno}"
        return {"fault": f"{type(error).__name__}: {error} (at {where})"}


def _run(request: Request) -> dict[str, dict[str, str]]:
    """Draw inputs in every regime, run the definition on them, and return the inputs' digests."""
    torch.set_num_threads(1)
    _guard_imports({request["inputs.py"], request["reference.py"]})
    make_inputs = _module("inputs", request["inputs.py"]).make_inputs
    model = _module("reference", request["reference.py"]).Model(**request["init"])
    digests = {}
    for regime in request["regimes"]:
        axes, seed = request["axes"], request["seed"]
        inputs = make_inputs(**axes, regime=regime, seed=seed, device="cpu")
        digests[regime] = {name: _digest(tensor) for name, tensor in inputs.items()}
        with torch.no_grad():
            returned = model(**inputs)
        found = _shapes(returned, request["container"])
        if found != request["outputs"]:
            raise ValueError(f"forward returns {found}, declared are {request['outputs']}")
    return digests


def _guard_imports(files: set[str]) -> None:
    """Let the code in `files` import the standard library and torch, and nothing else."""
    load = builtins.__import__

    def guarded(name: str, globals: Any = None, *others: Any, **more: Any) -> ModuleType:  # noqa: A002  (Python's own)
        if (globals or {}).get("__file__") in files and name.partition(".")[0] not in _ALLOWED:
            raise ImportError(f"a public file imports {name!r}: it may use torch alone")
        return load(name, globals, *others, **more)

    builtins.__import__ = guarded


def _module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shapes(returned: Any, container: str) -> Any:
    """Return the shapes of what `forward` returned, by name where it has names."""
    match container:
        case "tensor":
            return [list(returned.shape)]
        case "tuple":
            return [list(tensor.shape) for tensor in returned]
    return {name: list(tensor.shape) for name, tensor in returned.items()}


def _digest(tensor: Any) -> str:
    plain = tensor.clone(memory_format=torch.contiguous_format)  # strides of one element may be odd
    raw = plain.reshape(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
