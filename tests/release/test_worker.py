"""The spy in a worker: what a leaking pack gives away is found, and a blind spy proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from atrex_core.plugins import PluginHost
from atrex_core.release import Standing, canary, inside
from atrex_core.release.canary import DIGITS, MARK, Canaries

pytest.importorskip("numba", reason="the spy is run with its backend")

pytestmark = pytest.mark.slow

_LEAK = "canary/private.json: value"


def _planted(canaries: Canaries, where: str) -> str:
    """Return the canary that was planted somewhere, whole."""
    (digits,) = [digits for digits, place in canaries.private.items() if place == where]
    return MARK.decode() + digits


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> inside.Run:
    """Return a run with a pack whose public half holds a value of its private file."""
    folder = tmp_path_factory.mktemp("run")
    canaries = canary.plant(folder / "site")
    (reference,) = (folder / "site").glob(f"*/{canaries.name}/public/reference.py")
    leak = f"LEAK = {_planted(canaries, _LEAK)!r}"
    reference.write_text(f"{reference.read_text()}\n{leak}\n")
    place = inside.choose_place(PluginHost.discover(), "numba", None)
    run = inside.Run(folder, place, canaries)
    run.carry_out()
    return run


def _refuted(run: inside.Run) -> dict[str, str]:
    return {c.text: c.detail for c in run.claims() if c.standing is Standing.FAIL}


def test_value_that_leaks_into_the_public_half_is_found_wherever_it_gets(run: inside.Run) -> None:
    found = _refuted(run)

    assert found == {
        "nothing private is in files below its working folder": _LEAK,
        "nothing private is in its objects": _LEAK,
        "nothing private is in its readable memory": _LEAK,
        "nothing private comes out: results, journal, remarks, repro, list, release": (
            f"the scripts of repro: {_LEAK}; a release: {_LEAK}"
        ),
    }


def test_spy_ran_until_the_timed_calls_of_a_living_pack(run: inside.Run) -> None:
    first, control, *_ = run.claims()

    assert first.standing is Standing.PASS
    assert first.detail == "numba on cpu; reports of calls in correctness and performance"
    assert control.standing is Standing.PASS


@pytest.mark.parametrize("channel", canary.CONTROLS)
def test_spy_that_does_not_see_the_control_proves_nothing(run: inside.Run, channel: str) -> None:
    unseen = evolve(run.canaries, control={**run.canaries.control, channel: "0" * DIGITS})
    blind = inside.Run(run.folder, run.place, unseen, run.results, run.given_out)

    found = _refuted(blind)

    control = "the spy, and the search of what comes out, see what is there (control)"
    assert found[control] == f"the spy did not see what the control holds in {channel}"


def test_spy_that_does_not_report_proves_nothing(run: inside.Run) -> None:
    plain = {
        key: {**found, "gates": {}} if key[0] == canary.PLAIN else found
        for key, found in run.results.items()
    }
    silent = inside.Run(run.folder, run.place, run.canaries, plain, run.given_out)

    found = _refuted(silent)

    assert "no report from its correctness call" in "".join(found.values())
    assert [text for text, why in found.items() if why == "it was not looked at"] == [
        f"nothing private is in {place}" for place in inside.CHANNELS.values()
    ]
    assert [text for text, why in found.items() if why == "it was not tried"] == [
        text for _, text in inside.TRIED.values()
    ]


def test_spy_is_blind_to_its_own_findings(run: inside.Run) -> None:
    report = str(run.results[(canary.PLAIN, "correctness")]["gates"])

    assert _planted(run.canaries, _LEAK) not in report
    assert _planted(run.canaries, _LEAK).removeprefix(MARK.decode())[::-1] in report


def test_spy_is_a_file_of_its_own_that_knows_the_mark() -> None:
    source = Path(inside.__file__).with_name("spy.py").read_text()

    assert f"MARK = {MARK!r}".replace("'", '"') in source
    assert "\nLAST = 6\n" in source
    assert "import atrex" not in source
