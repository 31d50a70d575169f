"""`atrex-eval problems show`: what is known of a problem."""

from __future__ import annotations

from typing import Any

import pytest

_LOOSE = """
    class Loose(Sum):
        def tolerance(self, output):
            return Allclose(absolute=1e9, relative=0)

        def cost(self, w, inputs=None):
            return Cost(flops={ArithmeticPath.FP32_VECTOR: 7}, read_bytes=5, write_bytes=3)

    class Both(Sum):
        name = "odd_both"

        def more_mutants(self):
            return {"right": lambda w, i: {"out": i["x"] + i["y"]}}

        def under(self, protocol):
            return self if protocol is Protocol.STRICT else Loose()

    PROBLEMS = [Both()]
"""


def test_show_tells_what_a_problem_is(with_pack: Any) -> None:
    cli = with_pack(_LOOSE)

    table = cli.run("problems", "show", "odd_both", "--workload", "r17")
    sheet = cli.run("problems", "show", "odd_both", "--format", "json").document["problem"]

    assert (table.code, table.err) == (0, "")
    lines = table.out.splitlines()
    assert lines[0] == "odd_both: x plus y"
    assert "smoke       3 workloads: r1, r3, r17" in lines
    assert "input       x: fp32 [17, 8], 544 bytes" in lines
    paper = lines.index("paper       regimes nominal, large")
    assert "  work      136 operations on fp32_vector" in lines[:paper]
    assert "  work      7 operations on fp32_vector" in lines[paper:]
    assert "  bytes     5 read, 3 written" in lines[paper:]
    assert "variants    commuted, wide" in lines
    assert sheet["workload"]["id"] == "r1"
    assert sheet["protocols"]["paper"]["rules"] == {
        "out": "each element within 1e+09 + 0 times its own size of the reference"
    }
    assert sheet["cost"] == sheet["protocols"]["strict"]["cost"]
    assert sheet["protocols"]["paper"]["cost"]["flops"] == {"fp32_vector": 7}
    assert sheet["mutants"][-2:] == ["rolled", "right"]


def test_show_takes_a_glob_and_orders_what_it_matches(with_pack: Any) -> None:
    cli = with_pack("class Many(Sum):\n    rows = (1, 10, 2, 3)\n\nPROBLEMS = [Many()]")

    table = cli.run("problems", "show", "odd_sum", "--workload", "r[12]*")
    document = cli.run(
        "problems", "show", "odd_sum", "--workload", "r[12]*", "--format", "json"
    ).document

    assert "smoke       4 workloads: r1, r2, r3, r10" in table.out.splitlines()
    shown = [line for line in table.out.splitlines() if line.startswith("workload ")]
    assert [line.split()[1] for line in shown] == ["r1", "r2", "r10"]
    assert document["problem"]["workload"]["id"] == "r1"
    assert [more["workload"]["id"] for more in document["more"]] == ["r2", "r10"]


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        (("acme_scale_sum",), 2, "no problem is named 'acme_scale_sum'", "did you mean"),
        (
            ("acme_scaled_sum", "--workload", "smal"),
            5,
            "'acme_scaled_sum' has no workload that matches 'smal'",
            "did you mean 'small'?",
        ),
    ],
    ids=["problem", "workload"],
)
def test_show_of_what_there_is_not(
    shared_cli: Any, arguments: tuple[str, ...], code: int, error: str, hint: str
) -> None:
    ran = shared_cli.run("problems", "show", *arguments)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.splitlines()[0] == f"error: {error}"
    assert ran.err.splitlines()[1].startswith(f"hint: {hint}")
