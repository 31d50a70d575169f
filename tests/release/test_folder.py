"""A release on disk: built by one rename, and known again to the byte."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from atrex_core import Problem, UsageError
from atrex_core.probe import ProbeProblem
from atrex_core.release import Standing, release_of, write
from atrex_core.release.files import Folder, folder_claims, rebuild_claim, rebuilt
from atrex_core.release.folder import TIME_S

Make = Callable[..., Problem]


def test_release_is_the_same_twice_and_lists_every_file(make: Make) -> None:
    problem = make()
    first, second = release_of([problem]), release_of([problem])

    assert first.files == second.files
    assert first.digest == second.digest
    manifest = json.loads(first.files["manifest.json"])
    assert manifest["packs"] == [{"name": "small", "version": "3"}]
    assert manifest["problems"] == ["op_1234"]
    assert [file["path"] for file in manifest["files"]] == sorted(
        {
            *("README.md", "op_1234/INTERFACE.md", "op_1234/inputs.py"),
            *("op_1234/reference.py", "op_1234/shapes.json"),
        }
    )
    assert set(manifest) == {"kind", "schema", "packs", "problems", "files", "digest"}


def test_digest_is_that_of_the_contents(make: Make) -> None:
    other = make({"public/inputs.py": ("Inputs of", "The inputs of")})

    assert release_of([make()]).digest != release_of([other]).digest


def test_problem_without_a_public_half_cannot_be_released() -> None:
    with pytest.raises(UsageError, match="'probe' cannot be released: it has no public reference"):
        release_of([ProbeProblem()])


def test_written_release_is_what_was_to_be_written(make: Make, tmp_path: Path) -> None:
    release = release_of([make()])

    write(release, tmp_path / "out")

    folder = Folder.read(tmp_path / "out")
    assert folder.files == release.files
    entries = (folder.root, *folder.entries)
    assert {(e.is_file, stat.S_IMODE(e.mode)) for e in entries} == {(True, 0o644), (False, 0o755)}
    assert {e.time_ns for e in entries} == {TIME_S * 10**9}
    assert {path.name for path in tmp_path.iterdir()} == {"site", "out"}


def test_earlier_release_is_replaced_whole(make: Make, tmp_path: Path) -> None:
    write(release_of([make(), make(name="other", release_id="op_9999")]), tmp_path / "out")
    release = release_of([make()])

    write(release, tmp_path / "out")

    assert Folder.read(tmp_path / "out").files == release.files
    assert {path.name for path in tmp_path.iterdir()} == {"site", "out"}


def test_empty_folder_is_filled(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    write(release_of([make()]), tmp_path / "out")

    assert (tmp_path / "out" / "manifest.json").is_file()


@pytest.mark.parametrize(
    "held", ["file", "manifest of another kind", "pipe", "link", "note", "edited file"]
)
def test_what_is_no_release_is_never_replaced(make: Make, tmp_path: Path, held: str) -> None:
    out = tmp_path / "out"
    release = release_of([make()])
    out.mkdir()
    match held:
        case "file":
            (out / "thesis.tex").write_text("years of work")
        case "manifest of another kind":
            (out / "manifest.json").write_text('{"kind": "browser extension"}')
        case "pipe":
            os.mkfifo(out / "manifest.json")
        case "link":
            (tmp_path / "m.json").write_bytes(release.files["manifest.json"])
            (out / "manifest.json").symlink_to(tmp_path / "m.json")
        case "note":
            write(release, out)
            (out / "op_1234" / "notes.txt").write_text("mine")
        case "edited file":
            write(release, out)
            (out / "op_1234" / "inputs.py").write_text("mine")
    before = sorted(path.name for path in out.rglob("*"))

    with pytest.raises(
        UsageError, match=r"is not empty, and no release|which is no part of|not as it was"
    ):
        write(release, out)

    assert sorted(path.name for path in out.rglob("*")) == before
    assert not list(tmp_path.glob(".out.*"))


def test_build_that_fails_half_way_leaves_what_was_there(make: Make, tmp_path: Path) -> None:
    write(release_of([make()]), tmp_path / "out")
    before = Folder.read(tmp_path / "out").files
    release = release_of([make({"public/inputs.py": ("Inputs of", "The inputs of")})])
    unwritable = evolve(release, files={**release.files, "z" * 300: b"too long a name"})

    with pytest.raises(UsageError, match=r"cannot write '.*': file name too long"):
        write(unwritable, tmp_path / "out")

    assert Folder.read(tmp_path / "out").files == before
    assert {path.name for path in tmp_path.iterdir()} == {"site", "out"}


def test_what_a_killed_build_has_left_is_removed(make: Make, tmp_path: Path) -> None:
    dead, living = tmp_path / ".out.partial-99999999-x", tmp_path / f".out.partial-{os.getpid()}-x"
    dead.mkdir()
    living.mkdir()

    write(release_of([make()]), tmp_path / "out")

    assert not dead.exists()
    assert living.exists()


# -- tampering ------------------------------------------------------------------------------------

_MANIFEST = "the manifest is well-formed and its digest is its own"
_LISTED = "every file is as the manifest lists it"
_ELSE = "nothing else is there: no further file, folder or link"
_BUILT = "modes and times are those of a build; no attribute or hard link"
_ALLOWED = "only files of the allow-list are there"
_REBUILT = "the installed packs give the same release"


def _append(path: str) -> Callable[[Path], object]:
    return lambda out: (out / path).write_bytes((out / path).read_bytes() + b" ")


def _replace(path: str, old: str, new: str) -> Callable[[Path], object]:
    def change(out: Path) -> None:
        text = (out / path).read_text()
        assert old in text
        (out / path).write_text(text.replace(old, new))

    return change


def _linked(out: Path) -> None:
    (out / "op_1234" / "inputs.py").rename(out.parent / "inputs.py")
    (out / "op_1234" / "inputs.py").symlink_to(out.parent / "inputs.py")


@pytest.mark.parametrize(
    ("tamper", "refuted"),
    [
        pytest.param(_append("op_1234/reference.py"), {_LISTED, _REBUILT}, id="reference"),
        pytest.param(_append("op_1234/inputs.py"), {_LISTED, _REBUILT}, id="inputs"),
        pytest.param(_append("op_1234/shapes.json"), {_LISTED, _REBUILT}, id="shapes"),
        pytest.param(_append("op_1234/INTERFACE.md"), {_LISTED, _REBUILT}, id="interface"),
        pytest.param(_append("README.md"), {_LISTED, _REBUILT}, id="readme"),
        pytest.param(
            lambda out: (out / "op_1234" / "inputs.py").unlink(), {_LISTED, _REBUILT}, id="removed"
        ),
        pytest.param(
            lambda out: (out / "op_1234" / "notes.txt").write_text("x"),
            {_ELSE, _ALLOWED, _REBUILT},
            id="extra",
        ),
        pytest.param(
            lambda out: (out / ".hidden").write_text("x"), {_ELSE, _ALLOWED, _REBUILT}, id="hidden"
        ),
        pytest.param(lambda out: (out / ".git").mkdir(), {_ELSE, _ALLOWED}, id="history"),
        pytest.param(
            lambda out: (out / "op_1234" / "more").mkdir(), {_ELSE, _ALLOWED}, id="folder"
        ),
        pytest.param(_linked, {_LISTED, _ELSE, _REBUILT}, id="link"),
        pytest.param(
            _replace("manifest.json", '"digest": "', '"digest": "0'),
            {_MANIFEST, _REBUILT},
            id="digest",
        ),
        pytest.param(
            _replace("manifest.json", '"version": "3"', '"version": "4"'),
            {_MANIFEST, _REBUILT},
            id="version",
        ),
        pytest.param(
            _replace("manifest.json", '"README.md"', '"READYOU.md"'),
            {_MANIFEST, _LISTED, _ELSE, _ALLOWED, _REBUILT},
            id="path",
        ),
    ],
)
def test_tampering_is_found(
    make: Make, tmp_path: Path, tamper: Callable[[Path], object], refuted: set[str]
) -> None:
    problem, out = make(), tmp_path / "out"
    write(release_of([problem]), out)
    tamper(out)
    for path in (*out.rglob("*"), out):
        os.utime(path, (TIME_S, TIME_S), follow_symlinks=False)

    folder = Folder.read(out)
    claims = [
        *folder_claims(folder, folder.manifest(), ""),
        rebuild_claim(folder, rebuilt([problem])),
    ]

    assert {claim.text for claim in claims if claim.standing is Standing.FAIL} == refuted


def _touched(out: Path) -> None:
    os.utime(out / "README.md", (TIME_S, TIME_S + 748213))


def _linked_hard(out: Path) -> None:
    os.link(out / "README.md", out.parent / "README.md")


def _labelled(out: Path) -> None:
    try:
        os.setxattr(out / "op_1234", "user.note", b"0.027508")
    except OSError:
        pytest.skip("this file system has no extended attributes")


@pytest.mark.parametrize(
    ("tamper", "detail"),
    [
        (lambda out: (out / "op_1234" / "inputs.py").chmod(0o755), "has mode 755, not 644"),
        (lambda out: (out / "op_1234" / "inputs.py").chmod(0o4644), "has mode 4644, not 644"),
        (lambda out: (out / "README.md").chmod(0o600), "has mode 600, not 644"),
        (lambda out: (out / "op_1234").chmod(0o2755), "has mode 2755, not 755"),
        (lambda out: out.chmod(0o700), "'.' has mode 700, not 755"),
        (_touched, "'README.md' has a time of its own"),
        (lambda out: os.utime(out), "'.' has a time of its own"),
        (_linked_hard, "'README.md' has 2 hard links"),
        (_labelled, "'op_1234' has the extended attribute 'user.note'"),
    ],
    ids=["runs", "setuid", "mode", "setgid", "root", "time", "root's time", "hard link", "xattr"],
)
def test_what_a_file_system_keeps_beside_content_is_found(
    make: Make, tmp_path: Path, tamper: Callable[[Path], object], detail: str
) -> None:
    out = tmp_path / "out"
    write(release_of([make()]), out)
    tamper(out)

    folder = Folder.read(out)
    refuted = [
        c for c in folder_claims(folder, folder.manifest(), "") if c.standing is Standing.FAIL
    ]

    assert [claim.text for claim in refuted] == [_BUILT]
    assert detail in refuted[0].detail


@pytest.mark.parametrize(
    "tamper",
    [
        _append("manifest.json"),
        _replace("manifest.json", '"schema": 1,', '"schema": 1, "note": "hello",'),
        _replace("manifest.json", '"bytes": ', '"bytes": "x'),
        lambda out: (out / "manifest.json").unlink(),
    ],
    ids=["space", "further key", "no JSON", "removed"],
)
def test_manifest_that_holds_more_or_less_is_none(
    make: Make, tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    write(release_of([make()]), tmp_path / "out")
    tamper(tmp_path / "out")

    with pytest.raises(ValueError, match=r"there is no file|holds more|Invalid"):
        Folder.read(tmp_path / "out").manifest()


def test_untouched_release_keeps_every_claim(make: Make, tmp_path: Path) -> None:
    problem, out = make(), tmp_path / "out"
    write(release_of([problem]), out)
    folder = Folder.read(out)

    claims = [
        *folder_claims(folder, folder.manifest(), ""),
        rebuild_claim(folder, rebuilt([problem])),
    ]

    assert [claim.text for claim in claims] == [
        _MANIFEST,
        _LISTED,
        _ELSE,
        _BUILT,
        _ALLOWED,
        _REBUILT,
    ]
    assert {claim.standing for claim in claims} == {Standing.PASS}
