"""What a release's texts give away, and code that is more than public."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from atrex_core import Problem
from atrex_core.release import Claim, Standing, release_of
from atrex_core.release.alone import alone_claim
from atrex_core.release.facts import facts_of
from atrex_core.release.numbers import keys_of, numbers_in
from atrex_core.release.readings import made_plain
from atrex_core.release.texts import Texts, text_claims

Make = Callable[..., Problem]

_NUMBERS = "no weight, time, count, cost or tolerance is there"
_WORDS = "no kernel, framework, device or source that the private files name is there"
_CALLED = "no problem is called as a kernel that its private files name"
_NAMES = "nothing that private code defines is named: no mutant, variant or rule"
_EVALUATOR = "nothing of the evaluator is named"
_PLACES = "no place on this machine is named"
_TEXTS = "texts are plain: ASCII letters and digits, nothing that cannot be seen"
_CODE = "public code is made of torch alone and reaches for nothing outside itself"
_ALL = [_NUMBERS, _WORDS, _CALLED, _NAMES, _EVALUATOR, _PLACES, _TEXTS, _CODE]

_DOCSTRING = "the sum of both halves"


def _claims(problem: Problem) -> list[Claim]:
    texts = Texts.of(release_of([problem]).files)
    return list(text_claims(texts, [facts_of(problem)], [Path(__file__).parent]))


def _refuted(problem: Problem) -> dict[str, str]:
    return {c.text: c.detail for c in _claims(problem) if c.standing is Standing.FAIL}


def test_clean_release_keeps_every_claim(make: Make) -> None:
    claims = _claims(make())

    assert [claim.text for claim in claims] == _ALL
    assert {claim.standing for claim in claims} == {Standing.PASS}


@pytest.mark.parametrize(
    ("said", "claim", "detail"),
    [
        ("weight 0.0123457", _NUMBERS, "0.0123457 (importance)"),
        ("weight 1.23457 %", _NUMBERS, "1.23457 (importance"),
        ("weight 0.01235", _NUMBERS, "0.01235 (importance)"),
        ("takes 14.27 us", _NUMBERS, "14.27 (private.json: us)"),
        ("moves 83291 bytes", _NUMBERS, "83291 (private.json: bytes)"),
        ("moves 83_291 bytes", _NUMBERS, "83_291 (private.json: bytes)"),
        ("from Fastlib", _WORDS, "'fastlib' (private.json: library)"),
        ("from some-bench", _WORDS, "'some-bench' (private.json: source)"),
        ("at 1A2B3C4", _WORDS, "'1a2b3c4' (private.json: source)"),
        ("as half_sum_kernel does", _WORDS, "'half_sum_kernel' (private.json: symbol)"),
        ("not second_half_only", _NAMES, "'second_half_only' (the name of a mutant)"),
        ("as summed_pairwise", _NAMES, "'summed_pairwise'"),
        ("see own_mutants", _NAMES, "'own_mutants' (defined in private.py)"),
        ("judged by CodeSteps", _NAMES, "'CodeSteps' (a rule of comparison)"),
        ("see atrex_core.packs", _EVALUATOR, "'atrex_core'"),
        ("see private.json", _EVALUATOR, "'private.json'"),
        ("near its roofline", _EVALUATOR, "'roofline'"),
        (f"see {Path(__file__).parent}", _PLACES, str(Path(__file__).parent)),
        ("see /home/someone", _PLACES, "'/home/someone'"),
    ],
    ids=lambda value: value if isinstance(value, str) and value not in _ALL else "",
)
def test_private_fact_in_a_docstring_is_found(
    make: Make, said: str, claim: str, detail: str
) -> None:
    problem = make({"public/reference.py": (_DOCSTRING, f"{_DOCSTRING}, {said}")})

    found = _refuted(problem)

    assert list(found) == [claim]
    assert "'op_1234/reference.py' has " in found[claim]
    assert detail in found[claim]


@pytest.mark.parametrize(
    "said",
    ["27 of them", "half of it, 0.5", "17 rows", "65536 and 1e-6", "a tree", "halved", "14.3 us"],
)
def test_what_any_text_may_say_gives_nothing_away(make: Make, said: str) -> None:
    problem = make({"public/reference.py": (_DOCSTRING, f"{_DOCSTRING}, {said}")})

    assert _refuted(problem) == {}


def test_number_of_a_shape_gives_nothing_away(make: Make) -> None:
    problem = make(
        {
            "public/shapes.json": ('"rows": 17', '"rows": 83291'),
            "public/reference.py": (_DOCSTRING, f"{_DOCSTRING}, of 83291 rows"),
        }
    )

    assert _refuted(problem) == {}


@pytest.mark.parametrize("axes", ['"note": 83291, ', '"note": 0.0123457, ', '"note": "fastlib", '])
def test_fact_among_axes_does_not_excuse_itself(make: Make, axes: str) -> None:
    problem = make({"public/shapes.json": ('"axes": {', f'"axes": {{{axes}')})

    (detail,) = _refuted(problem).values()

    assert "'op_1234/shapes.json' has " in detail


@pytest.mark.parametrize("release_id", ["half_sum_kernel", "halfsum_kernel2", "sum_kernel"])
def test_release_id_that_is_like_the_kernel_is_found(make: Make, release_id: str) -> None:
    found = _refuted(make(release_id=release_id))

    assert "it needs another release id" in found[_CALLED]


def test_file_that_is_no_text_is_found(make: Make) -> None:
    files = {**release_of([make()]).files, "op_1234/inputs.py": b"\xff\xfe"}

    found = {c.text: c.detail for c in text_claims(Texts.of(files), [], [])}

    assert "'op_1234/inputs.py' is no text" in found[_TEXTS]


@pytest.mark.parametrize(
    ("private", "written"),
    [
        (0.027508, "0.027508"),
        (0.027508, "2.7508e-2"),
        (0.027508, "27508"),
        (0.027508, "0.02751"),
        (13659, "13659"),
        (13659, "1.3659"),
        (9.95, "9.950"),
        (1.9324618867924528, "1.932"),
        (1.9324618867924528, "1.93246"),
    ],
)
def test_telling_number_is_known_again(private: float, written: str) -> None:
    (found,) = [keys for text, keys in numbers_in(f"about {written}, no more") if text == written]

    assert found & set(keys_of(private))


@pytest.mark.parametrize("value", [27, 0.5, 65536, 20480, 1e-6, 8388.608, 8.7, 10000, float("inf")])
def test_ordinary_number_is_not_looked_for(value: float) -> None:
    assert list(keys_of(value)) == []


@pytest.mark.parametrize(
    "written",
    [
        *("x748213", "748213us", "fp8_748213", "1e748213", "748,213", "748 213", "748_213"),
        *("748'213", "0xb6ab5", "0XB6_AB5", "b6ab5", "0b10110110101010110101", "0o2665265"),
        *("7.48213e5", "74.8213%", ".748213", "v1.748213.2", "\uff17\uff14\uff18213"),
    ],
)
def test_number_is_known_however_it_is_written(written: str) -> None:
    keys = {key for _, found in numbers_in(made_plain(f"is {written}, no more")) for key in found}

    assert keys & set(keys_of(748213))


@pytest.mark.parametrize("written", ["14.27us", "0.01427 ms", "14270ns", "0.00001427 s", "1427%"])
def test_short_number_is_known_in_another_unit(written: str) -> None:
    keys = {key for _, found in numbers_in(written) for key in found}

    assert keys & set(keys_of(14.27))


@pytest.mark.parametrize(
    ("private", "written"),
    [
        (0.0123457, "1 in 81"),
        *((0.007234, "7234/1000000"), (0.007234, "7 234 / 1,000,000"), (0.007234, "1/138.2361")),
        *((0.007234, "1 in 138.2361"), (0.007234, "every 138.2361th"), (0.0123457, "1 : 81")),
        *((0.0123457, "2 out of 162"), (0.0123457, "1\u204481"), (14.27, "1427 over 100")),
    ],
)
def test_share_is_known_as_a_quotient(private: float, written: str) -> None:
    keys = {key for _, found in numbers_in(written) for key in found}

    assert keys & set(keys_of(private))


@pytest.mark.parametrize(
    "written", ["7 / 2048", "1 / 128", "1/0", "0/7", "3:4", "65536", "00000.0"]
)
def test_ordinary_quotient_is_no_share(written: str) -> None:
    keys = {key for _, found in numbers_in(written) for key in found}

    assert not keys & {*keys_of(0.0123457), *keys_of(0.007234), *keys_of(14.27)}


def test_number_beside_others_is_none_of_them() -> None:
    found = [Decimal(text) for text, _ in numbers_in("[4096,128,43210] of 27")]

    assert found == [4096, 128, 43210, 27]


# -- a process of their own -----------------------------------------------------------------------


def test_public_half_runs_alone(make: Make) -> None:
    problem = make()

    found = alone_claim(release_of([problem]).files, [problem])

    assert (found.standing, found.detail) == (Standing.PASS, "2 runs of 1 problems")


def test_public_half_that_reads_a_file_or_lies_is_found(make: Make, tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text("{}")
    reads = f"getattr(torch, 'serialization')._open_file({str(tmp_path / 'private.json')!r}, 'rb')"
    reader = make({"public/inputs.py": ("import torch\n", f"import torch\n\n    {reads}\n")})
    liar = make({"public/inputs.py": ("zeros(rows, ", "zeros(1 + rows, ")}, release_id="op_5678")
    absent = make({"public/shapes.json": ('"smoke"', '"added"')}, release_id="op_9999")
    problems = [reader, liar, absent]

    found = alone_claim(release_of(problems).files, problems)

    assert found.standing is Standing.FAIL
    assert f"op_1234/small (nominal) opens {tmp_path / 'private.json'}" in found.detail
    assert "op_5678/small (nominal): draws [['x', 'bf16', [3, 8]], ['y', 'fp32', [4, 4]]," in (
        found.detail
    )


def test_problem_without_a_small_workload_is_not_proved(make: Make) -> None:
    problem = make({"public/shapes.json": ('"smoke"', '"added"')})

    found = alone_claim(release_of([problem]).files, [problem])

    assert (found.standing, found.detail) == (
        Standing.FAIL,
        "'op_1234' has no small workload to run",
    )
