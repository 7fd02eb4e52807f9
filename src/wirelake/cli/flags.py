"""Flags that more than one command has."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from wirelake import protocols
from wirelake.cli import logs
from wirelake.errors import UsageError
from wirelake.masking import keep_secrets, mask
from wirelake.protocols.protocol import Limits

__all__ = [
    "PROTOCOL",
    "decode_flags",
    "limits_flag",
    "limits_given",
    "limits_of",
    "ports_given",
    "query_flags",
    "seconds_of",
    "set_flag",
    "settings_of",
    "spark_flags",
    "spark_settings",
    "with_verbose",
]

F = TypeVar("F", bound=Callable[..., object])
_VARIABLE: Final = "env:"
"""Prefix of a value of --conf that is in an environment variable."""


class _Protocol(click.ParamType[str]):
    """A protocol by its name, with hyphens or underscores; shells complete it."""

    name = "protocol"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as tables have it."""
        del param, ctx
        return protocols.name_of(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Every protocol that begins like this."""
        del ctx, param
        return [CompletionItem(name) for name in protocols.names() if name.startswith(incomplete.replace("-", "_"))]


PROTOCOL: Final = _Protocol()
"""For arguments that name a protocol."""


def with_verbose(command: click.Command) -> click.Command:
    """Give a command and all below it -v, so that it works wherever it stands."""
    if not any(parameter.name == "verbose" for parameter in command.params):
        command.params.append(_verbose())
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_verbose(below)
    return command


def _verbose() -> click.Option:
    def begin(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            logs.verbose()

    text = "Show log lines, and the traceback of an error."
    return click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=begin, help=text)


def query_flags(seconds: float, megabytes: int) -> Callable[[F], F]:
    """--seconds and --memory of a command that queries a lake, with these defaults."""

    def add(command: F) -> F:
        memory = click.option(
            "--memory",
            "megabytes",
            type=click.IntRange(0),
            default=megabytes,
            show_default=True,
            help="Megabytes of memory for queries; 0: as much as there is.",
        )
        time = click.option(
            "--seconds",
            "seconds",
            type=click.FloatRange(0),
            default=seconds,
            show_default=True,
            help="End a query after this time; 0: never.",
        )
        return time(memory(command))

    return add


def set_flag(command: F) -> F:
    """--set NAME=VALUE, for every limit and dialect of a protocol."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A limit or dialect of the protocol, as its page in docs/ lists them.",
    )(command)


def limits_flag(protocol: str) -> Callable[[F], F]:
    """--set NAME=VALUE of a command that speaks a protocol; the command gets its `limits`."""

    def read(_: click.Context, __: click.Parameter, settings: tuple[str, ...]) -> Limits:
        return limits_of(protocol, settings, live=True)

    return click.option(
        "--set",
        "limits",
        multiple=True,
        metavar="NAME=VALUE",
        callback=read,
        help="A limit or dialect of the protocol, as its page in docs/ lists them; give it more than once.",
    )


def limits_of(protocol: str, settings: Iterable[str], *, live: bool = False) -> Limits:
    """The limits of a protocol, with the fields of --set."""
    return msgspec.convert(settings_of(protocol, settings, live=live), protocols.get(protocol).limits)


def settings_of(protocol: str, settings: Iterable[str], *, live: bool = False) -> dict[str, object]:
    """The fields of --set, checked against the protocol's limits; numbers, true and false are read as such.

    With `live`, limits that are only for bytes without a connection are refused.
    """
    descriptor = protocols.get(protocol)
    offline = descriptor.offline_limits if live else ()
    known = {field.name: field.type for field in _fields(descriptor.limits) if field.name not in offline}
    chosen: dict[str, object] = {}
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


def _fields(limits: type[Limits]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a protocol's limits, which are a struct."""
    if not issubclass(limits, msgspec.Struct):
        raise UsageError(f"the limits {limits.__module__}.{limits.__qualname__} are no msgspec.Struct: repair the package of that protocol")
    return msgspec.structs.fields(limits)


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


def decode_flags(command: F) -> F:
    """How captures are decoded."""
    for option in (
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="PROTOCOL.NAME=VALUE",
            help="A limit of a protocol, as emp.max_message_size=1000; wins over the dialect that a recording or capture shows.",
        ),
        click.option("--port", "port", multiple=True, help="A port and what is spoken there, as emp=6000; give it more than once."),
    ):
        command = option(command)
    return command


def trust_flag(default: str | None, more: str) -> Callable[[F], F]:
    """--trust, for Event Mesh; `more` is said at the end of its help."""
    return click.option(
        "--trust",
        "trust",
        type=click.Choice(["store", "in-band", "first-use"]),
        default=default,
        show_default=default is not None,
        help="Trust public keys in packets of Event Mesh: those of --keys only, any, or the first one of a node that no key of --keys is"
        f" known of.{more}",
    )


def freshness_flag(default: bool | None, help: str) -> Callable[[F], F]:  # noqa: A002 - as click names it
    """--freshness and --no-freshness, for Event Mesh."""
    return click.option("--freshness/--no-freshness", "freshness", default=default, show_default=default is not None, help=help)


def limits_given(given: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """The fields of --set, by protocol."""
    chosen: dict[str, dict[str, object]] = {}
    for text in given:
        protocol, dot, setting = text.partition(".")
        if not dot:
            raise UsageError(f"--set {text}: write it as {protocols.names()[0]}.NAME=VALUE")
        chosen.setdefault(protocols.name_of(protocol), {}).update(settings_of(protocol, [setting]))
    return chosen


def ports_given(texts: tuple[str, ...]) -> dict[int, str] | None:
    """The ports of --port, on top of every protocol's own; None if there are none."""
    if not texts:
        return None
    chosen = protocols.ports()
    for text in texts:
        name, _, number = text.partition("=")
        if not number.isdigit() or not 0 < int(number) < 65536:
            raise UsageError(f"--port {text}: write it as {protocols.names()[0]}=6000")
        chosen[int(number)] = protocols.name_of(name)
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
    """The Spark settings of --conf."""
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
