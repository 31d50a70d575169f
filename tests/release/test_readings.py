"""Private facts that hide in a release: spelled otherwise, encoded, or put together by code."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable

import pytest

from atrex_core import Problem
from atrex_core.release import Standing, release_of
from atrex_core.release.facts import facts_of
from atrex_core.release.folding import constants_of
from atrex_core.release.readings import encodings, made_plain
from atrex_core.release.texts import Texts, text_claims

Make = Callable[..., Problem]

_SYMBOL = "half_sum_kernel"
_NUMBER = "83291"
_TEXTS = "texts are plain: ASCII letters and digits, nothing that cannot be seen"


def _refuted(problem: Problem, path: str, more: str) -> dict[str, str]:
    files = dict(release_of([problem]).files)
    files[path] += more.encode()
    claims = text_claims(Texts.of(files), [facts_of(problem)], [])
    return {c.text: c.detail for c in claims if c.standing is Standing.FAIL}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "said",
    [
        "HalfSumKernel",
        "halfSumKernel",
        "halfsumkernel",
        "my_half_sum_kernel_v2",
        "HALF_SUM_KERNEL",
        "half-sum-kernel",
        "the half sum kernel",
        "a half  sum-kernel",
        "a half\n# sum kernel",
        "second half only, too",
        "Second `half` only",
        "launch2half_sum_kernel",
        "half_sum_kernel"[::-1],
        codecs.encode("half_sum_kernel", "rot13"),
        codecs.encode("HalfSumKernel", "rot13"),
        _base64("half_sum_kernel"),
        _base64("x: half_sum_kernel!").rstrip("="),
        base64.urlsafe_b64encode(b"??>>half_sum_kernel").decode(),
        _base64(_base64("half_sum_kernel")),
        _base64("half_sum_kernel"[::-1]),
        _base64("half_sum_kernel")[::-1],
        "id" + _base64("half_sum_kernel"),
        _base64("a half_sum_kernel")[:11] + "\n# " + _base64("a half_sum_kernel")[11:],
        base64.b32encode(b"half_sum_kernel!").decode(),
        b"half_sum_kernel".hex(),
        b"half_sum_kernel".hex(" "),
        b"half_sum_kernel".hex().upper(),
        "half\\x5fsum\\x5fkernel",
        "half\\u005fsum\\137kernel",
        "half\\N{LOW LINE}sum_kernel",
        "half&#95;sum&lowbar;kernel",
        "half%5Fsum%5fkernel",
        "second_half_only_too",
        "SecondHalfOnly",
        "a_fastlib_b",
        "FastlibOp",
        _base64("fastlib/slowlib"),
    ],
)
def test_name_is_found_however_it_is_hidden(make: Make, said: str) -> None:
    found = _refuted(make(), "op_1234/inputs.py", f"# see {said}\n")

    assert len(found) == 1, found
    assert "'op_1234/inputs.py' has " in next(iter(found.values()))


@pytest.mark.parametrize(
    "code",
    [
        '"half_" + "sum_kernel"',
        '"half_" "sum" "_kernel"',
        "f\"half_{'sum'}_kernel\"",
        '"_".join(["half", "sum", "kernel"])',
        '"lenrek_mus_flah"[::-1]',
        '"half-sum-kernel".replace("-", "_").upper()',
        '"\\x68alf_sum_kernel"',
        'chr(104) + "alf_sum_kernel"',
        "bytes([104, 97, 108, 102, 95, 115, 117, 109, 95, 107, 101, 114, 110, 101, 108]).decode()",
        'bytes.fromhex("68616c66" + "5f73756d5f6b65726e656c")',
        "83000 + 291",
        "166582 // 2",
        '"832" + "91"',
        "int('832' + '91')",
    ],
)
def test_fact_that_code_puts_together_is_found(make: Make, code: str) -> None:
    found = _refuted(make(), "op_1234/inputs.py", f"\n\nVALUE = {code}\n")

    facts = [detail for text, detail in found.items() if "public code" not in text]
    assert len(facts) == 1, found
    assert "'op_1234/inputs.py' has " in facts[0]


def test_constants_are_put_together_over_names() -> None:
    code = 'A = "half_"\nB = A + "sum"\n\n\ndef f(x):\n    return f"{B}_{x}_kernel"\n'

    assert {"half_", "half_sum", "half_sum_ _kernel"} <= set(constants_of(code))


@pytest.mark.parametrize(
    "code",
    ["'x' * 10**9", "9 ** 9 ** 9", "1 << 10**9", "'%999999999d' % 1", "[0] * 10**9", "1 / 0"],
)
def test_what_would_grow_is_left_alone(code: str) -> None:
    assert max(map(len, constants_of(f"A = {code}")), default=0) < 10_000


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("half\u200b_sum", "U+200B"),
        ("h\u0430lf", "U+0430"),
        ("hal\u0301f", "U+0301"),
        ("\uff48alf", "U+FF48"),
        ("\u0661", "U+0661"),
        ("\U000e0041", "U+E0041"),
        ("a\tb", "U+0009"),
        ("a\r", "U+000D"),
        ("a  ", "blanks at its end"),
    ],
)
def test_text_that_is_not_plain_is_found(make: Make, said: str, detail: str) -> None:
    found = _refuted(make(), "README.md", f"see {said}\nand\n")

    assert detail in found[_TEXTS]


def test_signs_are_plain(make: Make) -> None:
    assert _refuted(make(), "README.md", "a \u2264 b \u00d7 c \u2013 d\u2026\n") == {}


@pytest.mark.parametrize("said", ["h\u200balf_s\u0301um_kern\u00adel", "\uff48alf_sum_kernel"])
def test_what_cannot_be_seen_hides_nothing(make: Make, said: str) -> None:
    assert made_plain(said) == _SYMBOL
    assert len(_refuted(make(), "README.md", f"see {said}\n")) == 2


def test_escape_in_json_is_found(make: Make) -> None:
    found = _refuted(make(), "op_1234/shapes.json", "\\u005f")

    assert "'op_1234/shapes.json' has an escape" in found[_TEXTS]


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_canary_is_known_in_every_form(before: str) -> None:
    word = "0123456789abcdef"
    hidden = f"{before}{word}zz"
    forms = [
        hidden,
        hidden[::-1],
        codecs.encode(hidden, "rot13"),
        hidden.encode().hex(),
        _base64(hidden),
        base64.urlsafe_b64encode(hidden.encode()).decode(),
    ]

    assert all(any(form in text.encode() for form, _ in encodings(word)) for text in forms)


@pytest.mark.parametrize("zero", ["\u0660", "\u0966", "\U0001d7ce"])
def test_digits_of_any_script_are_digits(make: Make, zero: str) -> None:
    number = "".join(chr(ord(zero) + int(digit)) for digit in _NUMBER)
    pairs = chr(ord(zero) + 6) * 10
    escapes = f"\\x{pairs[:2]} \\u{pairs[:4]} 0x{pairs} {pairs[0]} in {pairs} 1e{pairs[:2]} {pairs}"

    found = _refuted(make(), "op_1234/inputs.py", f"# {number} {escapes}\n")

    assert _NUMBER in str(found.values())
    assert f"U+{ord(number[0]):04X}" in found[_TEXTS]


@pytest.mark.parametrize("part", ["readings", "numbers_in", "spellings", "departures"])
def test_text_that_breaks_the_search_is_no_proof(
    make: Make, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ArithmeticError("of a text")

    monkeypatch.setattr(f"atrex_core.release.texts.{part}", breaks)

    found = _refuted(make(), "op_1234/inputs.py", "")

    assert "ArithmeticError: of a text" in next(iter(found.values()))


@pytest.mark.parametrize(
    "said",
    [
        "the sum of a half, kernel by kernel; `make_inputs` and reference.py",
        "a sum, half: sum. kernel",
        "summed by pairs, and judged in code steps",
        "torch.nn.functional.scaled_dot_product_attention",
        "SGVsbG8gd29ybGQgb2YgcHJvYmxlbXM=",
        "a tree, halved, in tolerance",
        "one-own-mutants-id",
    ],
)
def test_ordinary_text_gives_nothing_away(make: Make, said: str) -> None:
    assert _refuted(make(), "op_1234/inputs.py", f"# {said}\n") == {}
