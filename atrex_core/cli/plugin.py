"""`atrex-eval plugin new`: start a plugin from files that work as they stand."""

from __future__ import annotations

import os
from pathlib import Path

import click

from atrex_core.cli.console import say, show
from atrex_core.cli.groups import Group
from atrex_core.cli.stopping import stoppable
from atrex_core.errors import UsageError
from atrex_core.plugins import PluginHost
from atrex_core.scaffold import new_operator, new_problem

_NOT_WRITTEN = "all of it is written, or nothing; run it again"


@click.group("plugin", cls=Group)
def command() -> None:
    """Start a plugin of your own."""


@command.group("new", cls=Group)
def new() -> None:
    """Write the files of a new plugin."""


@new.command("problem")
@click.argument("name")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write the project into; default: here.",
)
@click.option("--pack", metavar="NAME", help="The pack's name; default: the problem's.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Folder of an existing pack: write one more operator into it, and no project.",
)
def problem(name: str, output: Path | None, pack: str | None, into: Path | None) -> None:
    """Write a problem called NAME: a small operator that passes its own lint, to be replaced.

    With mutants, honest variants, input regimes and a cost: everything a problem consists of.
    """
    if name in PluginHost.discover().problems.items:
        raise UsageError(
            f"a problem called {name!r} is installed already",
            hint="two of one name clash: choose another",
        )
    if into is not None:
        if pack is not None:
            raise UsageError("--into and --pack exclude each other", hint="--into names the pack")
        if output is not None:
            raise UsageError(
                "--into and --output exclude each other", hint="--into says where it is written"
            )
        with stoppable(_NOT_WRITTEN):
            made = new_operator(name, package=into)
    else:
        output = output or Path()
        if not os.path.isdir(output):  # noqa: PTH112 - no name is too long for it
            raise UsageError(f"{str(output)!r} is no folder", hint="choose another --output")
        with stoppable(_NOT_WRITTEN):
            made = new_problem(name, parent=output, pack=pack)
    show(str(made.root))
    if into is None:
        say(f"next: pip install -e {made.root}")
    say(f"next: atrex-eval problems lint {name}")
    say(f"then change {made.operator / 'public' / 'reference.py'} and the files beside it")
