"""A vendor's plugin installed for the tests, and the command line run as a user runs it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

_ROOT = Path(__file__).parents[1]
_PLUGIN = _ROOT / "tests" / "plugins" / "atrex-acme"
_COMMAND = Path(sys.executable).parent / "atrex-eval"
_SCRATCH = "atrex-worker-"


@frozen
class Ran:
    """A command line that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


@frozen
class Cli:
    """Runs `atrex-eval` in a folder of its own, and finds what it leaves behind."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str | Path, timeout_s: float = 120, **streams: Any) -> Ran:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        done = subprocess.run(
            self._command(arguments), timeout=timeout_s, check=False, **self._place, **streams
        )
        out, err = (text.decode() if text else "" for text in (done.stdout, done.stderr))
        return Ran(done.returncode, out, err)

    def start(self, *arguments: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        return subprocess.Popen(self._command(arguments), **self._place, **streams)

    def with_variables(self, **variables: str) -> Cli:
        return evolve(self, environment={**self.environment, **variables})

    def processes(self) -> dict[int, str]:
        """Return the processes that were started by us, or work in our folders, by their pid."""
        marks = (str(self.folder).encode(),)
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                seen = (place / "environ").read_bytes() + str((place / "cwd").readlink()).encode()
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if any(mark in seen for mark in marks) and int(place.name) != os.getpid():
                found[int(place.name)] = command
        return found

    def scratch(self) -> list[str]:
        """Return the scratch folders of workers that exist now."""
        return [path.name for path in Path(self.environment["TMPDIR"]).glob(f"{_SCRATCH}*")]

    def leftovers(self, within_s: float = 10.0) -> tuple[dict[int, str], list[str]]:
        """Return the processes and scratch folders that do not go away by themselves."""
        deadline = time.monotonic() + within_s
        while (left := (self.processes(), self.scratch())) != ({}, []):
            if time.monotonic() > deadline:
                return left
            time.sleep(0.02)
        return left

    def _command(self, arguments: tuple[str | Path, ...]) -> list[str]:
        return [str(_COMMAND), *map(str, arguments)]

    @property
    def _place(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": dict(self.environment), "stdin": subprocess.DEVNULL}


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the vendor's plugin is installed, as pip installs it."""
    target = tmp_path_factory.mktemp("acme")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *offline, str(_PLUGIN)], check=True, timeout=120)
    return target


@pytest.fixture(scope="session")
def make_cli(acme: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Cli]:
    """Return what makes a command line with the vendor's plugin installed."""
    cache = tmp_path_factory.mktemp("cache")  # one calibration of this machine is enough

    def make() -> Cli:
        folder = tmp_path_factory.mktemp("cli")
        temporary = folder / "tmp"
        temporary.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ATREX_", "PYTHON"))}
        variables = {
            "PYTHONPATH": f"{acme}:{folder / 'mark'}",
            "TMPDIR": str(temporary),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(cache),
        }
        return Cli(folder, {**kept, **variables})

    return make


@pytest.fixture
def cli(make_cli: Callable[[], Cli]) -> Cli:
    """Return a command line for one test."""
    return make_cli()


@pytest.fixture(scope="module")
def shared_cli(make_cli: Callable[[], Cli]) -> Cli:
    """Return a command line for the tests of a module."""
    return make_cli()


@pytest.fixture(scope="module")
def acme_here(acme: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the vendor's plugin visible in this process, and in those that it starts."""
    temporary = tmp_path_factory.mktemp("tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(acme))
        patch.setenv("PYTHONPATH", str(acme))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr("tempfile.tempdir", None)
        importlib.invalidate_caches()
        yield temporary
    for name in [name for name in sys.modules if name.partition(".")[0] == "atrex_acme"]:
        del sys.modules[name]
