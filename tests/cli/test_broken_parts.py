"""Plugins whose accelerators, problems and commands break when they are asked, not when loaded."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer", "--until", "compile")

_ACCELERATOR = """
    from atrex_acme.accelerator import AnvilAccelerator
    from atrex_core import hookimpl

    class Broken(AnvilAccelerator):
        name = "aaa"

        def devices(self):
            print("printed")
            raise RuntimeError("driver is gone")

    @hookimpl
    def atrex_accelerators():
        return [Broken()]
"""

_PROBLEM = """
    from atrex_acme.problem import ScaledSum
    from atrex_core import hookimpl

    class Broken(ScaledSum):
        name = "aaa_problem"
        ATTRIBUTE = None

    @hookimpl
    def atrex_problems():
        return [Broken()]
"""

_COMMAND = """
    from atrex_core import hookimpl

    @hookimpl
    def atrex_commands(cli):
        @cli.command("run")
        def mine():
            print("mine")
"""

_BROKEN = "accelerator 'aaa' of plugin 'odd' (odd 1) is broken: RuntimeError: driver is gone"


@pytest.fixture
def with_plugin(cli: Any) -> Callable[[str], Any]:
    """Return what installs a plugin called `odd`, and makes a command line that has it."""

    def with_plugin(source: str) -> Any:
        site = Path(cli.folder) / "site"
        info = site / "odd-1.dist-info"
        info.mkdir(parents=True)
        (site / "odd_plugin.py").write_text(textwrap.dedent(source))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[atrex_eval]\nodd = odd_plugin\n")
        return cli.with_variables(PYTHONPATH=f"{cli.environment['PYTHONPATH']}:{site}")

    return with_plugin


@pytest.mark.parametrize("device", [(), ("--device", "anvil:0"), ("--device", "anvil")])
def test_broken_accelerator_leaves_the_others_alone(
    with_plugin: Any, device: tuple[str, ...]
) -> None:
    ran = with_plugin(_ACCELERATOR).run(*_HAMMER, *device, "--format", "json")

    assert (ran.code, ran.err) == (0, "")
    assert [found["device"] for found in ran.document["evaluations"]] == ["anvil:0"]


@pytest.mark.parametrize("device", ["aaa:0", "aaa", "zzz:0"])
def test_broken_accelerator_is_named_when_nothing_else_fits(with_plugin: Any, device: str) -> None:
    ran = with_plugin(_ACCELERATOR).run(*_HAMMER, "--device", device)

    assert (ran.code, ran.out) == (3, "")
    assert f"WARNING: {_BROKEN}" in ran.err.splitlines()
    assert ran.err.splitlines()[-2:] == [
        f"error: {_BROKEN}",
        "hint: update it, or run with --disable-plugin odd",
    ]


def test_absent_device_of_a_working_accelerator_is_what_is_said(with_plugin: Any) -> None:
    ran = with_plugin(_ACCELERATOR).run(*_HAMMER, "--device", "anvil:7")

    assert (ran.code, ran.out) == (4, "")
    assert "error: device 'anvil:7' is not available here: there is only anvil:0" in ran.err


@pytest.mark.parametrize("kind", ["devices", "accelerators"])
def test_list_has_a_row_for_a_broken_accelerator(with_plugin: Any, kind: str) -> None:
    cli = with_plugin(_ACCELERATOR)

    listed = cli.run("list", kind, "--format", "json")
    table = cli.run("list", kind)

    rows = {row["name"]: row for row in listed.document[kind]}
    assert (listed.code, table.code) == (0, 0)
    assert rows["aaa"]["fault"] == _BROKEN
    healthy = "anvil:0" if kind == "devices" else "anvil"
    assert rows[healthy]["fault"] is None
    assert _BROKEN in table.out


def test_doctor_finds_a_broken_accelerator(with_plugin: Any) -> None:
    cli = with_plugin(_ACCELERATOR.replace('"aaa"', '"anvil2"') + _BACKEND_OF_IT)

    ran = cli.run("doctor", "--backend", "sledge", "--format", "json")

    assert ran.code == 3
    (check,) = ran.document["checks"]
    assert check == {
        "check": "accelerator",
        "backend": "",
        "device": "anvil2",
        "status": "FAIL",
        "why": _BROKEN.replace("aaa", "anvil2"),
    }


_BACKEND_OF_IT = """
    from atrex_acme.backend import HammerBackend

    class Sledge(HammerBackend):
        name = "sledge"
        accelerators = ("anvil2",)

    @hookimpl
    def atrex_backends():
        return [Sledge()]
"""


@pytest.mark.parametrize("attribute", ["workloads", "pack", "phases", "importance", "summary"])
def test_broken_problem_is_named_in_the_list(with_plugin: Any, attribute: str) -> None:
    ran = with_plugin(_PROBLEM.replace("ATTRIBUTE", attribute)).run("list", "problems")

    assert (ran.code, ran.out) == (3, "")
    error, hint = ran.err.splitlines()
    assert error.startswith("error: problem 'aaa_problem' of plugin 'odd' (odd 1) is broken: ")
    assert error.split(": ")[-1].split()[:2] == ["its", attribute]
    assert hint == "hint: update it, or run with --disable-plugin odd"


def test_broken_problem_that_is_asked_for_is_named(with_plugin: Any) -> None:
    cli = with_plugin(_PROBLEM.replace("ATTRIBUTE", "workloads"))
    (cli.folder / "aaa_problem.py").write_text("x = 1\n")

    ran = cli.run("aaa_problem.py", *_HAMMER)

    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[0] == (
        "error: problem 'aaa_problem' of plugin 'odd' (odd 1) is broken: "
        "TypeError: its workloads are None"
    )


def test_broken_problem_of_another_plugin_is_left_out(with_plugin: Any) -> None:
    ran = with_plugin(_PROBLEM.replace("ATTRIBUTE", "workloads")).run(*_HAMMER, "--format", "json")

    assert ran.code == 0
    assert len(ran.document["evaluations"]) == 1
    (warning,) = ran.err.splitlines()
    assert warning.startswith("WARNING: problem 'aaa_problem' of plugin 'odd' (odd 1) is broken")


def test_command_with_one_of_our_names_is_set_aside(with_plugin: Any) -> None:
    cli = with_plugin(_COMMAND)

    shown = cli.run("--help")
    plugins = cli.run("list", "plugins", "--format", "json").document["plugins"]

    commands = [line.split()[0] for line in shown.out.partition("Commands:")[2].split("\n")[1:-1]]
    assert commands.count("run") == 1
    causes = {row["name"]: row["cause"] for row in plugins}
    assert causes["odd"] == ("atrex_commands: ValueError: command 'run' is one of atrex-eval's own")
