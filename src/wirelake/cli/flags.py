"""Flags that more than one command has, said once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
import msgspec

from wirelake import protocols
from wirelake.errors import UsageError

__all__ = ["limits_of", "seconds_of", "set_flag", "settings_of", "spark_flags", "spark_settings"]

F = TypeVar("F", bound=Callable[..., Any])


def set_flag(command: F) -> F:
    """--set NAME=VALUE, for every limit and dialect of a room."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A limit of the protocol, as its page in docs/ lists them.",
    )(command)


def limits_of(protocol: str, settings: Iterable[str]) -> Any:
    """The limits of a protocol's room, with what people said with --set."""
    return msgspec.convert(settings_of(protocol, settings), protocols.room(protocol).Limits)


def settings_of(protocol: str, settings: Iterable[str]) -> dict[str, Any]:
    """What people said with --set, held against the limits the room has; numbers, true and false are read as such."""
    kind = protocols.room(protocol).Limits
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    chosen: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--set {text}: write it as NAME=VALUE, with one of {', '.join(known)}")
        try:
            chosen[name] = msgspec.convert(value, known[name], strict=False)
        except msgspec.ValidationError as reason:
            raise UsageError(f"--set {text}: {reason}") from None
    return chosen


def seconds_of(text: str, flag: str) -> float:
    """A point in time as people write it: seconds since 1970, or ISO 8601; UTC unless it says otherwise."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{flag} {text}: write it as seconds since 1970, or as 2026-01-31T12:00:00Z") from None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()


def spark_flags(command: F) -> F:
    """Where Spark runs, and how it is set."""
    master = "The Spark master; local[*] unless spark-submit says otherwise."
    for option in (
        click.option(
            "--conf", "conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting (see docs/spark.md); give it more than once."
        ),
        click.option("--master", "master", help=master),
    ):
        command = option(command)
    return command


def spark_settings(given: Iterable[str]) -> dict[str, str]:
    """What people said with --conf."""
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--conf {text}: write it as name=value")
        settings[name] = value
    return settings
