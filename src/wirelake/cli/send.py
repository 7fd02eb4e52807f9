"""`wirelake send`: the commands of each protocol are in `cli/protocols/`."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["send"]


@click.group(cls=Verb)
def send() -> None:
    """Send messages that need no answer."""
