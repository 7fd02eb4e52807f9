"""`wirelake send`: see `cli/rooms/` for what each protocol makes of it."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["send"]


@click.group(cls=Verb)
def send() -> None:
    """Send messages nobody answers."""
