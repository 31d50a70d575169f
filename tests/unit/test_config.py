"""Settings come from flags, environment, file and defaults, in this order, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from atrex_core import Gate, Protocol, Scale, UsageError
from atrex_core.config import Settings, find_file, load_settings


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, flags: dict[str, Any] | None = None, **environment: str) -> Settings:
    return load_settings(flags, environment=environment, folder=folder).settings


def test_defaults() -> None:
    assert attrs.asdict(Settings()) == {
        "backend": None,
        "problem": (),
        "workload": (),
        "scale": None,
        "device": None,
        "targets": (),
        "protocol": Protocol.STRICT,
        "until": None,
        "journal": None,
        "resume": False,
        "profile": None,
        "timeout_s": 60.0,
        "memory_limit_bytes": None,
        "cases": 5,
        "disabled_plugins": (),
        "jobs": 1,
        "format": "table",
        "output": None,
        "perf_budget_s": 0.25,
    }


def test_without_any_layer_everything_is_default(tmp_path: Path) -> None:
    loaded = load_settings(environment={}, folder=tmp_path)

    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert list(loaded.sources) == [field.name for field in attrs.fields(Settings)]


def test_each_layer_overrides_the_next_and_is_remembered(tmp_path: Path) -> None:
    file = write(tmp_path / "atrex.toml", 'backend = "f"\ndevice = "f"\nprofile = "f"\n')

    loaded = load_settings(
        {"backend": "flag", "device": None, "problem": ()},
        environment={"ATREX_BACKEND": "e", "ATREX_DEVICE": "e", "HOME": "/"},
        folder=tmp_path,
    )

    settings, sources = loaded.settings, loaded.sources
    assert (settings.backend, sources["backend"]) == ("flag", "command line")
    assert (settings.device, sources["device"]) == ("e", "ATREX_DEVICE")
    assert (settings.profile, sources["profile"]) == ("f", str(file))
    assert (settings.cases, sources["cases"]) == (5, "default")


def test_a_file_may_hold_every_setting(tmp_path: Path) -> None:
    write(
        tmp_path / "atrex.toml",
        """
        backend = "acmelang"
        problem = ["norm*", "gate, silu"]
        workload = "decode-*"
        scale = "smoke"
        device = "acme:1"
        targets = ["anvil2", "anvil3"]
        protocol = "strict"
        until = "correctness"
        journal = "results/atrex.jsonl"
        resume = true
        profile = "acme-anvil-2"
        timeout-s = 90
        memory-limit-bytes = 8_589_934_592
        cases = 7
        disabled-plugins = ["other"]
        jobs = 2
        format = "json"
        output = "/tmp/report.json"
        perf-budget-s = 0.5
        """,
    )

    assert load(tmp_path) == Settings(
        backend="acmelang",
        problem=("norm*", "gate", "silu"),
        workload=("decode-*",),
        scale=Scale.SMOKE,
        device="acme:1",
        targets=("anvil2", "anvil3"),
        protocol=Protocol.STRICT,
        until=Gate.CORRECTNESS,
        journal=tmp_path / "results" / "atrex.jsonl",
        resume=True,
        profile="acme-anvil-2",
        timeout_s=90.0,
        memory_limit_bytes=8589934592,
        cases=7,
        disabled_plugins=("other",),
        jobs=2,
        format="json",
        output=Path("/tmp/report.json"),
        perf_budget_s=0.5,
    )


def test_the_environment_may_hold_every_kind_of_setting(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        ATREX_PROBLEM="norm*, gate",
        ATREX_SCALE="full",
        ATREX_JOURNAL="a.jsonl",
        ATREX_RESUME="Yes",
        ATREX_TIMEOUT_S="1.5",
        ATREX_CASES="9",
        ATREX_DEVICE="",
    )

    assert settings == Settings(
        problem=("norm*", "gate"),
        scale=Scale.FULL,
        journal=Path("a.jsonl"),
        resume=True,
        timeout_s=1.5,
        cases=9,
    )


def test_flags_may_be_typed_or_text(tmp_path: Path) -> None:
    flags = {"scale": Scale.FULL, "until": "compile", "problem": ("a,b", "c"), "jobs": 3}

    assert load(tmp_path, flags) == Settings(
        scale=Scale.FULL, until=Gate.COMPILE, problem=("a", "b", "c"), jobs=3
    )


def test_a_flag_that_says_no_overrides_a_file_that_says_yes(tmp_path: Path) -> None:
    write(tmp_path / "atrex.toml", "resume = true\n")

    assert load(tmp_path, {"resume": False}).resume is False
    assert load(tmp_path, {"resume": None}).resume is True


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    outer = write(tmp_path / "atrex.toml", "cases = 6\n")
    nearer = write(tmp_path / "a" / "pyproject.toml", "[tool.atrex-eval]\ncases = 8\n")
    write(inner / "pyproject.toml", "[tool.other]\ncases = 9\n")

    assert find_file(inner) == nearer
    assert load(inner).cases == 8
    nearer.unlink()
    assert find_file(inner) == outer


def test_atrex_toml_wins_over_pyproject_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "atrex.toml", "cases = 6\n")
    write(tmp_path / "pyproject.toml", "[tool.atrex-eval]\ncases = 8\njobs = 4\n")

    assert load(tmp_path) == Settings(cases=6)


BAD_FILES = {
    "unknown key": (
        'backnd = "x"',
        "unknown key 'backnd'",
        "did you mean 'backend'? available: backend, ",
    ),
    "snake case": ("timeout_s = 1", "unknown key 'timeout_s'", "did you mean 'timeout-s'? "),
    "text for number": ('timeout-s = "5"', "'timeout-s' must be a number, not '5'", ""),
    "infinite": ("timeout-s = inf", "'timeout-s' must be a finite number, not inf", ""),
    "negative": ("timeout-s = -1", "'timeout-s' is out of range: -1", "'timeout_s' must be >= 0.1"),
    "none": ("memory-limit-bytes = 0", "'memory-limit-bytes' is out of range: 0", ""),
    "too short": (
        "timeout-s = 0.01",
        "'timeout-s' is out of range: 0.01",
        "'timeout_s' must be >= 0.1: 0.01",
    ),
    "too long": (
        "timeout-s = 1e7",
        "'timeout-s' is out of range: 10000000.0",
        "'timeout_s' must be <= ",
    ),
    "too little": (
        "memory-limit-bytes = 67108863",
        "'memory-limit-bytes' is out of range: 67108863",
        "'memory_limit_bytes' must be >= 67108864: 67108863",
    ),
    "too much": (
        "memory-limit-bytes = 1125899906842625",
        "'memory-limit-bytes' is out of range: 1125899906842625",
        "'memory_limit_bytes' must be <= 1125899906842624: ",
    ),
    "too many cases": (
        "cases = 10001",
        "'cases' is out of range: 10001",
        "'cases' must be <= 10000: ",
    ),
    "too many jobs": ("jobs = 1025", "'jobs' is out of range: 1025", "'jobs' must be <= 1024: "),
    "no budget": (
        "perf-budget-s = 0",
        "'perf-budget-s' is out of range: 0",
        "'perf_budget_s' must be >= 0.001",
    ),
    "big budget": (
        "perf-budget-s = 3601",
        "'perf-budget-s' is out of range: 3601",
        "'perf_budget_s' must be <= 3600.0",
    ),
    "unprintable number": (
        f"cases = 0x{'f' * 5000}",
        "'cases' is out of range: a number that is too long to print",
        "",
    ),
    "path of no user": (
        'journal = "~nobody-of-that-name/x"',
        "'journal' must be a path that exists, not '~nobody-of-that-name/x'",
        "write the path out",
    ),
    "path with a zero": ('journal = "a\\u0000b"', "'journal' must be a path, not 'a\\x00b'", ""),
    "no device": (
        "device = []",
        "'device' must be one name or more, not []",
        "leave it out where none is meant",
    ),
    "boolean for number": ("cases = true", "'cases' must be an integer, not True", ""),
    "float for integer": ("cases = 5.0", "'cases' must be an integer, not 5.0", ""),
    "too few": ("cases = 0", "'cases' is out of range: 0", "'cases' must be >= 1: 0"),
    "number for boolean": ("resume = 1", "'resume' must be true or false, not 1", ""),
    "number for text": ("backend = 1", "'backend' must be text, not 1", ""),
    "empty text": ('backend = ""', "'backend' must be text, not ''", ""),
    "number for path": ("journal = 1", "'journal' must be a path, not 1", ""),
    "numbers for names": (
        "problem = [1]",
        "'problem' must be text or a list of texts, not [1]",
        "",
    ),
    "table for text": ("[backend]", "'backend' must be text, not {}", ""),
    "unknown choice": (
        'scale = "fulll"',
        "'scale' must be one of full, smoke, not 'fulll'",
        "did you mean 'full'?",
    ),
}


@pytest.mark.parametrize(("text", "message", "hint"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_an_error_that_names_file_and_key(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    own = write(tmp_path / "atrex.toml", text)

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{own}: {message}"
    assert caught.value.hint.startswith(hint)


def test_a_bad_key_in_pyproject_names_the_table(tmp_path: Path) -> None:
    shared = write(tmp_path / "pyproject.toml", "[tool.atrex-eval]\ncase = 8\n")

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{shared} [tool.atrex-eval]: unknown key 'case'"


@pytest.mark.parametrize("name", ["atrex.toml", "pyproject.toml"])
def test_broken_toml_names_the_line(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, "\n[tool.atrex-eval]\ncases = = 5\n")

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{file} is not valid TOML: Invalid value (at line 3, column 9)"


def test_number_of_thousands_of_digits_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "atrex.toml", f"cases = {'9' * 5000}\n")

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert str(caught.value).startswith(f"{file} cannot be read as TOML: Exceeds the limit ")


def test_a_pyproject_without_our_table_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "tool = 1")

    assert load(tmp_path) == Settings()


def test_a_table_of_ours_that_is_no_table_is_an_error(tmp_path: Path) -> None:
    shared = write(tmp_path / "pyproject.toml", "[tool]\natrex-eval = 1")

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{shared}: 'tool.atrex-eval' is not a table"


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "atrex.toml").write_bytes(b"backend = '\xff'")

    with pytest.raises(UsageError, match=r"atrex\.toml is not UTF-8 text"):
        load(tmp_path)


BAD_VARIABLES = {
    "misspelt": ("ATREX_BACKEDN", "x", "unknown variable ATREX_BACKEDN"),
    "number": ("ATREX_CASES", "many", "variable ATREX_CASES must be an integer, not 'many'"),
    "nan": (
        "ATREX_TIMEOUT_S",
        "nan",
        "variable ATREX_TIMEOUT_S must be a finite number, not 'nan'",
    ),
    "boolean": (
        "ATREX_RESUME",
        "maybe",
        "variable ATREX_RESUME must be true or false, not 'maybe'",
    ),
    "choice": ("ATREX_UNTIL", "perf", "variable ATREX_UNTIL must be one of compile, correctness, "),
}


@pytest.mark.parametrize(("name", "value", "message"), BAD_VARIABLES.values(), ids=BAD_VARIABLES)
def test_a_bad_variable_is_an_error_that_names_it(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, **{name: value})

    assert str(caught.value).startswith(message)


def test_variables_of_plugins_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, ATREX_CACHE_DIR="/x", ATREX_ACME_VERBOSE="1") == Settings()


def test_an_unknown_flag_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown setting 'sclae'") as caught:
        load(tmp_path, {"sclae": "full"})

    assert caught.value.hint.startswith("did you mean 'scale'?")


def test_a_bad_flag_is_named_as_it_is_typed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--timeout is out of range: 0"):
        load(tmp_path, {"timeout_s": 0})
