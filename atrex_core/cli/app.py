"""`atrex-eval`: the group, its default command, and how errors become exit codes.

Nothing heavy is imported here: `--help` must answer at once. Subcommands import what they
need, and plugins' own commands are looked up only when nothing of ours has the name.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from atrex_core.cli import console
from atrex_core.cli.stopping import Interrupted, interrupted, remember
from atrex_core.cli.supervisor import supervised
from atrex_core.errors import AtrexError, ExitCode, HarnessError, UnknownName
from atrex_core.printable import one_line
from atrex_core.suggest import did_you_mean

log = logging.getLogger(__name__)

_COMMANDS = {
    "run": ("atrex_core.cli.run", "Evaluate candidates (the default command)."),
    "list": ("atrex_core.cli.listing", "List backends, devices, problems and other parts."),
    "doctor": ("atrex_core.cli.doctor", "Run a tiny kernel wherever one could run here."),
    "journal": ("atrex_core.cli.journal", "Look into a journal."),
    "calibrate": ("atrex_core.cli.calibrate", "Measure what this very device reaches."),
    "problems": ("atrex_core.cli.problems", "Check problems, or show what one asks."),
    "plugin": ("atrex_core.cli.plugin", "Start a plugin of your own."),
    "weights": ("atrex_core.cli.weights", "Show what operators and workloads count."),
    "repro": ("atrex_core.cli.repro", "Write a script that shows a failure again."),
    "release": ("atrex_core.cli.release", "Hand problems to agents, and prove what that hides."),
}


class Application(click.Group):
    """Loads a subcommand when it is used; `atrex-eval --backend NAME` means `run`."""

    default = "run"
    own_options = frozenset({"--help", "--version", "-h"})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *_listed_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module = importlib.import_module(_COMMANDS[cmd_name][0])
            command: click.Command = module.command
            return command
        from atrex_core.plugins import PluginHost

        return PluginHost.discover().commands.items.get(cmd_name)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:  # `--help` has been read; click would exit with 1
            console.abandon(sys.stdout)
            raise click.exceptions.Exit from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if sys.stderr.isatty():
                console.say("")  # the terminal has shown ^C without ending the line
            raise interrupted(ctx) from stop
        except BrokenPipeError as error:  # a plugin's own command; click would exit with 1
            if not console.reader_is_gone():
                raise HarnessError(f"a process of ours has ended early: {error}") from error
            console.abandon(sys.stdout)
            return ExitCode.OK

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our commands without importing them, then those of plugins."""
        rows = [(name, summary) for name, (_, summary) in _COMMANDS.items()]
        for name, command in _listed_commands().items():
            rows.append((name, command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        is_option = first.startswith("-") and first not in self.own_options
        if not args or is_option or (first not in _COMMANDS and _exists(first)):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            if name.endswith(".py") or os.sep in name:
                raise UnknownName(
                    f"no such file or folder: {name!r}",
                    hint="a candidate is a .py file that exposes `Model`",
                )
            known = self.list_commands(ctx)
            raise UnknownName(f"no command is named {name!r}", hint=did_you_mean(name, known))
        found, command, rest = super().resolve_command(ctx, args)
        remember(ctx, command, rest)
        return found, command, rest


@click.group(
    cls=Application,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="atrex-eval")
def cli() -> None:
    """Evaluate GPU kernels: compile, correctness, performance against the roofline, authenticity.

    `atrex-eval --backend NAME` evaluates the kernels that ship with a backend;
    `atrex-eval FILE --backend NAME` evaluates yours.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Errors become one `error:` line and one `hint:` line."""
    console.make_usable()
    conclude = supervised()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    logging.raiseExceptions = False  # a full stderr is no reason for a traceback
    code = invoke(arguments)
    console.settle()
    conclude(code)
    sys.exit(code)


def invoke(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        result: Any = cli.main(args=arguments, prog_name="atrex-eval", standalone_mode=False)
    except AtrexError as error:
        hint = error.hint or "see `atrex-eval --help`"
        return _complain(str(error), hint, error.exit_code)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        group = error.ctx.command if error.ctx else None
        names = sorted(group.commands) if isinstance(group, click.Group) else []
        path = error.ctx.command_path if error.ctx else "atrex-eval"
        hint = f"add one of: {', '.join(names)}"
        return _complain(f"{path!r} does nothing by itself", hint, ExitCode.USAGE)
    except click.ClickException as error:
        command = (
            error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        )
        hint = f"see `{command or 'atrex-eval'} --help`"
        message = error.format_message()
        return _complain(message[:1].lower() + message[1:], hint, ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort):
        stop = Interrupted()
        return _complain(str(stop), stop.hint, stop.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and console.is_full(error):
            console.abandon(sys.stdout)
            what = f"cannot write the results: {(error.strerror or '').lower()}"
            return _complain(what, "free some space; see also --output", ExitCode.HARNESS_ERROR)
        log.error("this is a bug, here or in a plugin", exc_info=error)
        what = f"unexpected {type(error).__name__}: {error}"
        return _complain(what, "please report the lines above", ExitCode.HARNESS_ERROR)
    return int(result) if isinstance(result, int) else ExitCode.OK


def _listed_commands() -> Mapping[str, click.Command]:
    from atrex_core.plugins.commands import listed_commands

    try:
        return listed_commands()
    except AtrexError:  # help must work whatever is installed
        return {}


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # too long a name, or a folder that we may not look into
        return False


def _complain(message: str, hint: str, code: int) -> int:
    console.say(f"error: {one_line(message)}\nhint: {one_line(hint)}")
    return int(code)
