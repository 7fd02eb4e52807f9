"""Flags of live commands: connection, server, recording and output."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from wirelake.capture.record.recorder import MODE
from wirelake.cli.live import LiveOptions, live_output
from wirelake.cli.output import MAX_NOTICES, OUTPUT_BUFFER
from wirelake.extras import CAPTURES, need, need_for_address
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, ServerLimits

__all__ = ["Mode", "Size", "connection_flags", "live_flags", "server_flags"]

F = TypeVar("F", bound=Callable[..., Any])


class Size(click.ParamType[int]):
    """Bytes, as a number or with k, M or G behind it (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        number, unit = (value[:-1], value[-1:]) if value[-1:] in "kMG" else (value, "")
        if not number.isdecimal() or not int(number):
            self.fail(f"{value!r} is no size: write a number of bytes above 0, or one such as 100M", param, ctx)
        return int(number) << {"": 0, "k": 10, "M": 20, "G": 30}[unit]


class Mode(click.ParamType[int]):
    """Permissions of a file, in octal digits."""

    name = "mode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The permissions as bits."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"0?[0-7]{3}", value):
            self.fail(f"{value!r} is no mode: write three octal digits such as 640", param, ctx)
        return int(value, 8)


def live_flags(command: F) -> F:
    """Flags of every live command: --record, its limits, and output."""

    @wraps(command)
    def run(
        *arguments: Any,
        record_max_size: int | None,
        record_max_time: float | None,
        record_mode: int,
        max_notices: int,
        output_buffer: int,
        watch: bool,
        **named: Any,
    ) -> Any:
        need_for_address(named["address"])
        if watch:
            need(*CAPTURES)
        with live_output(LiveOptions(record_max_size, record_max_time, record_mode, max_notices, output_buffer, watch)):
            return command(*arguments, **named)

    wrapped: Any = run
    for option in (
        click.option(
            "--output-buffer",
            "output_buffer",
            type=Size(),
            default=OUTPUT_BUFFER,
            show_default="16M",
            help="Output that may wait for a slow reader; more is dropped, and counted on stderr.",
        ),
        click.option(
            "--max-notices",
            "max_notices",
            type=click.IntRange(min=0),
            default=MAX_NOTICES,
            show_default=True,
            help="Lines per second and kind on stderr about broken rules, refused connections and unknown names; 0: none.",
        ),
        click.option(
            "--record-max-time",
            "record_max_time",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Go on in a next file after this time: NAME-0001.pcapng and so on.",
        ),
        click.option(
            "--record-mode",
            "record_mode",
            type=Mode(),
            default=f"{MODE:04o}",
            show_default=True,
            help="Permissions of recordings, in octal digits; 0640 lets the group read.",
        ),
        click.option(
            "--watch", "watch", is_flag=True, help="Say on stderr at once which rules are broken, by either side; needs wirelake[lake]."
        ),
        click.option("--record-max-size", "record_max_size", type=Size(), help="Go on in a next file before one is larger than this."),
        click.option(
            "--record", "record", type=click.Path(path_type=Path), help="Record all that is sent and received to this pcapng file."
        ),
    ):
        wrapped = option(wrapped)
    return cast(F, wrapped)


def server_flags(command: F) -> F:
    """Flags of every server command; its limits come as `server`."""

    @wraps(command)
    def run(*arguments: Any, max_connections: int, max_connections_per_host: int, idle_timeout: float, **named: Any) -> Any:
        server = ServerLimits(
            max_connections=max_connections, max_connections_per_host=max_connections_per_host, idle_timeout=idle_timeout or None
        )
        return command(*arguments, server=server, **named)

    wrapped: Any = live_flags(cast(F, run))
    for option in (
        click.option(
            "--idle-timeout",
            "idle_timeout",
            type=click.FloatRange(min=0),
            default=DEFAULT_SERVER_LIMITS.idle_timeout,
            show_default=True,
            metavar="SECONDS",
            help="Close a connection that carries nothing for this long; 0: never.",
        ),
        click.option(
            "--max-connections-per-host",
            "max_connections_per_host",
            type=click.IntRange(min=1),
            default=DEFAULT_SERVER_LIMITS.max_connections_per_host,
            show_default=True,
            help="Connections of one host; a further one takes the place of its longest idle one.",
        ),
        click.option(
            "--max-connections",
            "max_connections",
            type=click.IntRange(min=1),
            default=DEFAULT_SERVER_LIMITS.max_connections,
            show_default=True,
            help="Connections in all; a further one takes the place of the longest idle one of the host with the most.",
        ),
        click.option("--key", "key", type=click.Path(path_type=Path), help="Its key, if it is not in the same file."),
        click.option("--cert", "cert", type=click.Path(path_type=Path), help="The server's certificate, for tls://."),
        click.option("-q", "--quiet", "quiet", is_flag=True, help="Do not print what arrives."),
    ):
        wrapped = option(wrapped)
    return cast(F, wrapped)


def connection_flags(command: F) -> F:
    """Flags of every client command."""
    command = live_flags(command)
    trust = "Certificate authorities to trust instead of the system's."
    for option in (
        click.option("--insecure", "insecure", is_flag=True, help="Do not check the server's certificate."),
        click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help=trust),
    ):
        command = option(command)
    return command
