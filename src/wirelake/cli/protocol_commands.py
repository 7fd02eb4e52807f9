"""Commands that speak: `wirelake serve emp …`, one group per verb, one command per protocol that knows the verb.

The commands themselves are functions of the verb's name in `cli/rooms/`, one file per protocol: what can be said, and so which flags
there are, differs between protocols.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import click

from wirelake import protocols
from wirelake.cli.flags import with_verbose

__all__ = ["Verb"]


class Verb(click.Group):
    """The protocols that know this verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """By name, in the order of the rooms."""
        del ctx
        return [name for name in protocols.ROOMS if hasattr(_module(name), str(self.name))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb as this protocol knows it."""
        del ctx
        command: click.Command | None = getattr(_module(protocols.named(cmd_name)), str(self.name), None)
        return None if command is None else with_verbose(command)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a protocol that does not know the verb is told with those that do."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"{args[0]} does not know {self.name}; these do: {', '.join(self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


def _module(protocol: str) -> ModuleType | None:
    """What a protocol can do live; None: nothing, it is only read."""
    name = f"wirelake.cli.protocols.{protocol}"
    return import_module(name) if find_spec(name) else None
