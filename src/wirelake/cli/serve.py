"""`wirelake serve`: see `cli/rooms/` for what each protocol makes of it."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["serve"]


@click.group(cls=Verb)
def serve() -> None:
    """Answer, show what arrives, and record if asked. Ctrl-C ends it."""
