"""`atrex-eval` at work: its default command, its document, its exit codes, its journal."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer")

_EVALUATION_KEYS = {
    *("submission", "candidate", "digest", "pack", "problem", "workload", "phase", "origin"),
    *("scale", "backend", "accelerator", "device", "target", "profile", "protocol", "isolation"),
    *("flags", "gates", "outcome", "timing", "bound", "gap", "share_of_roofline", "adoption"),
    *("peak_memory_bytes", "compile_seconds"),
}
_SUMMARY_KEYS = {
    *("s_agg", "s_agg_dsl", "pass_rate", "adoption_rate", "coverage"),
    *("by_operator", "by_phase", "seconds"),
}

_WRONG = """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x, y):
            out = 2 * x + y
            out[2, 7] = 1000
            return out
"""

_PLUGIN = """
    from importlib import import_module
    from pathlib import Path

    from atrex_acme.accelerator import AnvilAccelerator
    from atrex_acme.backend import HammerBackend
    from atrex_core import Device, Unavailable, hookimpl

    class Brittle(AnvilAccelerator):
        name = "brittle"

        def devices(self):
            return [Device(id="brittle", accelerator="brittle", vendor="b", name="B", arch="b1")]

        def open(self, device):
            raise Unavailable("the card is in use", hint="close the other program")

    class Absent(HammerBackend):
        name = "absent"

        def check_available(self):
            raise Unavailable("absent is not installed", hint="pip install absent")

    class OnBrittle(HammerBackend):
        name = "on-brittle"
        accelerators = ("brittle",)

    class Faulty(HammerBackend):
        name = "faulty"

        def start(self, request):
            raise ValueError("the driver\\nis confused")

    class Stuck(HammerBackend):
        name = "unimportable"

        def preload(self):
            import_module("nothing_of_that_name")

    @hookimpl
    def atrex_accelerators():
        return [Brittle()]

    @hookimpl
    def atrex_backends():
        return [Absent(), OnBrittle(), Faulty(), Stuck()]

    @hookimpl
    def atrex_commands(cli):
        @cli.command("fall-over")
        def fall_over():
            raise ZeroDivisionError("by zero")
"""


@pytest.fixture(scope="module")
def folder(shared_cli: Any) -> Path:
    """Return a folder with a candidate that is wrong in one element."""
    candidate = Path(shared_cli.folder) / "wrong" / "acme_scaled_sum.py"
    candidate.parent.mkdir()
    candidate.write_text(textwrap.dedent(_WRONG))
    return candidate.parent


@pytest.fixture(scope="module")
def passed(shared_cli: Any) -> Any:
    """Run the bundled kernels once, into `passed.jsonl`."""
    return shared_cli.run(*_HAMMER, "--journal", "passed.jsonl", "--format", "json")


@pytest.fixture(scope="module")
def failed(shared_cli: Any, folder: Path) -> Any:
    """Run the wrong candidate once, into `failed.jsonl`."""
    return shared_cli.run(
        folder / "acme_scaled_sum.py", *_HAMMER, "--journal", "failed.jsonl", "--format", "table"
    )


@pytest.fixture(scope="module")
def faulty_cli(shared_cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a command line with a second plugin, at fault in every way that plugins can be."""
    site = tmp_path_factory.mktemp("site")
    (site / "faulty_plugin.py").write_text(textwrap.dedent(_PLUGIN))
    (site / "exits.py").write_text("raise SystemExit(0)")
    info = site / "faulty_plugin-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-plugin\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[atrex_eval]\nfaulty = faulty_plugin\nexits = exits\nzz-gone = gone\n"
    )
    path = f"{shared_cli.environment['PYTHONPATH']}:{site}"
    return shared_cli.with_variables(PYTHONPATH=path)


# -- the default command ---------------------------------------------------------------------------


def test_without_a_candidate_the_bundled_kernels_run(cli: Any) -> None:
    ran = cli.run(*_HAMMER)

    assert ran.code == 0
    header, row = ran.out.splitlines()[:2]
    assert header.split()[:6] == ["problem", "workload", "comp", "corr", "perf", "auth"]
    assert row.split()[:6] == ["acme_scaled_sum", "small", "pass", "pass", "pass", "pass"]
    assert "1 evaluation: 1 passed" in ran.out
    (journal,) = (cli.folder / "state" / "atrex-eval").iterdir()
    assert ran.err == f"journal: {journal}\n"
    assert cli.leftovers() == ({}, [])


