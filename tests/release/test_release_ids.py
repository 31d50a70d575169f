"""A release id is another name of the same problem, wherever problems are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from atrex_core import PluginError, Problem, UnknownName, UsageError, hookimpl
from atrex_core.candidates import find_candidates
from atrex_core.plugins import PluginHost

Make = Callable[..., Problem]


class _Plugin:
    """Provides some problems."""

    def __init__(self, name: str, *problems: Problem) -> None:
        self.__name__ = name
        self.problems = problems

    @hookimpl
    def atrex_problems(self) -> Iterable[Problem]:
        return self.problems


@pytest.fixture
def host(make: Make) -> PluginHost:
    """Return a host with `half_sum`, also `op_1234`; `gate`, also `op_5678`; and `op_art`."""
    problems = [make(), make(name="gate", release_id="op_5678")]
    problems.append(make(name="op_art", release_id="op_art"))
    return PluginHost.of(_Plugin("pack", *problems))


def test_problem_is_found_by_both_names(host: PluginHost) -> None:
    assert host.problems["op_1234"] is host.problems["half_sum"]
    assert "op_1234" in host.problems
    assert host.problems.names == ("gate", "half_sum", "op_art")
    assert len(host.problems) == 3


@pytest.mark.parametrize(
    ("globs", "selected"),
    [
        (["op_1234"], ["half_sum"]),
        (["op_1234,gate"], ["gate", "half_sum"]),
        (["op_1*", "half*"], ["half_sum"]),
        (["op_[15]*"], ["gate", "half_sum"]),
        (["op_*"], ["op_art"]),
        ([], ["gate", "half_sum", "op_art"]),
    ],
    ids=["id", "id and name", "twice", "glob", "names come first", "all"],
)
def test_globs_match_release_ids_where_they_match_no_name(
    host: PluginHost, globs: list[str], selected: list[str]
) -> None:
    assert [problem.name for problem in host.problems.select(*globs)] == selected


def test_unknown_release_id_is_an_unknown_name(host: PluginHost) -> None:
    with pytest.raises(UnknownName, match="no problem matches 'op_9999'") as caught:
        host.problems.select("op_9999")

    assert caught.value.hint.endswith("available: gate, half_sum, op_art")


def test_candidates_may_be_called_by_release_id(host: PluginHost, tmp_path: Path) -> None:
    backend = next(iter(PluginHost.discover().backends))
    folder = tmp_path / "answers"
    for name in ("op_1234.py", "op_5678/first.py", "gate/second.py", "op_0000.py", "x/half_sum.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    problems = list(host.problems)

    by_folder = list(find_candidates(host, backend, problems, [folder]))
    by_file = list(find_candidates(host, backend, problems, [folder / "op_1234.py"]))
    inside = list(find_candidates(host, backend, problems, [folder / "op_5678" / "first.py"]))

    found = {(c.problem, c.name) for c in by_folder}
    assert found == {
        ("half_sum", "answers"),
        ("gate", "first"),
        ("gate", "second"),
        ("half_sum", "x"),
    }
    assert [(c.problem, c.name) for c in by_file] == [("half_sum", "op_1234")]
    assert [(c.problem, c.name) for c in inside] == [("gate", "first")]


def test_candidate_of_no_known_name_is_refused(host: PluginHost, tmp_path: Path) -> None:
    path = tmp_path / "op_0000.py"
    path.write_text("")
    backend = next(iter(PluginHost.discover().backends))

    with pytest.raises(UsageError, match=r"cannot tell which problem '.*op_0000\.py' solves"):
        list(find_candidates(host, backend, list(host.problems), [path]))


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (("one", "op_1"), ("two", "op_1"), "op_1"),
        (("one", "two"), ("two", "op_2"), "two"),
        (("two", "op_2"), ("zero", "two"), "two"),
    ],
    ids=["two ids", "an id and a later name", "a name and a later id"],
)
def test_clash_of_release_ids_names_both(
    make: Make, first: tuple[str, str], second: tuple[str, str], what: str
) -> None:
    problems = [make(name=name, release_id=id_) for name, id_ in (first, second)]

    with pytest.raises(PluginError) as caught:
        PluginHost.of(*(_Plugin(f"pack{n}", p) for n, p in enumerate(problems)))

    assert str(caught.value) == (
        f"problems {first[0]!r} of plugin 'pack0' (in memory) and {second[0]!r} "
        f"of plugin 'pack1' (in memory) both answer to {what!r}"
    )
    assert caught.value.hint == (
        "give one of them another release id, or run with --disable-plugin pack0 or pack1"
    )


@pytest.mark.parametrize("release_id", ["op-1", "1op", "", "a b", "_op"])
def test_release_id_that_is_no_identifier_is_refused(make: Make, release_id: str) -> None:
    with pytest.raises(PluginError, match=r"'half_sum' has an unusable release id: "):
        make(release_id=release_id)
