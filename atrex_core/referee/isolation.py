"""The handle on the interpreter in which public halves run alone: see `alone`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from attrs import define

from atrex_core.interfaces import Problem
from atrex_core.model import Container, Workload
from atrex_core.referee.seals import raw

_SCRIPT = Path(__file__).with_name("alone.py")
_NAMES = ("inputs.py", "reference.py")


@define(eq=False)
class Alone:
    """An isolated interpreter, started when it is first needed."""

    timeout_s: float
    _process: subprocess.Popen[bytes] | None = None
    _requests: IO[str] | None = None
    _replies: IO[str] | None = None

    def run(
        self, problem: Problem, workload: Workload, *, regimes: tuple[str, ...], seed: int
    ) -> str | Mapping[str, Mapping[str, str]]:
        """Run a problem's public half on one workload.

        Returns the digests of the inputs it drew, by regime and name, or what went wrong.
        """
        files = {path.name: str(path) for path in problem.public_files}
        outputs = problem.outputs(workload)
        shapes = [list(spec.shape) for spec in outputs]
        by_name = {spec.name: list(spec.shape) for spec in outputs}
        reply = self._ask(
            {
                **{name: files[name] for name in _NAMES},
                "axes": dict(workload.axes),
                "init": dict(workload.init),
                "regimes": list(regimes),
                "seed": seed,
                "container": str(problem.container),
                "outputs": by_name if problem.container is Container.DICT else shapes,
                "timeout_s": max(1, round(self.timeout_s)),
            }
        )
        fault = reply["fault"]
        return str(fault) if fault is not None else reply["digests"]

    def close(self) -> None:
        """End the interpreter."""
        for pipe in (self._requests, self._replies):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._requests = self._replies = None

    def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._process is None:
            self._start()
        assert self._requests is not None, "started above"
        assert self._replies is not None, "started above"
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            line = self._replies.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return {"fault": "the isolated interpreter ended early"}
        reply: Mapping[str, Any] = json.loads(line)
        return reply

    def _start(self) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT), str(theirs_in), str(theirs_out)],
            pass_fds=[theirs_in, theirs_out],
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests, self._replies = os.fdopen(ours_out, "w"), os.fdopen(ours_in)


def digests(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return what `alone` says of the same tensors."""
    return {
        name: hashlib.sha256(raw(tensor).numpy().tobytes()).hexdigest()
        for name, tensor in inputs.items()
    }
