"""`wirelake listen`: the commands of each protocol are in `cli/protocols/`."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["listen"]


@click.group(cls=Verb)
def listen() -> None:
    """Print received messages, one JSON object per line. Ctrl-C ends it."""
