"""A machine with several devices: a second vendor's plugin, installed beside the first."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_PLUGIN = Path(__file__).parents[1] / "plugins" / "atrex-forge"
_KERNEL = '''
"""Submission {number}: right, and slow enough to be shared, or interrupted."""

import time

import torch

from atrex_acme import hammer


@hammer.kernel
def scaled_sum(row, x, y, out):
    out[row] = 2 * x[row] + y[row]


class Model(torch.nn.Module):
    def forward(self, x, y):
        time.sleep({seconds})
        out = torch.empty_like(x)
        scaled_sum[x.shape[0]](x, y, out)
        return out
'''


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the plugin with several devices is installed."""
    target = tmp_path_factory.mktemp("forge")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *offline, str(_PLUGIN)], check=True, timeout=120)
    return target


@pytest.fixture
def forge_cli(cli: Any, forge: Path) -> Any:
    """Return a command line that sees the devices `forge:0`, `forge:1` and `forge:2`."""
    path = f"{cli.environment['PYTHONPATH']}:{forge}"
    return cli.with_variables(PYTHONPATH=path, ATREX_BACKEND="tongs", ATREX_PROBLEM="forge_sum")


@pytest.fixture
def forge_here(acme_here: Path, forge: Path) -> Iterator[None]:
    """Make the devices visible in this process, and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(forge))
        patch.setenv("PYTHONPATH", str(forge), prepend=":")
        importlib.invalidate_caches()
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "atrex_forge"]:
        del sys.modules[name]


@pytest.fixture
def kernels() -> Callable[..., Path]:
    """Return what writes candidates: `kernels(folder, count, seconds)`, asleep in each call."""

    def kernels(parent: Path, count: int = 3, seconds: float = 0.03) -> Path:
        folder = parent / "forge_sum"
        folder.mkdir()
        for number in range(count):
            source = _KERNEL.format(number=number, seconds=seconds)
            (folder / f"c{number}.py").write_text(source)
        return folder

    return kernels
