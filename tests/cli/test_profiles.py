"""`list profiles`, and a run that is scored against a profile of the user's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer")
_MINE = """
name = "my-anvil"
source = "measured with a stopwatch"
bandwidth_bytes_per_s = 2e12
[peak_flops]
bf16_matrix = 300e12
fp32_vector = 60e12
"""


def test_the_table_of_profiles_fits_a_terminal(shared_cli: Any) -> None:
    ran = shared_cli.run("list", "profiles")

    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, lines)) <= 100
    names = [line.split()[0] for line in lines[1:] if line[:1].strip()]
    assert len(names) >= 45
    assert {"h200", "mi300x", "max1550", "acme-anvil-2", "host"} <= set(names)
    (h200,) = (line for line in lines if line.startswith("h200 "))
    assert h200.split() == ["h200", "nvidia", "sm_90", "NVIDIA", "H200", "4.8", "50", "66.9"] + [
        *("989.4", "1978.9")
    ]


def test_every_figure_of_every_profile_has_source_and_confidence(shared_cli: Any) -> None:
    rows = shared_cli.run("list", "profiles", "--format", "json").document["profiles"]

    published = [row for row in rows if row["name"] != "host"]
    assert len(published) >= 40
    for row in published:
        assert set(row["peak_flops"]) | {"bandwidth_bytes_per_s"} <= set(row["figures"])
        for figure in row["figures"].values():
            assert set(figure) == {"value", "source", "confidence"}
            assert figure["value"] > 0
            assert figure["source"]
            assert figure["confidence"] in ("high", "medium", "low")
        assert row["driver_names"]
        assert row["vendor"]
        assert row["digest"]


def test_named_profiles_are_shown_whole(shared_cli: Any) -> None:
    ran = shared_cli.run("list", "profiles", "b300", "host")
    wrong = shared_cli.run("list", "profiles", "b30O")

    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "driver name: NVIDIA B300 SXM6 AC" in ran.out
    assert any(
        line.split() == ["int8_matrix", "187.5", "TOP/s", "low", "[3]"]
        for line in ran.out.splitlines()
    )
    assert "note: fp4: another table prints 12600" in ran.out
    assert "measured on first use" in ran.out
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.splitlines()[0] == "error: no profile is named 'b30O'"
    assert wrong.err.splitlines()[1].startswith("hint: did you mean 'b300'? available: a10,")


def test_a_run_is_scored_against_a_file(cli: Any) -> None:
    (cli.folder / "mine.toml").write_text(_MINE)

    ran = cli.run(*_HAMMER, "--profile", "mine.toml", "--journal", "j.jsonl", "--format", "json")

    assert (ran.code, ran.err.count("error")) == (0, 0)
    (found,) = ran.document["evaluations"]
    assert found["profile"] == "my-anvil"
    assert found["request"]["profile"] == "mine.toml"
    records = [json.loads(line) for line in (cli.folder / "j.jsonl").read_text().splitlines()]
    assert found["profile_digest"] in json.dumps(records)
    (cli.folder / "mine.toml").write_text(_MINE.replace("2e12", "4e12"))
    again = cli.run(*_HAMMER, "--profile", "./mine.toml", "--format", "json")
    (other,) = again.document["evaluations"]
    assert other["profile_digest"] != found["profile_digest"]
    assert other["bound"]["t_sol_us"] < found["bound"]["t_sol_us"]


@pytest.mark.parametrize(
    ("content", "error", "hint"),
    [
        (None, "cannot read profile 'mine.toml': no such file or directory", "--profile takes a"),
        ("name = ", "'mine.toml' is not valid TOML: ", "docs/hardware-profiles.md has"),
        (_MINE.replace("2e12", "-2e12"), "'mine.toml': 'bandwidth_bytes_per_s' must be a f", "for"),
        (_MINE.replace("bf16_m", "bf61_m"), "'mine.toml': unknown key 'peak_flops.bf61", "did you"),
        (_MINE.replace("300e12", "nan"), "'mine.toml': 'peak_flops.bf16_matrix' must be", "for ex"),
        (_MINE.replace("bf16_matrix", "bf16_sparse"), "'mine.toml': unknown key", "peaks are dens"),
    ],
)
def test_a_file_that_cannot_be_used(
    shared_cli: Any, content: str | None, error: str, hint: str
) -> None:
    path = shared_cli.folder / "mine.toml"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)

    ran = shared_cli.run(*_HAMMER, "--profile", "mine.toml")

    lines = ran.err.splitlines()
    assert (ran.code, ran.out, len(lines)) == (2, "", 2)
    assert lines[0].startswith(f"error: {error}")
    assert lines[1].startswith(f"hint: {hint}")