def test_settings_file_stands_in_for_options(cli: Any) -> None:
    (cli.folder / "atrex.toml").write_text('backend = "hammer"\nuntil = "compile"\n')

    ran = cli.run("--format", "json")

    (found,) = ran.document["evaluations"]
    assert {gate: result["outcome"] for gate, result in found["gates"].items()} == {
        "compile": "passed",
        "correctness": "skipped",
        "performance": "skipped",
        "authenticity": "skipped",
    }
    assert found["outcome"] == "unmeasured"
    assert ran.code == 0


# -- the document ----------------------------------------------------------------------------------


def test_document_has_the_agreed_keys(passed: Any) -> None:
    document = passed.document

    assert document["schema"] == 1
    (found,) = document["evaluations"]
    assert set(found) >= _EVALUATION_KEYS
    assert set(document["summary"]) >= _SUMMARY_KEYS
    assert set(found["pack"]) == {"name", "version", "digest"}
    assert set(found["timing"]) >= {"device_us", "call_us", "method", "samples_us", "cv", "reason"}
    assert set(found["bound"]) >= {"t_sol_us", "t_sol_measured_us", "limiter", "ceiling"}
    assert set(found["share_of_roofline"]) == {"device", "call"}


def test_document_says_what_was_measured_on_what(passed: Any) -> None:
    (found,) = passed.document["evaluations"]

    assert passed.err == ""
    assert found["problem"] == "acme_scaled_sum"
    assert (found["device"], found["profile"]) == ("anvil:0", "acme-anvil-2")
    assert found["pack"] == {"name": "acme", "version": "7", "digest": "acme-7"}
    assert found["origin"] == "published"
    assert found["outcome"] == "passed"
    assert len(found["seeds"]) == len(set(found["seeds"])) >= 7
    assert found["timing"]["method"] == "anvil stopwatch"
    assert len(found["timing"]["samples_us"]) >= 5
    # 12 bytes for each of 5 x 33 elements, at 2.4 TB/s
    assert found["bound"]["t_sol_us"] == pytest.approx(12 * 165 / 2.4e6)
    assert found["bound"]["limiter"] == "memory"
    assert 0 < found["share_of_roofline"]["device"] < 0.01


# -- exit codes ------------------------------------------------------------------------------------


def test_failed_candidate_is_told_where_it_is_wrong(failed: Any) -> None:
    assert failed.code == 1
    reason = next(line for line in failed.out.splitlines() if line.startswith("failed: "))
    assert reason.startswith(
        "failed: acme_scaled_sum/acme_scaled_sum [small] correctness: case 0 (nominal): "
        "output 'out': 1 of 165 elements (0.606%) are wrong, first at [2, 7] (got 1000, expected "
    )
    assert "1 evaluation: 1 failed" in failed.out


def test_broken_plugins_are_set_aside_and_the_run_goes_on(faulty_cli: Any) -> None:
    ran = faulty_cli.run(*_HAMMER, "--until", "compile", "--format", "json")

    assert ran.code == 0
    assert len(ran.document["evaluations"]) == 1
    assert len([line for line in ran.err.splitlines() if line.startswith("WARNING: ")]) >= 2
    assert "exits" in ran.err
    assert "zz-gone" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        pytest.param(
            ("--backend", "absent"),
            4,
            "error: absent is not installed",
            "hint: pip install absent",
            id="backend that is not installed",
        ),
        pytest.param(
            ("--backend", "on-brittle"),
            4,
            "error: the card is in use",
            "hint: close the other program",
            id="device that cannot be opened",
        ),
        pytest.param(
            ("fall-over",),
            3,
            "error: unexpected ZeroDivisionError: by zero",
            "hint: please report the lines above",
            id="command that falls over",
        ),
    ],
)
def test_fault_of_a_plugin_ends_with_error_and_hint(
    faulty_cli: Any, arguments: tuple[str, ...], code: int, error: str, hint: str
) -> None:
    ran = faulty_cli.run(*arguments)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.splitlines()[-2:] == [error, hint]
    assert faulty_cli.leftovers() == ({}, [])


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        pytest.param("faulty", r"ValueError: the driver is confused", id="in a worker"),
        pytest.param(
            "unimportable",
            "the worker server for backend 'unimportable' did not start",
            id="server",
        ),
    ],
)
def test_fault_of_a_backend_is_an_errored_evaluation(
    faulty_cli: Any, backend: str, reason: str
) -> None:
    ran = faulty_cli.run("--backend", backend, "--format", "json")

    assert ran.code == 3
    (found,) = ran.document["evaluations"]
    assert found["outcome"] == "errored"
    assert found["gates"]["compile"]["outcome"] == "errored"
    assert reason in found["gates"]["compile"]["reason"]
    assert faulty_cli.leftovers() == ({}, [])


