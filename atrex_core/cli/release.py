"""`atrex-eval release`: hand problems to the authors of candidates, and prove what that hides."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from atrex_core.cli.console import rendered, say, show
from atrex_core.cli.groups import Group
from atrex_core.cli.stopping import stoppable
from atrex_core.config import load_settings
from atrex_core.errors import ExitCode, NothingToDo
from atrex_core.planning import check_problem
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.release import Claim, Standing, release_of, verify, write

_NOT_BUILT = "the folder is as it was before, or the whole new release; run it again"
_PROBLEM = click.option("--problem", "problems", multiple=True, metavar="GLOB")
_DISABLED = click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")


class _Folder(click.Path):
    """The path of a folder. Empty, it would be that of the folder where the command is run."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("name a folder: this is empty", param, ctx)
        return super().convert(value, param, ctx)


@click.group("release", cls=Group)
def command() -> None:
    """Build what an agent may see of problems, or verify that it shows no more."""


@command.command("build")
@click.option(
    "--output",
    required=True,
    type=_Folder(),
    metavar="DIR",
    help="A new folder, or an earlier release, which is replaced.",
)
@_PROBLEM
@_DISABLED
def build(output: Path, problems: tuple[str, ...], disabled: tuple[str, ...]) -> None:
    """Write the release of problems to DIR and print its digest.

    A release holds, for each problem, its reference, its input generator, its shapes and a
    description of its interface; nothing that judges.
    """
    host = _host(disabled)
    chosen = host.problems.select(*problems)
    if not chosen:
        raise NothingToDo("no problem is installed", hint="see `atrex-eval list plugins`")
    for problem in chosen:
        check_problem(host, problem)
    with stoppable(_NOT_BUILT):
        release = release_of(chosen)
        write(release, output)
    show(release.digest)


@command.command("verify")
@click.argument("folder", type=_Folder(), metavar="DIR")
@_PROBLEM
@click.option("--backend", metavar="NAME", help="What a spy is run with in a worker.")
@click.option("--device", metavar="ID", help="Where the spy is run.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_DISABLED
def verify_folder(
    folder: Path,
    problems: tuple[str, ...],
    backend: str | None,
    device: str | None,
    form: str,
    disabled: tuple[str, ...],
) -> int:
    """Prove what is claimed of the release in DIR: exit code 0 when every claim holds.

    DIR must be what the installed packs give, and say nothing that only they know. A candidate
    that spies is run in a worker, with a pack made for it. A LIMIT is no claim: it was tried, and
    the isolation that is active here does not prevent it.
    """
    host = _host(disabled)
    with stoppable("nothing is proved; run it again"):
        found = list(verify(host, folder, globs=problems, backend=backend, device=device))
    if form == "json":
        rows = [
            {"subject": c.subject, "claim": c.text, "standing": c.standing, "detail": c.detail}
            for c in found
        ]
        show(json.dumps({"schema": 1, "claims": rows}, allow_nan=False))
    else:
        _print_table(found)
    failed = sum(claim.standing is Standing.FAIL for claim in found)
    if failed and form != "json":
        say(f"{failed} of {len(found)} claims do not hold")
    return ExitCode.CANDIDATE_FAILED if failed else ExitCode.OK


def _host(disabled: tuple[str, ...]) -> PluginHost:
    disabled = load_settings({"disabled_plugins": disabled}).settings.disabled_plugins
    return PluginHost.discover(disabled=disabled)


def _print_table(claims: Sequence[Claim]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "about", "claim", "detail"):
        table.add_column(column)
    for claim in claims:
        cells = (claim.standing, claim.subject, claim.text, one_line(claim.detail, 400))
        table.add_row(*(Text(str(cell)) for cell in cells))
    show(rendered(table))
