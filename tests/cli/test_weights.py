"""`weights show`: columns that add up, labels that say how a number is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MakeCli = Callable[[], Any]


@pytest.fixture(scope="module")
def document(make_cli: MakeCli) -> Any:
    """Return everything that is known of the production pack's weights."""
    packs = make_cli().run("weights", "show", "--format", "json").document["packs"]
    return next(pack for pack in packs if pack["pack"]["name"] == "production")


def operator(document: Any, name: str) -> Any:
    return next(op for op in document["operators"] if op["name"] == name)


def test_every_column_adds_up(document: Any) -> None:
    operators = document["operators"]

    assert sum(op["normalised"] for op in operators) == pytest.approx(1.0)
    assert sum(op["prevalence_weighted"] for op in operators) == pytest.approx(1.0)
    assert sum(op["raw"] for op in operators) == pytest.approx(document["weight_sum"])
    for op in operators:
        assert sum(w["share"] for w in op["workloads"]) == pytest.approx(1.0)
        assert sum(p["share"] for p in op["phases"]) == pytest.approx(1.0)
        assert sum(w["of_pack"] for w in op["workloads"]) == pytest.approx(op["normalised"])


def test_the_published_sum_is_not_one(document: Any) -> None:
    assert document["weight_sum"] == pytest.approx(1.09478, abs=1e-9)
    assert len(document["operators"]) == 30
    assert sum(len(op["workloads"]) for op in document["operators"]) == 440


def test_a_weight_says_how_it_is_known(document: Any) -> None:
    counts: dict[str, int] = {}
    for op in document["operators"]:
        for workload in op["workloads"]:
            counts[workload["basis"]] = counts.get(workload["basis"], 0) + 1

    # 305 published shapes have a number of calls, some of them a total time too.
    assert counts["observed"] + counts["derived"] == 305
    assert counts["uniform"] == 135


def test_weights_of_a_written_out_operator(document: Any) -> None:
    norm = operator(document, "layer_norm")
    by_id = {w["id"]: w for w in norm["workloads"]}
    observed = [w for w in norm["workloads"] if w["basis"] == "observed"]
    uniform = [w for w in norm["workloads"] if w["basis"] == "uniform"]

    assert (len(observed), len(uniform), len(by_id)) == (9, 3, 13)
    assert norm["raw"] == 0.000773
    assert norm["prevalence"] == pytest.approx(2 / 1303)
    known = [w["share"] for w in norm["workloads"] if w["basis"] != "uniform"]
    assert uniform[0]["share"] == pytest.approx(sum(known) / len(known))


def test_phases_are_observed_where_there_is_one(document: Any) -> None:
    decode = operator(document, "paged_attention_decode")
    both = operator(document, "rms_norm")
    labelled = sum(op["normalised"] for op in document["operators"] if op["label"] == "both")

    assert decode["phases"] == [{"phase": "decode", "share": 1.0, "basis": "observed"}]
    assert {(p["phase"], p["share"], p["basis"]) for p in both["phases"]} == {
        ("prefill", 0.5, "uniform"),
        ("decode", 0.5, "uniform"),
    }
    # Of the published weight, 0.889 is labelled both.
    assert labelled * document["weight_sum"] == pytest.approx(0.889, abs=0.001)


def test_the_table_says_what_the_sum_means(make_cli: MakeCli) -> None:
    ran = make_cli().run("weights", "show")

    assert ran.code == 0
    assert "pack production" in ran.out
    assert "add up to 1.0948, not to 1" in ran.out
    assert "prevalence-weighted" in ran.out
    assert "source: Atrex-Bench at commit eb8697d" in ran.out


@pytest.mark.parametrize("by", ["workload", "phase"])
def test_other_tables_are_of_what_was_asked_for(make_cli: MakeCli, by: str) -> None:
    ran = make_cli().run("weights", "show", "--problem", "layer_norm", "--by", by)

    assert ran.code == 0
    assert "layer_norm" in ran.out
    assert "rms_norm" not in ran.out


def test_an_unknown_operator_is_one_error(make_cli: MakeCli) -> None:
    ran = make_cli().run("weights", "show", "layer_nrom")

    assert ran.code == 2
    assert ran.err.count("error:") == ran.err.count("hint:") == 1
    assert "layer_norm" in ran.err
