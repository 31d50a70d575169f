"""The view of a problem: what it lets through, what it is called, what its interface says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from atrex_problems_production import atrex_problems

from atrex_core import PluginError, Problem, Protocol
from atrex_core.probe import ProbeProblem
from atrex_core.release import release_view

PRODUCTION = {problem.name: problem for problem in atrex_problems()}

Make = Callable[..., Problem]


def test_view_holds_the_allow_list_and_nothing_else(make: Make) -> None:
    assert list(release_view(make())) == [
        "reference.py",
        "inputs.py",
        "shapes.json",
        "INTERFACE.md",
    ]


def test_view_of_a_problem_without_public_files_describes_its_interface() -> None:
    view = release_view(ProbeProblem())

    assert list(view) == ["INTERFACE.md"]
    assert b"| `z` | fp32 | [n] |" in view["INTERFACE.md"]


def test_own_name_becomes_the_release_id_where_it_is_a_word(make: Make) -> None:
    reference = release_view(make())["reference.py"].decode()

    assert reference.startswith(
        '"""`op_1234`: the sum of both halves of each row, as op_1234.py computes it."""'
    )
    assert '"""See `x.half_sum` and a_half_sum."""' in reference


def test_own_name_stays_where_it_is_the_release_id(make: Make) -> None:
    view = release_view(make(release_id="half_sum"))

    assert view["reference.py"].startswith(b'"""`half_sum`: the sum of both halves')
    assert view["INTERFACE.md"].startswith(b"# half_sum\n")


def test_own_name_cannot_be_replaced_where_a_tensor_has_it(make: Make) -> None:
    with pytest.raises(PluginError, match="a size or tensor with its own name"):
        release_view(make(name="x"))


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ('"phase"', '"weight": 1, "phase"', "has 'weight' in its shapes.json"),
        ('{"id": "0"', '{"us": 3, "id": "0"', "has 'us' of a workload in its shapes.json"),
        ('{"id": "0"', '{"id": "z", "id": "0"', "has a key twice in its shapes.json"),
    ],
    ids=["key", "workload key", "twice"],
)
def test_shapes_say_no_more_than_shapes(make: Make, old: str, new: str, refused: str) -> None:
    problem = make()
    shapes = next(path for path in problem.public_files if path.name == "shapes.json")
    shapes.write_text(shapes.read_text().replace(old, new, 1))  # a pack would not load with it

    with pytest.raises(PluginError, match=f"problem 'half_sum' {refused}"):
        release_view(problem)


def test_public_file_outside_the_allow_list_is_refused(make: Make) -> None:
    more = "public_files = property(lambda self: [self.folder / 'public' / 'notes.md'])"
    problem = make({"private.py": ("in_place =", f"{more}\n        in_place =")})

    with pytest.raises(PluginError) as caught:
        release_view(problem)

    assert str(caught.value) == (
        "problem 'half_sum' lists 'notes.md' as public, which no release may hold"
    )
    assert caught.value.hint.startswith("a view holds reference.py, inputs.py, shapes.json")


def test_problem_that_cannot_describe_its_tensors_is_named(make: Make) -> None:
    problem = make({"private.py": ("rows, columns = w", "rows, columns, none = w")})

    with pytest.raises(PluginError, match=r"^problem 'half_sum' cannot be shown: ValueError: "):
        release_view(problem)


def test_interface_tells_constructor_parameters_and_outputs(make: Make) -> None:
    text = release_view(make())["INTERFACE.md"].decode()

    assert text.startswith("# op_1234\n\nWrite `op_1234.py`: one Python file")
    assert "`Model(scale)` is constructed by keyword" in text
    assert "| `scale` | 0.5 |" in text
    assert "`forward(x, y, mask)` is called by keyword" in text
    assert "| `x` | as `dtype` says | [rows, 2 * columns] |" in text
    assert "| `y` | fp32 | [rows, columns] |" in text
    assert "| `mask` | bool | by workload, below; not in every workload |" in text
    assert "| workload | `mask` |" in text
    assert "| 0 | - |" in text
    assert "| 1 | bool [3] |" in text
    assert "It returns a dict with exactly these keys." in text
    assert "- Output `y` may also be the input `y` itself, updated in place." in text
    assert "- Inputs keep their values, except `y`." in text
    assert "at least 5 draws" in text
    assert "every regime:\n  nominal, loud." in text or "every regime: nominal, loud." in text


@pytest.mark.parametrize("problem", PRODUCTION.values(), ids=PRODUCTION)
def test_every_protocol_shows_the_same_view(problem: Problem) -> None:
    paper = problem.under(Protocol.PAPER)
    assert paper is not None

    assert paper.release_id == problem.release_id
    assert release_view(paper) == release_view(problem)


def test_release_id_of_the_pack_is_what_its_private_file_says() -> None:
    for problem in PRODUCTION.values():
        facts = json.loads((problem.public_files[0].parents[1] / "private.json").read_bytes())
        assert problem.release_id == (facts.get("release_id") or problem.name)
    assert PRODUCTION["rms_norm"].release_id == "op_e9b9"
