"""Verb: a group such as `wirelake serve`, with a command per protocol that has the verb.

The commands themselves are in `cli/protocols/`, one file per protocol, or in the package that adds a protocol (`commands.py`).
"""

from __future__ import annotations

import click

from wirelake import protocols
from wirelake.cli.commands import commands
from wirelake.cli.flags import with_verbose

__all__ = ["Verb"]


class Verb(click.Group):
    """The protocols that know this verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """By name, in the order of `protocols.names`."""
        del ctx
        return [name for name in protocols.names() if commands(name).verb(str(self.name)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this protocol."""
        del ctx
        command = commands(cmd_name).verb(str(self.name))
        return None if command is None else with_verbose(command)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error for a protocol without the verb names those that have it."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"{args[0]} does not know {self.name}; these do: {', '.join(self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)
