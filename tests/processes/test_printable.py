"""What a candidate writes is shown, never obeyed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Stage
from atrex_core.printable import block, one_line, plain
from atrex_core.processes.output import OutputDrain
from atrex_core.processes.scratch import make_scratch, remove_scratch
from atrex_core.processes.stage import StageCell


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("wrong at [3, 7]", "wrong at [3, 7]", id="plain"),
        pytest.param("größer als 1 µs", "größer als 1 µs", id="letters of any language"),
        pytest.param("a\nb\r\n\tc  d", "a b c d", id="white space"),
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="colour"),
        pytest.param("\x1b]0;title\x07", "\\x1b]0;title\\x07", id="window title"),
        pytest.param("\u202eevil\u2066", "\\u202eevil\\u2066", id="direction"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="invisible"),
        pytest.param("\udc80", "\\udc80", id="lone surrogate"),
        pytest.param("\x00\x9b2J", "\\x00\\x9b2J", id="control characters of eight bits"),
    ],
)
def test_one_line_is_printable(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_one_line_is_cut_where_it_says_so() -> None:
    assert one_line("x" * 100, limit=20) == "x" * 16 + " ..."
    assert one_line("x" * 20, limit=20) == "x" * 20


def test_block_keeps_its_lines_and_both_ends() -> None:
    assert block("one\n\ttwo\x1b") == "one\n\ttwo\\x1b"
    assert (
        block("a" * 50 + "b" * 50, limit=20) == f"{'a' * 10}\n[... 80 characters ...]\n{'b' * 10}"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"a": [1, 2.5, None, True]}, {"a": [1, 2.5, None, True]}, id="kept"),
        pytest.param([float("inf"), float("nan")], ["inf", "nan"], id="not finite"),
        pytest.param((1, (2,)), [1, [2]], id="tuples"),
        pytest.param({"\x1b\n": "\x1b"}, {"\\x1b": "\\x1b"}, id="keys"),
        pytest.param({"stage": Stage.IMPORT}, {"stage": "import"}, id="members"),
        pytest.param(Path("/x"), "/x", id="others"),
    ],
)
def test_plain_values_can_be_written_as_json(value: Any, expected: Any) -> None:
    found = plain(value)

    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_plain_values_are_bounded() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]

    assert len(json.dumps(plain(deep))) < 100
    assert len(plain(list(range(10**5)))) == 1000
    assert len(plain("x" * 10**6)) < 4100


def test_stage_cell_cannot_be_cut_short() -> None:
    cell = StageCell.create()

    with cell.enter(Stage.COMPILE):
        inside = cell.stage

    assert (inside, cell.stage) == (Stage.COMPILE, Stage.STARTUP)
    with pytest.raises(PermissionError):
        os.ftruncate(cell.fd, 0)
    cell.close()


def test_stage_stays_where_an_exception_left_it() -> None:
    cell = StageCell.create()

    with pytest.raises(ValueError, match="no"), cell.enter(Stage.COMPILE):
        raise ValueError("no")

    assert cell.stage is Stage.COMPILE
    cell.close()


def test_output_that_is_short_is_kept_whole() -> None:
    drain = OutputDrain()
    os.write(drain.write_fd, "zwölf".encode())
    os.write(drain.write_fd, b"\xff.")
    drain.close_writer()

    assert drain.text() == "zwölf\ufffd."
    assert drain.total_bytes == 8


def test_output_of_many_small_writes_keeps_its_end() -> None:
    drain = OutputDrain()
    for number in range(20_000):
        os.write(drain.write_fd, b"%d\n" % number)
    drain.close_writer()

    text = drain.text()
    assert text.startswith("0\n1\n2\n")
    assert text.endswith("19998\n19999\n")
    assert text.count("\n") > 3000
    assert len(text) < 2 * 8192 + 100


def test_scratch_folder_holds_its_files_and_goes_for_good(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        scratch = make_scratch({"candidate.py": b"pass", "problem/inputs.py": b"# public"})
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (scratch / "link").symlink_to(outside)
    (scratch / "problem").chmod(0)

    remove_scratch(scratch)
    remove_scratch(scratch)

    assert scratch.name.startswith("atrex-worker-")
    assert list(tmp_path.iterdir()) == [outside]
    assert outside.stat().st_mode & 0o777 == 0o750