def test_several_candidates_are_several_submissions(shared_cli: Any, folder: Path) -> None:
    kernels = shared_cli.run("list", "plugins", "--format", "json").document["plugins"]
    right = next(Path(shared_cli.environment["PYTHONPATH"].split(":")[0]).rglob("acme_scaled_*.py"))

    ran = shared_cli.run(
        "run", right, folder, *_HAMMER, "--format", "json", "--output", "both.json"
    )

    assert ran.code == 1
    assert ran.out == ""
    document = json.loads((shared_cli.folder / "both.json").read_text())
    assert [(e["submission"], e["outcome"]) for e in document["evaluations"]] == [
        ("acme_scaled_sum", "passed"),
        ("wrong", "failed"),
    ]
    assert "acme" in [row["name"] for row in kernels]


# -- the journal -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("failed")
def test_journal_shows_each_evaluation(shared_cli: Any) -> None:
    shown = shared_cli.run("journal", "show", "failed.jsonl")

    assert shown.code == 0
    assert shown.out.splitlines()[0].split()[:3] == ["id", "problem", "workload"]
    identity = shown.out.splitlines()[1].split()[0]
    one = shared_cli.run("journal", "show", "failed.jsonl", identity, "--format", "json")
    assert one.document["id"].startswith(identity)
    worst = one.document["gates"]["correctness"]["details"]["first_wrong"]
    assert worst["index"] == [2, 7]


@pytest.mark.usefixtures("passed")
def test_resume_of_a_complete_journal_runs_nothing(shared_cli: Any, passed: Any) -> None:
    before = (shared_cli.folder / "passed.jsonl").read_bytes()

    ran = shared_cli.run(*_HAMMER, "--journal", "passed.jsonl", "--resume", "--format", "json")

    assert ran.code == 0
    assert ran.document["evaluations"] == passed.document["evaluations"]
    assert (shared_cli.folder / "passed.jsonl").read_bytes() == before


def test_truncated_journal_is_gone_on_with(shared_cli: Any, passed: Any) -> None:
    whole = (shared_cli.folder / "passed.jsonl").read_bytes()
    half = shared_cli.folder / "half.jsonl"
    half.write_bytes(whole[:-200])

    shown = shared_cli.run("journal", "show", "half.jsonl")
    ran = shared_cli.run(*_HAMMER, "--journal", "half.jsonl", "--resume", "--format", "json")

    assert shown.err.startswith("warning: line 2: half-written or not JSON: ")
    assert ran.code == 0
    (found,) = ran.document["evaluations"]
    assert found["id"] != passed.document["evaluations"][0]["id"]
    assert half.read_bytes().startswith(whole[:-200] + b"\n")
    assert len(half.read_bytes().splitlines()) == 3


# -- looking around --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "columns"),
    [
        ("backends", "hammer", {"summary", "accelerators", "virtual_targets", "targets"}),
        ("accelerators", "anvil", {"devices", "timed", "absence"}),
        ("devices", "anvil:0", {"device", "arch", "profile"}),
        ("profiles", "acme-anvil-2", {"ceiling", "bandwidth_bytes_per_s", "peak_flops"}),
        ("problems", "acme_scaled_sum", {"pack", "published", "smoke", "phases", "summary"}),
        ("plugins", "acme", {"status", "cause"}),
    ],
)
def test_list_tells_what_there_is_and_where_from(
    shared_cli: Any, kind: str, name: str, columns: set[str]
) -> None:
    listed = shared_cli.run("list", kind, "--format", "json")
    table = shared_cli.run("list", kind)

    assert (listed.code, listed.err) == (0, "")
    assert set(listed.document) == {"schema", kind}
    rows = {row["name"]: row for row in listed.document[kind]}
    assert rows[name]["plugin"] == "acme"
    assert rows[name]["distribution"] == "atrex-acme 2.1.0"
    assert set(rows[name]) >= columns
    assert (table.code, table.err) == (0, "")
    assert any(line.startswith(name) for line in table.out.splitlines()[1:])


def test_doctor_tries_a_kernel_on_each_device(shared_cli: Any) -> None:
    table = shared_cli.run("doctor", "--backend", "hammer")

    assert (table.code, table.err) == (0, "")
    assert table.out.split()[:3] == ["PASS", "hammer", "anvil:0"]
    assert "compile=passed correctness=passed" in table.out


def test_doctor_says_what_is_broken(faulty_cli: Any) -> None:
    ran = faulty_cli.run("doctor", "--backend", "on-brittle", "--format", "json")

    assert ran.code == 3
    checks = {(c["check"], c["device"]): c for c in ran.document["checks"]}
    assert checks["kernel", "brittle"]["status"] == "FAIL"
    assert checks["kernel", "brittle"]["why"] == "the card is in use; close the other program"
    assert checks["plugin", "exits"]["status"] == "FAIL"
