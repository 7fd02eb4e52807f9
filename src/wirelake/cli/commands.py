"""Commands: a protocol's command for each verb, from the entry points `wirelake.commands`.

A package that adds a protocol declares `COMMANDS = Commands(serve=..., call=...)` there, under the protocol's name. A verb that is None is
not known to the protocol. A protocol without an entry is only decoded.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import click

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.protocols import entry_points

__all__ = ["Commands", "commands"]

_GROUP: Final = "wirelake.commands"


class Commands(NamedTuple):
    """The commands of one protocol."""

    serve: click.Command | None = None
    listen: click.Command | None = None
    call: click.Command | None = None
    send: click.Command | None = None

    def verb(self, name: str) -> click.Command | None:
        """The command for a verb; None: the protocol does not know it."""
        verbs = {"serve": self.serve, "listen": self.listen, "call": self.call, "send": self.send}
        return verbs[name]


@cache
def commands(protocol: str) -> Commands:
    """The commands of a protocol.

    Raises UsageError if there is no such protocol, or its commands cannot be loaded.
    """
    name = protocols.name_of(protocol)
    entry = entry_points.entry(_GROUP, name)
    if entry is None:
        return Commands()
    loaded = entry.load()
    if not isinstance(loaded, Commands):
        raise UsageError(f"the package {entry.distribution} declares {entry.value} as commands of {name!r}, but it is no `Commands`")
    return loaded
