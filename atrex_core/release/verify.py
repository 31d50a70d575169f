"""Everything that is claimed of a release, proved anew: the folder, its texts, and a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from atrex_core.errors import AtrexError, UsageError
from atrex_core.interfaces import Problem
from atrex_core.planning import check_problem
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.release.alone import alone_claim
from atrex_core.release.claims import Claim
from atrex_core.release.contents import MANIFEST, Manifest
from atrex_core.release.facts import facts_of
from atrex_core.release.files import Folder, folder_claims, rebuild_claim, rebuilt
from atrex_core.release.inside import choose_place, worker_claims
from atrex_core.release.texts import Texts, text_claims

_HINT = "name a folder that `atrex-eval release build` has written"


def verify(
    host: PluginHost,
    path: Path,
    *,
    globs: Sequence[str] = (),
    backend: str | None = None,
    device: str | None = None,
) -> Iterator[Claim]:
    """Yield each claim about the release in `path`, once it is proved or refuted.

    Args:
        globs: The problems that it must hold; none stands for those that it names.
        backend: What the spy is run with; None takes the first that can run here.
        device: Where; None takes the backend's own choice.

    Raises:
        UsageError: there is no such folder, it has no manifest, or a glob is empty.
        UnknownName: a glob matches nothing, or there is no such backend or device.
        Unavailable: the backend or device that is asked for is not here.
        PluginError: a pack is broken.
    """
    place = choose_place(host, backend, device) if backend or device else None
    try:
        if path.is_dir() and not os.path.lexists(path / MANIFEST):
            raise UsageError(f"{str(path)!r} is no release: it has no {MANIFEST}", hint=_HINT)
        folder = Folder.read(path)
    except OSError as error:
        why = (error.strerror or "").lower()
        raise UsageError(f"cannot read {str(path)!r}: {why}", hint=_HINT) from error
    manifest, why = _manifest(folder)
    problems = _problems(host, manifest, globs)
    yield from folder_claims(folder, manifest, why)
    again = rebuilt(problems)
    yield rebuild_claim(folder, again)
    known = problems if not isinstance(problems, str) else _named(host, manifest)
    facts = []
    for problem in known:
        with blaming(host.problems, problem.name):
            facts.append(facts_of(problem))
    places = [Path(__file__).parents[1], Path.cwd()]
    places += [file.parent for problem in known for file in problem.public_files]
    files = folder.files if isinstance(again, str) else {**again.files, **folder.files}
    yield from text_claims(Texts.of(files), facts, places)
    yield alone_claim(again if isinstance(again, str) else again.files, known)
    yield from worker_claims(host, place)


def _manifest(folder: Folder) -> tuple[Manifest | None, str]:
    try:
        return folder.manifest(), ""
    except ValueError as error:
        return None, f"the manifest cannot be used: {error}"


def _problems(
    host: PluginHost, manifest: Manifest | None, globs: Sequence[str]
) -> Sequence[Problem] | str:
    """Return the problems that a release must hold, or why that is not known."""
    if globs:
        chosen = host.problems.select(*globs)
    elif manifest is None:
        return "not known, as the manifest cannot be used"
    elif absent := [name for name in manifest.problems if name not in host.problems]:
        return f"no installed pack has problem {absent[0]!r}"
    else:
        chosen = tuple(host.problems[name] for name in manifest.problems)
    for problem in chosen:
        check_problem(host, problem)
    return chosen


def _named(host: PluginHost, manifest: Manifest | None) -> Sequence[Problem]:
    """Return the installed problems that a release names; all of them where it names none."""
    names = manifest.problems if manifest else host.problems.names
    found = []
    for name in names:
        try:
            found.append(host.problems[name])
        except AtrexError:
            continue
    return found
