"""`wirelake listen`: see `cli/rooms/` for what each protocol makes of it."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["listen"]


@click.group(cls=Verb)
def listen() -> None:
    """Print what is said, one JSON object per line. Ctrl-C ends it."""
