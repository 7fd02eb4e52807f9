"""Flags that more than one command has, said once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

__all__ = ["connection_flags", "dialect_flag", "size_flag"]

F = TypeVar("F", bound=Callable[..., Any])

LARGEST_MESSAGE: Final = 16 * 1024 * 1024


def size_flag(command: F) -> F:
    """--max-message-size."""
    return click.option(
        "--max-message-size",
        "max_message_size",
        type=click.IntRange(min=8),
        default=LARGEST_MESSAGE,
        show_default=True,
        help="Largest EMP message, in bytes (EMP-35).",
    )(command)


def dialect_flag(command: F) -> F:
    """--sizes-exclude-themselves."""
    return click.option(
        "--sizes-exclude-themselves",
        "sizes_exclude_themselves",
        is_flag=True,
        help="For EMP peers whose sizes do not count themselves (EMP-1).",
    )(command)


def connection_flags(command: F) -> F:
    """What a client may be told about its connection."""
    trust = "Certificate authorities to trust instead of the system's."
    for option in (
        click.option("--record", "record", type=click.Path(path_type=Path), help="Record the conversation to this pcapng file."),
        click.option("--insecure", "insecure", is_flag=True, help="Do not check the server's certificate."),
        click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help=trust),
    ):
        command = option(command)
    return command
