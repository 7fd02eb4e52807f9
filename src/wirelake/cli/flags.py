"""Flags that more than one command has, said once."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.masking import keep_secrets, mask

__all__ = [
    "connection_flags",
    "decode_flags",
    "limits_given",
    "limits_of",
    "ports_given",
    "seconds_of",
    "server_flags",
    "set_flag",
    "settings_of",
    "spark_flags",
    "spark_settings",
]

F = TypeVar("F", bound=Callable[..., Any])
_VARIABLE: Final = "env:"
"""What a value of --conf begins with if an environment variable has it."""


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


def server_flags(command: F) -> F:
    """What a server that shows what it hears may be told."""
    for option in (
        click.option("--key", "key", type=click.Path(path_type=Path), help="Its key, if it is not in the same file."),
        click.option("--cert", "cert", type=click.Path(path_type=Path), help="The server's certificate, for tls://."),
        click.option("--record", "record", type=click.Path(path_type=Path), help="Record all conversations to this pcapng file."),
        click.option("-q", "--quiet", "quiet", is_flag=True, help="Do not print what arrives."),
    ):
        command = option(command)
    return command


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


def decode_flags(command: F) -> F:
    """How captures are decoded."""
    for option in (
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="PROTOCOL.NAME=VALUE",
            help="A limit of a protocol, as emp.max_message_size=1000.",
        ),
        click.option("--port", "port", multiple=True, help="A port and what is spoken there, as emp=6000; give it more than once."),
    ):
        command = option(command)
    return command


def limits_given(given: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What people said with --set, by protocol."""
    chosen: dict[str, dict[str, Any]] = {}
    for text in given:
        protocol, dot, setting = text.partition(".")
        if not dot:
            raise UsageError(f"--set {text}: write it as {protocols.ROOMS[0]}.NAME=VALUE")
        chosen.setdefault(protocols.named(protocol), {}).update(settings_of(protocol, [setting]))
    return chosen


def ports_given(given: tuple[str, ...]) -> dict[int, str] | None:
    """The ports people named, on top of every protocol's own; None if they named none."""
    if not given:
        return None
    chosen = protocols.ports()
    for text in given:
        name, _, number = text.partition("=")
        if not number.isdigit() or not 0 < int(number) < 65536:
            raise UsageError(f"--port {text}: write it as {protocols.ROOMS[0]}=6000")
        chosen[int(number)] = protocols.named(name)
    return chosen


def spark_flags(command: F) -> F:
    """Where Spark runs, and how it is set."""
    master = "The Spark master; local[*] unless spark-submit says otherwise. WIRELAKE_TOKEN has the token of an sc:// server."
    for option in (
        click.option(
            "--conf",
            "conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="A Spark setting (see docs/spark.md); give it more than once. The value env:NAME is read from that environment variable.",
        ),
        click.option("--master", "master", envvar="WIRELAKE_MASTER", show_envvar=True, help=master),
    ):
        command = option(command)
    return command


def spark_settings(given: Iterable[str]) -> dict[str, str]:
    """What people said with --conf."""
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--conf {mask(text)}: write it as name=value")
        if value.startswith(_VARIABLE):
            variable = value.removeprefix(_VARIABLE)
            if variable not in os.environ:
                raise UsageError(f"--conf {text}: there is no environment variable {variable}")
            value = os.environ[variable]
        settings[name] = value
    keep_secrets(settings)
    return settings
