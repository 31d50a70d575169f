"""A profile that a user wrote: what it may say, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from atrex_core import ArithmeticPath, Ceiling, Confidence, Device, HardwareProfile, PluginHost
from atrex_core.config import load_settings
from atrex_core.errors import UsageError
from atrex_core.profile_choice import check_profile
from atrex_core.profile_files import is_path, read_profile

DOCS = Path(__file__).parents[2] / "docs" / "hardware-profiles.md"
WHOLE = """
name = "mine"
source = "a data sheet"
bandwidth_bytes_per_s = 2e12
[peak_flops]
fp32_vector = 10e12
"""
CARD = Device(id="anvil:0", accelerator="anvil", vendor="acme", name="Anvil 2", arch="anvil2")


def reading(tmp_path: Path, text: str | bytes) -> HardwareProfile:
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_profile(path)


def test_the_example_of_the_docs_is_complete_and_can_be_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(name = .*?)```", DOCS.read_text(), re.DOTALL)

    profile = reading(tmp_path, example)

    assert profile.name == "anvil-2-oc"
    assert set(profile.peak_flops) == set(ArithmeticPath)
    assert profile.peak_flops[ArithmeticPath.BF16_MATRIX].value == 480e12
    assert profile.peak_flops[ArithmeticPath.BF16_MATRIX].confidence is Confidence.HIGH
    odd = profile.peak_flops[ArithmeticPath.FP4_MATRIX]
    assert (odd.source, odd.confidence) == ("Acme support, ticket 17", Confidence.LOW)
    assert profile.bandwidth_bytes_per_s.value == 2.4e12
    assert profile.memory_bytes is not None
    assert profile.memory_bytes.source == "acme-smi on the machine itself"
    assert profile.matrix_clock_hz is not None
    assert profile.ceiling is Ceiling.SPEC
    assert profile.notes == ("The card's power limit is raised.",)


def test_the_least_that_a_file_must_say(tmp_path: Path) -> None:
    profile = reading(tmp_path, WHOLE)

    figure = profile.peak_flops[ArithmeticPath.FP32_VECTOR]
    assert (figure.value, figure.source) == (10e12, "a data sheet")
    assert figure.confidence is Confidence.MEDIUM
    assert profile.memory_bytes is None


def test_the_digest_is_that_of_the_figures(tmp_path: Path) -> None:
    first = reading(tmp_path, WHOLE).digest

    assert reading(tmp_path, WHOLE + "# a remark\n").digest == first
    assert reading(tmp_path, WHOLE.replace("2e12", "3e12")).digest != first


@pytest.mark.parametrize(
    ("old", "new", "error", "hint"),
    [
        ('name = "mine"', "", "'name' is missing", "one line of text"),
        ('name = "mine"', "name = 3", "'name' must be one line of text, not 3", "example"),
        ('"mine"', '"a/b"', "'name' must be a name, not a path, not 'a/b'", "example"),
        ("[peak_flops]", "[peaks]", "unknown key 'peaks'", r"did you mean 'peak_flops'\?"),
        ("fp32_vector = 10e12", "", "'peak_flops' must be a table of peaks, not {}", "bf16_matrix"),
        ("fp32_vector", "fp32_vectr", "unknown key 'peak_flops.fp32_vectr'", "did you mean 'fp32_"),
        ("fp32_vector", "bf16_sparse", "unknown key 'peak_flops.bf16_sparse'", "peaks are dense"),
        ("10e12", "nan", "'peak_flops.fp32_vector' must be a finite number above 0, not nan", "="),
        ("10e12", "inf", "must be a finite number above 0, not inf", "for example"),
        ("10e12", "-1.0", r"must be a finite number above 0, not -1.0", "for example"),
        ("10e12", "0", "must be a finite number above 0, not 0", "for example"),
        ("10e12", "true", "must be a finite number above 0, not True", "for example"),
        ("10e12", '"10e12"', "must be a finite number above 0, not '10e12'", "fp32_vector = {"),
        ("10e12", "[1]", r"must be a finite number above 0, not \[1\]", "for example"),
        ("10e12", "1" + "0" * 400, "must be a finite number above 0, not 10000", "for example"),
        ("10e12", "{ source = 'x' }", "'peak_flops.fp32_vector' is missing", "value = 1.5e12"),
        ("10e12", "{ value = 1e12, src = 'x' }", "unknown key 'peak_flops.fp32_vector.src'", "sou"),
        ("10e12", "{ value = 1e12, source = '' }", "fp32_vector.source' must be one line", "sheet"),
        ("10e12", "989.4", "must be at least 1e\\+09, not 989.4", "operations per second: write"),
        ("2e12", "2000", "'bandwidth_bytes_per_s' must be at least", "in bytes per second"),
        ("bandwidth_bytes_per_s = 2e12", "", "'bandwidth_bytes_per_s' is missing", "example"),
        ('source = "a data sheet"', "", "'peak_flops.fp32_vector' has no source", "source = "),
        ("source =", 'confidence = "sure"\nsource =', "'confidence' must be one of high,", "docs/"),
        ("source =", 'ceiling = "roof"\nsource =', "'ceiling' must be one of spec, mea", "docs/"),
        ("source =", 'notes = "one"\nsource =', "'notes' must be a list of texts", "docs/"),
        ("source =", "memory_bytes = -1\nsource =", "'memory_bytes' must be a finite", "example"),
        ('"mine"', '"mi\\nne"', "'name' must be one line of text", "example"),
        ('"mine"', '"mine', "is not valid TOML: .*line 2", "example"),
        ("10e12", "1" * 5000, "cannot be read as TOML|must be a finite number", "example"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(
    tmp_path: Path, old: str, new: str, error: str, hint: str
) -> None:
    assert old in WHOLE

    with pytest.raises(UsageError, match=error) as raised:
        reading(tmp_path, WHOLE.replace(old, new, 1))

    assert "mine.toml" in str(raised.value)
    assert re.search(hint, raised.value.hint)
    assert "\n" not in str(raised.value) + raised.value.hint


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"", "'name' is missing"),
        (b"a = " + b"[" * 5000, "TOML"),
        (b"#" * (2**20 + 1), "larger than a mebibyte"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        reading(tmp_path, content)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(WHOLE)
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")

    with pytest.raises(UsageError, match="no such file") as missing:
        read_profile(tmp_path / "mien.toml")
    with pytest.raises(UsageError, match="is a folder"):
        read_profile(tmp_path / "folder.toml")
    with pytest.raises(UsageError, match="is no regular file"):
        read_profile(tmp_path / "pipe.toml")
    assert missing.value.hint == f"did you mean '{tmp_path}/mine.toml'?"


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("h200", False), ("mine.toml", True), ("./mine", True), ("a/b.toml", True), ("toml", False)],
)
def test_what_is_a_path(profile: str, expected: bool) -> None:
    assert is_path(profile) is expected


def test_a_path_in_the_settings_file_starts_where_the_file_is(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "atrex.toml").write_text('profile = "mine.toml"\n')

    def profile_of(**options: str) -> str | None:
        found = load_settings(options, environment={}, folder=below)
        return found.settings.profile

    assert profile_of() == str(tmp_path / "mine.toml")
    assert profile_of(profile="mine.toml") == "mine.toml"
    assert profile_of(profile="~/mine.toml") == str(Path.home() / "mine.toml")
    (tmp_path / "atrex.toml").write_text('profile = "acme/anvil"\n')
    assert profile_of() == "acme/anvil"


def test_an_installed_name_with_a_slash_is_no_path(
    plugin: Callable[..., object], profile: Callable[..., HardwareProfile]
) -> None:
    host = PluginHost.of(plugin("acme", profile("acme/anvil")))

    found = host.profile_for(CARD, "acme/anvil")

    assert found is not None
    assert found.name == "acme/anvil"


@pytest.mark.parametrize(("tflops", "warns"), [(2.0, True), (1.99, True), (1.0, False)])
def test_twice_the_installed_peak_is_warned_of(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    plugin: Callable[..., object],
    profile: Callable[..., HardwareProfile],
    tflops: float,
    warns: bool,
) -> None:
    host = PluginHost.of(plugin("acme", profile("acme-anvil-2")))
    (tmp_path / "mine.toml").write_text(WHOLE.replace("10e12", f"{tflops}e12"))

    check_profile(host, CARD, str(tmp_path / "mine.toml"))

    warning = (
        "profile 'mine' has twice the peak of 'acme-anvil-2' for fp32_vector: "
        "peaks are dense, without sparsity"
    )
    assert [record.getMessage() for record in caplog.records] == [warning] * warns
