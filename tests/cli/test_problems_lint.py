"""`atrex-eval problems lint`: what a pack's code may do, and what is found out about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

_CLEAN = "PROBLEMS = [Sum()]"

_WILD = """
    def abort(w, i):
        os.abort()

    def hang(w, i):
        time.sleep(600)

    def fail(w, i):
        raise KeyError("no such table")

    def leave(w, i):
        raise SystemExit(0)

    def end_itself(w, i):
        os.kill(os.getpid(), signal.SIGKILL)

    def change_inputs(w, i):
        i["y"].zero_()
        return {"out": i["x"] + i["y"]}

    def wrong_shape(w, i):
        return {"out": (i["x"] + i["y"]).sum(-1)}

    def no_mapping(w, i):
        return i["x"] + i["y"]

    def no_room(w, i):
        raise MemoryError("16 GiB")

    class Wild(Sum):
        name = "odd_wild"
        rows = (5,)

        def more_mutants(self):
            return {
                "abort": abort, "hang": hang, "fail": fail, "leave": leave,
                "end_itself": end_itself, "change_inputs": change_inputs,
                "wrong_shape": wrong_shape, "no_mapping": no_mapping, "no_room": no_room,
                "right": lambda w, i: {"out": i["x"] + i["y"]},
            }

    class Adrift(Sum):
        name = "odd_adrift"
        rows = (5,)

        def draw(self, w, *, regime, seed, device):
            os.abort()

    class Bare(Sum):
        name = "odd_bare"
        workloads = None

    PROBLEMS = [Sum(), Wild(), Adrift(), Bare()]
"""

_LAX = """
    def elsewhere(w, i):
        raise Inapplicable("never wrong")

    class Lax(Sum):
        name = "odd_lax"

        def tolerance(self, output):
            return Tolerance(dtype=output.dtype, element=1e6, relative_l2=1e6, row_l2=1e6, cap=1e9)

        def more_mutants(self):
            return {"nowhere": elsewhere, "right": lambda w, i: {"out": i["x"] + i["y"]}}

        def more_variants(self):
            return {"bad": lambda w, i: {"out": i["x"] + i["y"] + 0.5}}

        def under(self, protocol):
            return self if protocol is Protocol.STRICT else Loose()

    class Loose(Lax):
        def tolerance(self, output):
            return Allclose(absolute=1e9, relative=0)

    PROBLEMS = [Lax()]
