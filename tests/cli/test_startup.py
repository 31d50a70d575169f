"""What a command may import: help answers at once, and listing loads no DSL."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from atrex_core.cli.app import _COMMANDS
from atrex_core.plugins.host import OWN_COMMANDS

_HEAVY = ("torch", "numba", "llvmlite", "triton", "cuda", "numpy", "cattrs")
_SHOW = """
import json, sys
from atrex_core.cli.app import invoke
code = invoke(sys.argv[1:])
print(json.dumps([int(code), sorted(sys.modules)]), file=sys.stderr)
"""


def _imported(cli: Any, *arguments: str) -> tuple[int, set[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, *arguments],
        cwd=cli.folder,
        env=dict(cli.environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules), done.stdout


@pytest.mark.parametrize(
    ("arguments", "banned"),
    [
        pytest.param(("--help",), (*_HEAVY, "rich"), id="help"),
        pytest.param(("--version",), (*_HEAVY, "rich"), id="version"),
        pytest.param(("run", "--help"), _HEAVY[:-1], id="help of run"),
        pytest.param(("list", "plugins", "--format", "json"), (*_HEAVY, "rich"), id="list as json"),
        pytest.param(
            ("list", "plugins"), (*_HEAVY, "rich.progress", "rich.live", "rich.markdown"), id="list"
        ),
        pytest.param(("list", "problems"), _HEAVY, id="problems"),
        pytest.param(("list", "devices"), _HEAVY, id="devices"),
    ],
)
def test_command_imports_nothing_heavy(
    shared_cli: Any, arguments: tuple[str, ...], banned: tuple[str, ...]
) -> None:
    code, modules, out = _imported(shared_cli, *arguments)

    assert code == 0
    assert out
    assert modules & set(banned) == set()


def test_help_lists_every_command(shared_cli: Any) -> None:
    ran = shared_cli.run("--help")

    assert (ran.code, ran.err) == (0, "")
    for name in ("run", "list", "doctor", "journal", "repro"):
        assert f"  {name} " in ran.out


def test_version_is_the_installed_one(shared_cli: Any) -> None:
    from importlib.metadata import version

    ran = shared_cli.run("--version")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.strip().endswith(version("atrex-eval"))


def test_interrupt_while_importing_is_one_error(shared_cli: Any) -> None:
    site = shared_cli.folder / "interrupted"
    site.mkdir()
    (site / "click.py").write_text("raise KeyboardInterrupt\n")

    ran = shared_cli.with_variables(PYTHONPATH=str(site)).run("list", "plugins")

    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines() == ["error: interrupted", "hint: nothing was begun"]


def test_every_command_of_ours_is_known_to_the_plugin_host() -> None:
    assert set(_COMMANDS) == OWN_COMMANDS
