"""A group of commands that says, of a command it does not have, which it has."""

from __future__ import annotations

import click

from atrex_core.errors import UnknownName
from atrex_core.suggest import did_you_mean


class Group(click.Group):
    """What `atrex-eval problems` and its like are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise UnknownName(
                f"{ctx.command_path!r} has no command {name!r}",
                hint=did_you_mean(name, self.list_commands(ctx)),
            )
        return super().resolve_command(ctx, args)
