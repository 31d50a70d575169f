"""The handle on the interpreter in which public halves run alone: see `runner`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from attrs import define, frozen

from atrex_core.interfaces import Problem
from atrex_core.model import DType, TensorSpec, Workload
from atrex_core.tensors import torch_dtype

_RUNNER = Path(__file__).with_name("runner.py")
_EXIT_S = 3.0

Stated = Sequence[Sequence[Any]]
"""Tensors, each as its name, dtype and shape."""


class Ended(Exception):
    """The interpreter itself is gone, not only the fork in which a public half ran."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the isolated interpreter ended with {status}")
        self.status = status


@frozen(kw_only=True)
class Question:
    """One workload of a problem, to be run in a process of its own."""

    problem: Problem
    workload: Workload
    inputs: Path
    """The file with `make_inputs`."""
    reference: Path
    """The file with `Model`."""
    regimes: Sequence[str]
    seed: int
    timeout_s: int
    """For all regimes."""


@frozen(kw_only=True)
class Unlike:
    """The first tensors that are not what the problem states."""

    are_inputs: bool
    """Whether they were drawn; otherwise they were returned."""
    found: Stated
    stated: Stated


@frozen(kw_only=True)
class Answer:
    """What became of a question in one regime."""

    fault: str | None
    """What the public half did instead of an answer."""
    where: str | None
    """The line of code that raised it, where one did."""
    unlike: Unlike | None
    touched: Sequence[tuple[str, str]]
    """What it opened, by event and place, and what it started or connected to, by event and ""."""
    digests: Mapping[str, str]
    """Of the inputs, by name."""


@define(eq=False)
class Interpreter:
    """An isolated interpreter, started when it is first needed. Close it."""

    printed: IO[bytes] | None = None
    """Where all that is printed goes; None stands for our own streams."""
    _process: subprocess.Popen[bytes] | None = None
    _requests: IO[str] | None = None
    _replies: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: Question) -> Mapping[str, Answer]:
        """Run a public half: draw inputs in every regime, and run the definition on them.

        Returns what became of it by regime, the last of them being that in which its process ended.

        Raises:
            Ended: the interpreter cannot run here, or was ended by somebody else.
        """
        if self._process is None:
            self._start()
        assert self._process is not None, "started above"
        assert self._requests is not None, "started above"
        assert self._replies is not None, "started above"
        try:
            self._requests.write(json.dumps(_request(question)) + "\n")
            self._requests.flush()
            line = self._replies.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            process = self._process
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_EXIT_S)
            self.close()
            raise Ended(process.returncode)
        runs = json.loads(line)
        return dict(zip(question.regimes, map(_answer, runs), strict=False))

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

    def _start(self) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_RUNNER), str(theirs_in), str(theirs_out)],
            pass_fds=[theirs_in, theirs_out],
            stdin=subprocess.DEVNULL,
            stdout=self.printed,
            stderr=self.printed,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests, self._replies = os.fdopen(ours_out, "w"), os.fdopen(ours_in)


def _request(question: Question) -> Mapping[str, Any]:
    problem, workload = question.problem, question.workload
    return {
        "inputs.py": str(question.inputs),
        "reference.py": str(question.reference),
        "axes": dict(workload.axes),
        "init": dict(workload.init),
        "regimes": list(question.regimes),
        "seed": question.seed,
        "inputs": _stated(problem.inputs(workload)),
        "container": str(problem.container),
        "outputs": _stated(problem.outputs(workload)),
        "dtypes": {str(torch_dtype(known)).removeprefix("torch."): str(known) for known in DType},
        "timeout_s": question.timeout_s,
    }


def _stated(specs: Sequence[TensorSpec]) -> list[tuple[str, str, list[int]]]:
    return [(spec.name, str(spec.dtype), list(spec.shape)) for spec in specs]


def _answer(run: Mapping[str, Any]) -> Answer:
    unlike = None
    if run["unlike"] is not None:
        which, found, stated = run["unlike"]
        unlike = Unlike(are_inputs=which == "inputs", found=found, stated=stated)
    return Answer(
        fault=run["fault"],
        where=run["where"],
        unlike=unlike,
        touched=[(event, place) for event, place in run["touched"]],
        digests=run["digests"],
    )
