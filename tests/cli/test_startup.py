"""What a command may import: help answers at once, and listing loads no DSL."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from atrex_core.cli.app import _COMMANDS
from atrex_core.plugins.host import OWN_COMMANDS

_HEAVY = ("torch", "numba", "llvmlite", "triton", "cuda", "numpy", "cattrs")
_PLUGINS = tuple(entry.value for entry in metadata.entry_points(group="atrex_eval"))
_LATE = ("attr", "rich", "atrex_core.model", "atrex_core.plugins.host", *_PLUGINS)
"""What help needs nothing of."""
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
        pytest.param(("--help",), (*_HEAVY, *_LATE), id="help"),
        pytest.param(("--version",), (*_HEAVY, *_LATE), id="version"),
        pytest.param(("run", "--help"), _HEAVY[:-1], id="help of run"),
        pytest.param(
            ("list", "plugins", "--format", "json"),
            (*_HEAVY, "rich", "atrex_core.planning", "atrex_core.session"),
            id="list as json",
        ),
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


_MARKED = "from pathlib import Path\nPath(__file__).with_suffix('.imported').touch()\n"
_ADDS = """
from atrex_core import hookimpl


@hookimpl
def atrex_commands(cli):
    @cli.command("polish", help="Make it shine.")
    def polish():
        print("polished")
"""


def _with_plugin(cli: Any, files: Mapping[str, str], target: str) -> Any:
    """Return a command line that has one more plugin, `extra`, made of `files`."""
    site = Path(cli.folder) / "site"
    info = site / "extra-1.dist-info"
    info.mkdir(parents=True)
    for name, source in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[atrex_eval]\nextra = {target}\n")
    return cli.with_variables(PYTHONPATH=f"{cli.environment['PYTHONPATH']}:{site}")


@pytest.mark.parametrize(
    ("files", "target"),
    [
        pytest.param({"extra.py": _ADDS}, "extra", id="module"),
        pytest.param(
            {"extra/__init__.py": "from extra.ours import *", "extra/ours.py": _ADDS},
            "extra",
            id="from another module",
        ),
        pytest.param({"extra/__init__.py": "", "extra/in_it.py": _ADDS}, "extra.in_it", id="inner"),
        pytest.param(
            {
                "extra.py": "class Namespace:\n"
                + textwrap.indent(_ADDS, "    ").replace("(cli", "(self, cli")
                + "\nplugin = Namespace()"
            },
            "extra:plugin",
            id="object",
        ),
    ],
)
def test_help_lists_the_commands_of_plugins(
    cli: Any, files: Mapping[str, str], target: str
) -> None:
    having = _with_plugin(cli, files, target)

    helped, ran, mistyped = having.run("--help"), having.run("polish"), having.run("polsh")

    assert (helped.code, helped.err) == (0, "")
    assert "  polish     Make it shine.\n" in helped.out
    assert (ran.code, ran.out) == (0, "polished\n")
    assert "did you mean 'polish'?" in mistyped.err


def test_help_does_not_import_a_plugin_without_commands(cli: Any) -> None:
    having = _with_plugin(cli, {"extra.py": _MARKED}, "extra")
    imported = Path(having.folder) / "site" / "extra.imported"

    helped = having.run("--help")

    assert (helped.code, helped.err) == (0, "")
    assert not imported.exists()
    assert having.run("list", "plugins").code == 0
    assert imported.exists()


def test_help_works_beside_a_plugin_whose_commands_break(cli: Any) -> None:
    having = _with_plugin(cli, {"extra.py": f"{_ADDS}\nraise OSError('no card')"}, "extra")

    helped = having.run("--help")

    assert helped.code == 0
    assert helped.err == (
        "WARNING: plugin 'extra' (extra 1) was set aside in import: OSError: no card\n"
    )
    assert "  run " in helped.out
    assert "polish" not in helped.out


def test_version_is_the_installed_one(shared_cli: Any) -> None:
    ran = shared_cli.run("--version")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.strip().endswith(metadata.version("atrex-eval"))


def test_interrupt_while_importing_is_one_error(shared_cli: Any) -> None:
    site = shared_cli.folder / "interrupted"
    site.mkdir()
    (site / "click.py").write_text("raise KeyboardInterrupt\n")

    ran = shared_cli.with_variables(PYTHONPATH=str(site)).run("list", "plugins")

    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines() == ["error: interrupted", "hint: nothing was begun"]


def test_every_command_of_ours_is_known_to_the_plugin_host() -> None:
    assert set(_COMMANDS) == OWN_COMMANDS
