"""`atrex-eval problems`: packs that end processes, lie about types, and leave things behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

_UNSOUND = """
    class Unsound(Sum):
        name = "odd_unsound"

        @property
        def workloads(self):
            WHAT

    PROBLEMS = [Sum(), Unsound()]
"""
_CONCLUDED_NOTHING = (
    "error: the process of this command exited with status 0 while code of plugin 'odd' (odd 1) "
    "ran: nothing is concluded"
)
_HINT = "hint: mend the plugin, or run with --disable-plugin odd"


def _linters(cli: Any) -> list[int]:
    return [pid for pid, command in cli.processes().items() if "lint_main" in command]


# -- in the process of the command -----------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("problems", "lint", "odd_sum"), ("problems", "show", "odd_sum"), ("list", "problems")],
    ids=" ".join,
)
def test_plugin_that_ends_the_process_on_import_is_an_error(
    with_pack: Any, arguments: tuple[str, ...]
) -> None:
    cli = with_pack("PROBLEMS = []\nos._exit(0)")

    ran = cli.run(*arguments)
    without = cli.run("list", "problems", "--disable-plugin", "odd")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines() == [_CONCLUDED_NOTHING, _HINT]
    assert without.code == 0


def test_problem_that_ends_the_process_when_asked_is_an_error(with_pack: Any) -> None:
    cli = with_pack(_UNSOUND.replace("WHAT", "os._exit(0)"))

    linted = cli.run("problems", "lint", "odd_*", "--format", "json")
    shown = cli.run("problems", "show", "odd_unsound")

    for ran in (linted, shown):
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.splitlines() == [_CONCLUDED_NOTHING, _HINT]
    assert cli.leftovers() == ({}, [])


def test_crash_is_told_from_an_order(with_pack: Any) -> None:
    crashed = with_pack("PROBLEMS = []\nos.abort()").run("problems", "lint")

    assert (crashed.code, crashed.out) == (3, "")
    assert "was killed by SIGABRT while code of plugin 'odd'" in crashed.err.splitlines()[-2]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(0)", "GeneratorExit"])
def test_whatever_a_problem_raises_costs_it_alone(with_pack: Any, error: str) -> None:
    cli = with_pack(_UNSOUND.replace("WHAT", f"raise {error}"))

    ran = cli.run("problems", "lint", "odd_*", "--spread", "1", "--format", "json")
    shown = cli.run("problems", "show", "odd_unsound")

    assert (ran.code, ran.err) == (3, "")
    broken = [f for f in ran.document["findings"] if f["fate"] == "broken"]
    assert [(f["problem"], f["name"]) for f in broken] == [("odd_unsound", "declaration")]
    assert error.partition("(")[0] in broken[0]["reason"]
    assert ran.document["summary"]["by_problem"]["odd_sum"]["strict"]["mutants"]["right"] == 5
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.startswith("error: problem 'odd_unsound' of plugin 'odd' (odd 1) is broken: ")


def test_interrupt_on_import_is_charged_to_the_plugin(with_pack: Any) -> None:
    ran = with_pack("PROBLEMS = []\nraise KeyboardInterrupt").run("problems", "lint", "acme*")

    assert ran.code == 1
    assert "plugin 'odd' (odd 1) was set aside in import: " in ran.err


_SLOW_IMPORT = """
    import sys

    if "lint_main" not in " ".join(sys.orig_argv):
        Path("begun").write_text("")
        time.sleep(60)
    PROBLEMS = []
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_order_to_the_command_reaches_what_it_does(with_pack: Any, number: signal.Signals) -> None:
    cli = with_pack(_SLOW_IMPORT)
    running = cli.start("problems", "lint")
    deadline = time.monotonic() + 60
    while not (Path(cli.folder) / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    running.send_signal(number)
    out, err = running.communicate(timeout=60)

    assert running.returncode == (130 if number is signal.SIGINT else -number)
    assert out == b""
    assert err.decode().splitlines()[:1] == ["error: interrupted"] * (number is signal.SIGINT)
    assert cli.leftovers() == ({}, [])


_WRONG: dict[str, tuple[str, str]] = {
    "regimes": ("def regimes(self, w): return 'nominal'", "its regimes are 'nominal'"),
    "regimes of": ("def regimes(self, w): return [1]", "its regimes are [1]"),
    "mutants": ("def mutants(self): return ['zeros']", "its mutants are ['zeros']"),
    "mutants of": ("def mutants(self): return {'a': 1}", "'a' of its mutants is 1, not a function"),
    "variants": ("def variants(self): return None", "its variants are None"),
    "names": ("def variants(self): return {1: len}", "not a mapping of names to functions"),
    "cost": ("def cost(self, w, inputs=None): return 5", "its cost is 5, not a Cost"),
    "inputs": ("def inputs(self, w): return None", "its inputs are None"),
    "in place": ("in_place = {'out': 'z'}", "in_place names 'z', which is no input"),
    "in place of": ("in_place = ['out']", "its in_place is ['out']"),
    "axes": (
        "workloads = [Workload(id='a', axes={'rows': 1, 'x': {1}})]",
        "not JSON serializable",
    ),
    "no workload": ("workloads = []", "it has no workload"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("line", "reason"), _WRONG.values(), ids=_WRONG)
def test_show_of_a_problem_of_wrong_types_is_one_error(
    with_pack: Any, line: str, reason: str
) -> None:
    cli = with_pack(f"class Odd(Sum):\n    name = 'odd_odd'\n    {line}\n\nPROBLEMS = [Odd()]")

    ran = cli.run("problems", "show", "odd_odd", "--format", "json")

    assert (ran.code, ran.out) == (3, "")
    error, hint = ran.err.splitlines()
    assert error.startswith("error: problem 'odd_odd' of plugin 'odd' (odd 1) is broken: ")
    assert reason in error
    assert hint == "hint: update it, or run with --disable-plugin odd"


# -- in the processes of a lint --------------------------------------------------------------------

_DAEMON = """
    def daemon(w, i):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
        return {"out": i["x"] * 0}

    class Haunted(Sum):
        name = "odd_haunted"
        rows = (1,)

        def more_mutants(self):
            return {"daemon": daemon}

        def draw(self, w, **more):
            os.fork()
            return super().draw(w, **more)

    PROBLEMS = [Haunted()]
"""


def test_nothing_that_a_pack_starts_outlives_a_lint(with_pack: Any) -> None:
    cli = with_pack(_DAEMON)

    ran = cli.run("problems", "lint", "odd_haunted", "--workload", "r1", "--cases", "1")

    assert cli.leftovers(within_s=1.0) == ({}, [])
    assert "strict: 6/6 mutants killed, 3/3 honest accepted" in ran.out


def test_linter_that_is_killed_while_it_starts_is_replaced(with_pack: Any) -> None:
    cli = with_pack("PROBLEMS = [Sum()]")
    options = ("--jobs", "1", "--spread", "1", "--format", "json")
    running = cli.start("problems", "lint", "odd_sum", *options)
    killed: set[int] = set()
    while len(killed) < 2:
        for pid in set(_linters(cli)) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    out, err = running.communicate(timeout=120)

    assert (running.returncode, err) == (0, b"")
    assert json.loads(out)["summary"]["mutants"]["strict"]["right"] == 5


@pytest.mark.slow
def test_linters_that_are_always_killed_are_an_error(with_pack: Any) -> None:
    cli = with_pack("PROBLEMS = [Sum()]")
    running = cli.start("problems", "lint", "odd_sum", "--jobs", "1")
    while running.poll() is None:
        for pid in _linters(cli):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    out, err = running.communicate(timeout=60)

    assert (running.returncode, out) == (3, b"")
    error, hint = err.decode().splitlines()
    assert error.startswith("error: a linter could not start: its process was killed by SIGKILL ")
    assert hint == "hint: free memory, or use fewer --jobs"


# -- reports ---------------------------------------------------------------------------------------


def test_report_is_not_written_over_a_kernel(cli: Any, acme: Path) -> None:
    (kernel, *_) = acme.rglob("kernels/*.py")
    before = kernel.read_bytes()

    ran = cli.run("problems", "lint", "acme*", "--backend", "hammer", "--output", kernel)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == f"error: --output {str(kernel)!r} is a candidate"
    assert kernel.read_bytes() == before


def test_journal_shows_what_lints_found(with_pack: Any) -> None:
    cli = with_pack("PROBLEMS = [Sum()]")
    cli.run("problems", "lint", "odd_sum", "--spread", "1", "--journal", "j.jsonl", "--seed", "3")

    (line,) = cli.run("journal", "show", "j.jsonl").out.splitlines()

    assert line.startswith("lint of pack odd 1, device ")
    assert ", seed 3: 1 problem, 1 workload; strict: 5/5 mutants killed, 3/3 honest" in line
