"""Numba inside one worker: what was launched, what was compiled, what the compiler refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import define, field
from numba.core.errors import NumbaError

from atrex_backend_numba import compilations, launches
from atrex_backend_numba.compilations import CompileLog
from atrex_backend_numba.launches import LaunchLog
from atrex_core import BackendRuntime, KernelReport, Launch, RuntimeRequest, Stage

_MOST_MESSAGE = 4000
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LOCATION = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_BOILERPLATE = re.compile(r"Failed in \w+ mode pipeline|- Resolution failure for|During: |None$")


def start_runtime(request: RuntimeRequest) -> NumbaRuntime:
    """Watch Numba in this process, which is the candidate's from now on."""
    launch_log, compile_log = LaunchLog(), CompileLog(lambda: request.enter(Stage.COMPILE))
    launches.install(launch_log)
    compilations.install(compile_log, request.scratch / "numba-cache")
    return NumbaRuntime(request.candidate.resolve(), launch_log, compile_log)


@define(eq=False)
class NumbaRuntime(BackendRuntime):
    """What two logs know about one candidate."""

    candidate: Path
    launch_log: LaunchLog
    compile_log: CompileLog
    _own: dict[str, bool] = field(factory=dict, init=False)

    def launches(self) -> Sequence[Launch]:
        """Return the kernels that Python called since the last `clear_launches`."""
        digests = {
            id(kernel): compilations.digest_of(dispatcher)
            for kernel in self.launch_log.kernels
            if (dispatcher := launches.dispatcher_of(kernel)) is not None
        }
        return [
            Launch(
                kernel=code.co_name,
                own=self._is_own(code.co_filename),
                binary=digests.get(id(kernel)),
            )
            for kernel in self.launch_log.kernels
            if (code := launches.code_of(kernel))
        ]

    def clear_launches(self) -> None:
        """Forget the launches seen so far."""
        self.launch_log.clear()

    def knocked_out(self) -> AbstractContextManager[None]:
        """Make every call into compiled code a no-op that returns its output argument, or None."""
        return self.launch_log.suppressing()

    def compile_error(self, error: BaseException) -> str | None:
        """Return Numba's message, its first line the one that matters, for an error of its own."""
        return _message(error) if isinstance(error, NumbaError) else None

    def reports(self) -> Sequence[KernelReport]:
        """Return a report for each signature of the candidate's own kernels that were launched."""
        known = {}
        for kernel in self.launch_log.kernels:
            dispatcher = launches.dispatcher_of(kernel)
            if dispatcher is not None:
                known[id(dispatcher)] = dispatcher
        return tuple(self._reports(known.values()))

    def _reports(self, dispatchers: Iterable[compilations.Dispatcher]) -> Iterator[KernelReport]:
        for dispatcher in dispatchers:
            if self._is_own(dispatcher.py_func.__code__.co_filename):
                yield from self.compile_log.reports(dispatcher)

    def _is_own(self, filename: str) -> bool:
        """Return whether code from `filename` is the candidate's; symbolic links do not matter."""
        if filename not in self._own:
            self._own[filename] = Path(filename).resolve() == self.candidate
        return self._own[filename]


def _message(error: NumbaError) -> str:
    text = _COLOUR.sub("", str(error))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    telling = [line.strip() for line in lines if not _BOILERPLATE.match(line.strip())]
    summary = telling[0] if telling else "no message"
    if summary.endswith(":") and len(telling) > 1:
        summary = f"{summary} {telling[1].lstrip('> ')}"
    location = _LOCATION.search(text)
    where = f" (line {location['line']})" if location else ""
    return "\n".join([f"{type(error).__name__}: {summary}{where}", *lines])[:_MOST_MESSAGE]
