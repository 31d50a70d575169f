"""Watches what triton launches, and can suppress it.

The same wrapper serves a real driver and a virtual one: it stands around the driver's launcher,
through which every way of launching leads. Imports triton when imported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Autotuner

from atrex_core import Launch

_autotuner: Any = Autotuner
_bench = _autotuner._bench
_KEPT = 1_000_000
"""Launches remembered between two clearings; a timing loop may make very many."""


class LaunchLog:
    """The launches of one worker."""

    def __init__(self, candidate: Path) -> None:
        self._candidate = candidate.resolve()
        self._launches: deque[Launch] = deque(maxlen=_KEPT)
        self._suppressed = 0
        self._trials = 0

    def seen(self) -> Sequence[Launch]:
        """Return the launches since the last `clear`."""
        return tuple(self._launches)

    def binaries(self) -> Sequence[str]:
        """Return the digest of every binary launched since the last `clear`, each once."""
        return tuple(dict.fromkeys(launch.binary or "" for launch in self._launches))

    def clear(self) -> None:
        """Forget the launches."""
        self._launches.clear()

    @contextmanager
    def suppressing(self) -> Iterator[None]:
        """Make launches no-ops, unrecorded. Compiling and loading go on."""
        self._suppressed += 1
        try:
            yield
        finally:
            self._suppressed -= 1

    def watch(self, driver: Any) -> None:
        """Stand between triton and the launcher of `driver`."""
        launcher_cls = driver.launcher_cls
        log = self

        def bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            # A search tries what the kernel will not be launched with: trials are no evidence.
            log._trials += 1
            try:
                return _bench(tuner, *args, **kwargs)
            finally:
                log._trials -= 1

        _autotuner._bench = bench

        class WatchedLauncher:
            def __init__(self, source: Any, metadata: Any) -> None:
                self._inner = launcher_cls(source, metadata)
                self._launch = log._describe(source, metadata)

            def __call__(self, *args: Any) -> Any:
                if log._suppressed:
                    return None
                if not log._trials:
                    log._launches.append(self._launch)
                return self._inner(*args)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        driver.launcher_cls = WatchedLauncher

    def _describe(self, source: Any, metadata: Any) -> Launch:
        code = getattr(getattr(getattr(source, "fn", None), "fn", None), "__code__", None)
        own = code is not None and Path(code.co_filename).resolve() == self._candidate
        return Launch(kernel=metadata.name, own=own, binary=metadata.hash)
