"""`wirelake call`: the commands of each protocol are in `cli/protocols/`."""

from __future__ import annotations

import click

from wirelake.cli.protocol_commands import Verb

__all__ = ["call"]


@click.group(cls=Verb)
def call() -> None:
    """Send one request and print the answer."""
