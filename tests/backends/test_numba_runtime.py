"""What the Numba runtime sees, suppresses and explains, as `numba_runtime_child.py` found it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Findings = dict[str, Any]

CHILD = Path(__file__).with_name("numba_runtime_child.py")


@pytest.fixture(scope="module")
def findings() -> Findings:
    shown = subprocess.run(
        [sys.executable, "-W", "error", CHILD], capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == 0, shown.stderr
    found: Findings = json.loads(shown.stdout)
    assert "error" not in found, found["error"]
    return found


KINDS = [
    ("a parallel loop", "loop"),
    ("an eager function", "eager"),
    ("a cached function", "cached"),
    ("a lazy ufunc", "lazy_ufunc"),
    ("an eager ufunc", "eager_ufunc"),
    ("a parallel ufunc", "parallel_ufunc"),
    ("a lazy gufunc", "lazy_gufunc"),
    ("an eager gufunc", "eager_gufunc"),
    ("a parallel gufunc", "parallel_gufunc"),
    ("a stencil", "neighbours"),
    ("a ufunc's reduction", "eager_ufunc"),
    ("a parallel ufunc's reduction", "parallel_ufunc"),
]


@pytest.mark.parametrize(("call", "kernel"), KINDS, ids=[call for call, _ in KINDS])
def test_a_call_is_one_launch_of_the_candidates_kernel(
    findings: Findings, call: str, kernel: str
) -> None:
    assert findings["launches"][call] == [[kernel, True]]


def test_compiled_code_gives_its_right_answers_while_it_is_watched(findings: Findings) -> None:
    assert findings["values"] == {
        "a parallel loop": [2.0, 4.0, 6.0],
        "an eager function": [2.0, 3.0, 4.0],
        "a cached function": 6.0,
        "a lazy ufunc": [2.0, 4.0, 6.0],
        "an eager ufunc": [2.0, 4.0, 6.0],
        "a parallel ufunc": [2.0, 4.0, 6.0],
        "a lazy gufunc": [2.0, 3.0, 4.0],
        "an eager gufunc": [2.0, 3.0, 4.0],
        "a parallel gufunc": [2.0, 3.0, 4.0],
        "a stencil": [0.0, 4.0, 0.0],
        "a ufunc's reduction": 6.0,
        "a parallel ufunc's reduction": 6.0,
    }


def test_a_kernel_of_another_file_is_not_the_candidates(findings: Findings) -> None:
    assert findings["launches"]["another file"] == [["foreign", False]]


def test_a_kernel_made_before_the_start_is_seen(findings: Findings) -> None:
    assert findings["launches"]["made before"] == [["earlier", False]]


def test_a_binary_is_named_by_what_it_does(findings: Findings) -> None:
    binaries = findings["binaries"]

    assert len(set(binaries.values())) == len(binaries)
    assert all(len(digest) == 16 for digest in binaries.values())


def test_a_refused_call_is_no_launch(findings: Findings) -> None:
    assert findings["launches"]["refused"] == []


def test_clearing_forgets(findings: Findings) -> None:
    assert findings["launches"]["after clearing"] == []


def test_a_timed_loop_keeps_a_limited_log(findings: Findings) -> None:
    from atrex_backend_numba.launches import MOST_LAUNCHES

    assert findings["log after many calls"] == MOST_LAUNCHES


def test_knocked_out_calls_do_nothing_and_are_not_logged(findings: Findings) -> None:
    assert findings["knocked out"] == {
        "a parallel loop": None,
        "an eager function": None,
        "a cached function": None,
        "a lazy ufunc": None,
        "a stencil": None,
        "a call that would not compile": None,
        "a parallel ufunc's reduction": None,
        "a ufunc with out": "out",
        "a ufunc with a tuple": "out",
        "a ufunc with a positional output": "out",
        "a lazy gufunc": "out",
        "a parallel gufunc with out": "out",
    }
    assert findings["output of knocked out calls"] == [7.0, 7.0, 7.0]
    assert findings["launches"]["knocked out"] == []


def test_calls_work_again_after_a_knock_out_that_failed(findings: Findings) -> None:
    assert findings["after a failed knock-out"] == [2.0, 3.0, 4.0]


def test_compiling_happens_in_its_own_stage(findings: Findings) -> None:
    assert findings["stages at import"][:2] == ["+compile", "-compile"]
    assert findings["stages of a first call"] == ["+compile", "-compile"]
    assert findings["stages of a second call"] == []
    assert findings["stages of a refused call"] == ["+compile", "-compile"]


def test_every_signature_of_an_own_kernel_has_a_report(findings: Findings) -> None:
    reports = findings["reports"]
    kernels = sorted(report["kernel"] for report in reports)

    assert kernels == [
        "cached",
        "eager",
        "eager_gufunc",
        "eager_ufunc",
        "lazy_gufunc",
        "lazy_ufunc",
        "loop",
        "loop",
        "parallel_gufunc",
        "parallel_ufunc",
    ]
    for report in reports:
        assert report["target"] == findings["host"]
        assert report["binary_bytes"] > 100
        assert 0.0 < report["compile_seconds"] < 60.0
        assert not report["cached"]


def test_a_form_read_from_the_cache_says_so(findings: Findings) -> None:
    assert findings["reports of a second process"] == [["cached", True]]


def test_the_cache_lies_in_the_scratch_folder(findings: Findings) -> None:
    assert findings["cache files outside"] == []
    assert findings["cache files inside"] >= 2


MESSAGES = {
    "attribute": (
        "TypingError: Unknown attribute 'nosuch' of type array(float32, 1d, C) (line 56)"
    ),
    "sum": (
        "TypingError: No implementation of function Function(<built-in function add>) found for "
        "signature: add(float64, Literal[str](a)) (line 60)"
    ),
}


@pytest.mark.parametrize(("name", "first"), MESSAGES.items(), ids=MESSAGES)
def test_the_compilers_message_begins_with_what_matters(
    findings: Findings, name: str, first: str
) -> None:
    message = findings["messages"][name]

    assert message.splitlines()[0] == first
    assert len(message) <= 4000
    assert "\x1b" not in message


def test_other_errors_are_not_the_compilers(findings: Findings) -> None:
    assert findings["messages"]["of a ValueError"] is None


def test_versions_of_another_target_are_not_offered(findings: Findings) -> None:
    assert findings["reports for sm_90"] == []
