"""The interpreter in which public halves run alone: what it notes, and how runs end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Container, Problem
from atrex_core.isolated import Answer, Interpreter, Question

Ask = Callable[..., Mapping[str, Answer]]

_FORWARD = "        return x + y\n"


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """Return an interpreter that shows nothing of what is printed in it."""
    with tempfile.TemporaryFile() as printed, Interpreter(printed) as interpreter:
        yield interpreter


@pytest.fixture
def ask(broken: Any, public: Sequence[Path], interpreter: Interpreter) -> Ask:
    """Return what asks for both regimes after a change: `ask(file, old, new, **attributes)`."""

    def ask(
        file: str = "inputs.py",
        old: str = "",
        new: str = "",
        timeout_s: int = 60,
        **attributes: Any,
    ) -> Mapping[str, Answer]:
        problem: Problem = broken(public=public, **attributes)
        path = public[0].parent / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new) if old else path.read_text())
        question = Question(
            problem=problem,
            workload=problem.workloads[0],
            inputs=public[0],
            reference=public[1],
            regimes=("nominal", "large"),
            seed=1,
            timeout_s=timeout_s,
        )
        return interpreter.ask(question)

    return ask


def test_sound_public_half_answers_in_every_regime(ask: Ask) -> None:
    answers = ask()

    assert list(answers) == ["nominal", "large"]
    for answer in answers.values():
        assert (answer.fault, answer.unlike, answer.touched) == (None, None, [])
        assert list(answer.digests) == ["x", "y"]
    assert answers["nominal"].digests != answers["large"].digests


@pytest.mark.parametrize(
    ("file", "old", "new", "are_inputs", "found"),
    [
        (
            *("inputs.py", "* scales[regime]", "* scales[regime] > 0", True),
            [["x", "bool", [4, 8]], ["y", "bool", [4, 8]]],
        ),
        ("inputs.py", '"xy"', '"x"', True, [["x", "fp32", [4, 8]]]),
        ("inputs.py", "rows, 8", "8, rows", True, [["x", "fp32", [8, 4]], ["y", "fp32", [8, 4]]]),
        ("reference.py", "x + y", "(x + y).half()", False, [["out", "fp16", [4, 8]]]),
        ("reference.py", "x + y", "(x + y).cfloat()", False, [["out", "complex64", [4, 8]]]),
        ("reference.py", "x + y", "(x + y)[0]", False, [["out", "fp32", [8]]]),
    ],
    ids=["drawn dtype", "drawn names", "drawn shape", "dtype", "dtype without a name", "shape"],
)
def test_what_is_not_as_stated_is_told(
    ask: Ask, file: str, old: str, new: str, are_inputs: bool, found: list[Any]
) -> None:
    unlike = ask(file, old, new)["nominal"].unlike

    assert unlike is not None
    assert (unlike.are_inputs, unlike.found) == (are_inputs, found)


@pytest.mark.parametrize(
    ("container", "returned", "found"),
    [
        (Container.TUPLE, "(x, y)", [["out", "fp32", [4, 8]], ["1", "fp32", [4, 8]]]),
        (Container.TUPLE, "()", []),
        (Container.DICT, "{'x': x, 'out': y}", [["out", "fp32", [4, 8]], ["x", "fp32", [4, 8]]]),
        (Container.DICT, "{'x': x}", [["x", "fp32", [4, 8]]]),
    ],
)
def test_outputs_too_many_or_too_few_are_told(
    ask: Ask, container: Container, returned: str, found: list[Any]
) -> None:
    unlike = ask("reference.py", "x + y", returned, container=container)["large"].unlike

    assert unlike is not None
    assert (unlike.are_inputs, unlike.found) == (False, found)


@pytest.mark.parametrize(
    ("code", "touched"),
    [
        ("open('/etc/hostname').close()", ("open", "/etc/hostname")),
        ("__import__('os').listdir('/etc')", ("os.listdir", "/etc")),
        ("__import__('os').scandir('/etc').close()", ("os.scandir", "/etc")),
        ("__import__('subprocess').run(['true'])", ("subprocess.Popen", "")),
        ("__import__('os').system('true')", ("os.system", "")),
        ("__import__('socket').socket().close()", ("socket.__new__", "")),
        ("__import__('os').fork()", ("os.fork", "")),
    ],
)
def test_what_is_opened_or_started_is_noted(ask: Ask, code: str, touched: tuple[str, str]) -> None:
    answers = ask("reference.py", _FORWARD, f"        {code}\n{_FORWARD}")

    for answer in answers.values():
        assert (answer.fault, answer.unlike) == (None, None)
        assert touched in answer.touched


def test_own_folder_is_no_news(ask: Ask) -> None:
    code = "open(__file__).close()"

    answers = ask("reference.py", _FORWARD, f"        {code}\n{_FORWARD}")

    assert answers["nominal"].touched == []


@pytest.mark.parametrize(
    ("code", "fault", "where"),
    [
        ("import numpy", "ImportError: a public file imports 'numpy': it may use torch alone", 10),
        ("raise SystemExit(0)", "SystemExit: 0", 10),
        ("__import__('os').abort()", "its process was killed by SIGABRT", None),
        ("__import__('os')._exit(0)", "its process exited with 0", None),
    ],
)
def test_regime_that_gives_no_answer_is_told_from_others(
    ask: Ask, code: str, fault: str, where: int | None
) -> None:
    new = f"    if regime == 'large':\n        {code}\n    g = torch"

    answers = ask("inputs.py", "    g = torch", new)

    assert answers["nominal"].fault is None
    assert answers["large"].fault == fault
    assert answers["large"].where == (where and f"inputs.py:{where}")


def test_run_without_an_end_is_ended_though_it_stops_every_alarm(ask: Ask) -> None:
    code = "signal = __import__('signal')\n"
    code += "        signal.alarm(0), signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    code += "        while True: pass\n"

    answers = ask("reference.py", _FORWARD, f"        {code}{_FORWARD}", timeout_s=1)

    assert list(answers) == ["nominal"]
    assert answers["nominal"].fault == "it gave no answer within 1 s"
