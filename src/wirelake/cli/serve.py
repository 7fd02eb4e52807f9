"""`wirelake serve`: the commands of each protocol are in `cli/protocols/`."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["serve"]


@click.group(cls=Verb)
def serve() -> None:
    """Answer, show what arrives, and record if asked. Ctrl-C ends it."""