"""
_KEPT = ("--seed", "3", "--journal", "kept.jsonl", "--resume")


def _lint(cli: Any, *arguments: str) -> Any:
    return cli.run("problems", "lint", *arguments, "--format", "json")


def _fates(document: Any, *, kind: str, problem: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in document["findings"]:
        if finding["kind"] == kind and finding["problem"] == problem:
            found.setdefault(finding["name"], set()).add(finding["fate"])
    return found


def _reasons(document: Any, name: str) -> set[str]:
    return {f["reason"] for f in document["findings"] if f["name"] == name and f["reason"]}


# -- a sound pack ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound_cli(make_cli: Callable[[], Any], install_pack: Callable[[Any, str], Any]) -> Any:
    """Return a command line with a pack that has no fault."""
    return install_pack(make_cli(), _CLEAN)


@pytest.fixture(scope="module")
def sound(sound_cli: Any) -> Any:
    """Lint it once, into `kept.jsonl`."""
    return sound_cli.run("problems", "lint", "odd_sum", "--jobs", "2", *_KEPT)


def test_sound_pack_is_all_right(sound_cli: Any, sound: Any) -> None:
    assert (sound.code, sound.err) == (0, "")
    heading, row, empty, totals, conditions = sound.out.splitlines()
    assert heading.split()[:3] == ["problem", "workloads", "checks"]
    assert row.split()[:5] == ["odd_sum", "3", "21/21", "5/5", "3/3"]
    assert empty == ""
    assert totals.startswith("1 problem, 3 workloads; strict: 5/5 mutants killed, 3/3 honest")
    assert conditions.startswith("seed 3, at least 5 cases, smoke scale, device cpu (")
    assert sound_cli.leftovers() == ({}, [])


@pytest.mark.usefixtures("sound")
def test_document_has_every_finding_and_what_they_add_up_to(sound_cli: Any) -> None:
    ran = _lint(sound_cli, "odd_sum", *_KEPT)

    document = ran.document
    assert (ran.code, set(document)) == (0, {"schema", "findings", "summary"})
    assert document["schema"] == 1
    summary = document["summary"]
    assert set(summary) == {
        *("by_problem", "mutants", "variants", "kernels", "checks", "seconds"),
        *("seed", "cases", "scale", "device", "device_name"),
    }
    assert (summary["seed"], summary["device"], summary["scale"]) == (3, "cpu", "smoke")
    assert summary["mutants"] == {"strict": {"total": 5, "right": 5, "killed": 5}}
    assert summary["by_problem"]["odd_sum"]["strict"]["variants"] == {
        "total": 3,
        "right": 3,
        "accepted": 3,
    }
    assert len(document["findings"]) == 10 + 3 * (11 + 3 + 5)
    killed = [f for f in document["findings"] if f["name"] == "only_x"]
    assert {f["regime"] for f in killed} == {"nominal"}
    assert all(f["share"] > 1 and f["change"] is None for f in killed)


def test_orchestrator_never_imports_torch(sound_cli: Any) -> None:
    script = (
        "import sys; from atrex_core.cli.app import invoke; code = invoke(sys.argv[1:]); "
        "print(int(code), 'torch' in sys.modules, file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "problems", "lint", "odd_sum", "--spread", "1"],
        cwd=sound_cli.folder,
        env=dict(sound_cli.environment),
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )

    assert done.stderr == "0 False\n"
    assert "1 problem, 1 workload; strict: 5/5 mutants killed" in done.stdout


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whatever_a_packs_code_does_is_a_finding_and_the_rest_goes_on(with_pack: Any) -> None:
    cli = with_pack(_WILD)

    ran = _lint(cli, "odd_*", "--timeout", "2", "--jobs", "2")

    assert ran.code == 3
    document = ran.document
    fates = _fates(document, kind="mutant", problem="odd_wild")
    sound = {name: {"killed"} for name in ("zeros", "only_x", "difference", "rounded", "rolled")}
    broken = ("abort", "hang", "fail", "leave", "end_itself", "change_inputs")
    assert fates == {
        **sound,
        **{name: {"broken"} for name in (*broken, "wrong_shape", "no_mapping")},
        "no_room": {"skipped"},
        "right": {"survived"},
    }
    assert _reasons(document, "abort") == {"its process was killed by SIGABRT"}
    assert _reasons(document, "hang") == {"it gave no answer within 2 s"}
    assert _reasons(document, "end_itself") == {
        "its process was killed by SIGKILL more than once: by somebody, or for want of memory"
    }
    (failure,) = _reasons(document, "fail")
    assert failure.startswith("KeyError: 'no such table' (at odd/__init__.py:")
    assert _reasons(document, "change_inputs") == {"it changed its input 'y'"}
    assert _reasons(document, "wrong_shape") == {
        "its answer is not as declared: 'out' is fp32 [5], not fp32 [5, 8]"
    }
    assert _fates(document, kind="variant", problem="odd_wild") == {
        name: {"accepted"} for name in ("reference", "commuted", "wide")
    }
    assert _fates(document, kind="check", problem="odd_wild")["seeds"] == {"passed"}
    adrift = _fates(document, kind="check", problem="odd_adrift")
    assert adrift["draw"] == {"broken"}
    assert adrift["regimes"] == adrift["public files"] == {"passed"}
    assert _fates(document, kind="mutant", problem="odd_adrift") == {}
    assert _fates(document, kind="check", problem="odd_bare") == {"declaration": {"broken"}}
    assert "its workloads are None" in next(iter(_reasons(document, "declaration")))
    assert document["summary"]["by_problem"]["odd_sum"]["strict"]["mutants"]["right"] == 5
    assert cli.leftovers() == ({}, [])


def test_survivors_and_refusals_say_what_to_change(with_pack: Any) -> None:
    cli = with_pack(_LAX)

    ran = cli.run("problems", "lint", "odd_lax", *_KEPT)
    listed = cli.run("problems", "lint", "odd_lax", *_KEPT, "--format", "markdown")
    alone = cli.run("problems", "lint", "odd_lax", *_KEPT, "--protocol", "paper", "--verbose")

    assert (ran.code, alone.code, listed.code) == (1, 1, 1)
    said = ran.out.splitlines()
    refused = next(i for i, line in enumerate(said) if line.startswith("refused: "))
    assert said[refused].startswith("refused: odd_lax [r")
    assert "strict variant 'bad' in regime" in said[refused]
    assert said[refused + 1].startswith("  change: it exceeds the ")
    right = next(i for i, line in enumerate(said) if "strict mutant 'right'" in line)
    assert said[right].startswith("survived: odd_lax [r")
    assert said[right + 1] == (
        "  change: it gives the reference's answer in every regime: draw inputs in which what it "
        "gets wrong matters, or raise Inapplicable where that is impossible"
    )
    nowhere = said.index(
        "survived: odd_lax strict mutant 'nowhere': it applies to none of the 3 workloads"
    )
    assert said[nowhere + 1] == "  change: add a workload on which it is wrong, or drop it"
    assert said[-3] == (
        "for information: odd_lax: paper lets through difference, nowhere, only_x, right, rolled, "
        "rounded, zeros"
    )
    assert not [line for line in said if " paper mutant " in line]
    heads, _, row = listed.out.splitlines()
    assert heads.startswith("| problem | mutants | survive strict | honest refused by strict |")
    assert [cell.strip() for cell in row.split("|")[1:5]] == [
        *("`odd_lax`", "7", "`nowhere`, `right`, `rounded`", "`bad`"),
    ]
    assert row.endswith("`only_x`, `right`, `rolled`, `rounded`, `zeros` | none |")
    told = alone.out.splitlines()
    assert "accepted: odd_lax [r1] paper variant 'bad'" in told
    assert len([line for line in told if " paper mutant " in line]) == 7 + 3  # inapplicable thrice
    assert len([line for line in told if line.startswith("  change: ")]) == 7


def test_bundled_kernels_are_further_honest_implementations(cli: Any) -> None:
    ran = _lint(cli, "acme_scaled_sum", "--backend", "hammer")

    assert ran.code == 1  # the vendor's problem ships no mutants
    assert _fates(ran.document, kind="kernel", problem="acme_scaled_sum") == {
        "hammer": {"accepted"}
    }
    checks = _fates(ran.document, kind="check", problem="acme_scaled_sum")
    assert {name for name, fates in checks.items() if fates == {"failed"}} == {
        *("mutants", "variants", "smoke workloads", "public files", "runs alone"),
        "unknown regime",
    }


# -- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("od_sum",), 2, "error: no problem matches 'od_sum'"),
        (("--format", "tabel"), 2, "error: no format is named 'tabel'"),
        (("--protocol", "stric"), 2, "error: --protocol must be one of strict, paper, not 'stric'"),
        (("--scale", "huge"), 2, "error: --scale must be one of full, smoke, not 'huge'"),
        (("--cases", "0"), 2, "error: --cases is out of range: 0"),
        (("--jobs", "0"), 2, "error: --jobs is out of range: 0"),
        (("--spread", "0"), 2, "error: invalid value for '--spread'"),
        (("--resume",), 2, "error: --resume needs a journal"),
        (("--output", "none/report"), 2, "error: cannot write 'none/report': no such file"),
        (("--journal", "a", "--output", "a"), 2, "error: --output 'a' is the journal itself"),
        (("--backend", "hamer"), 2, "error: no backend is named 'hamer'"),
        (("--device", "anvl:0"), 2, "error: no device is named 'anvl:0'"),
        (("--device", "anvil:3"), 4, "error: device 'anvil:3' is not available here"),
        (("--disable-plugin", "acm"), 2, "error: no plugin named 'acm' is installed"),
        (("acme*", "--workload", "none*"), 5, "error: no workload matches 'none*' at smoke scale"),
        (("acme*", "--scale", "full"), 5, "error: no selected problem has a workload of full"),
        (("acme*", "--protocol", "paper"), 5, "error: no selected problem has rules for paper"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_misuse_is_one_error_and_one_hint(
    shared_cli: Any, arguments: tuple[str, ...], code: int, error: str
) -> None:
    ran = shared_cli.run("problems", "lint", *arguments)

    assert (ran.code, ran.out) == (code, "")
    last, hint = ran.err.splitlines()[-2:]
    assert last.startswith(error)
    assert hint.startswith("hint: ")


def test_full_disk_under_the_report_leaves_it_on_stdout(shared_cli: Any) -> None:
    ran = _lint(shared_cli, "acme_scaled_sum", "--output", "/dev/full", "--spread", "1")

    assert (ran.code, ran.err.splitlines()[-2:]) == (
        2,
        [
            "error: cannot write '/dev/full': no space left on device",
            "hint: choose another --output",
        ],
    )
    assert {row["problem"] for row in ran.document["findings"]} == {"acme_scaled_sum"}
