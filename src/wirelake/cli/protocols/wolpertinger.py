"""wolpertinger from the command line: `serve`, `call` and `listen`."""

from __future__ import annotations

import asyncio
import base64
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from wirelake.cli.commands import Commands
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import limits_flag
from wirelake.cli.live import compile_scanner, emit, first_of, live_limits, recording, run, say, until_stopped
from wirelake.cli.live_flags import connection_flags, server_flags
from wirelake.cli.terminal import json_text
from wirelake.errors import UsageError
from wirelake.protocols.wolpertinger import PROTOCOL
from wirelake.transports.address import ENCRYPTED, XMPP
from wirelake.transports.tls import client_context, server_context

if TYPE_CHECKING:
    from wirelake.peers.admission import ServerLimits
    from wirelake.peers.wolpertinger import Options, Peer
    from wirelake.protocols.wolpertinger.options import Limits
    from wirelake.transports.xmpp import Xmpp

__all__ = ["COMMANDS", "call", "listen", "serve"]

F = TypeVar("F", bound=Callable[..., Any])


def _session_flags(command: F) -> F:
    """Options and limits of a session, of either side."""
    for option in (
        click.option(
            "--cluster-key", "cluster_key", type=click.Path(path_type=Path), help="A file with the cluster's key in hex, for level 3."
        ),
        click.option(
            "--xmpp-password", "xmpp_password", type=click.Path(path_type=Path), help="A file with the password of the XMPP account."
        ),
        click.option(
            "--key-log",
            "key_log",
            type=click.Path(path_type=Path),
            help="Append the keys of every session to this file, which only you may read; ingest and decode take it as --keys.",
        ),
        click.option("--dotnet", "dotnet", is_flag=True, help="Send infinite doubles as Infinity, which C# peers read, instead of INF."),
        limits_flag("wolpertinger"),
        click.option("--xmpp-server", "xmpp_server", metavar="HOST:PORT", help="Where the XMPP server is, instead of what DNS says."),
    ):
        command = option(command)
    return command


def _level_flags(command: F) -> F:
    """How far a client goes before its first call."""
    for option in (
        click.option("--password", "password", type=click.Path(path_type=Path), help="A file with the user's password, for level 4."),
        click.option("--user", "user", default="", help="A user's name, for level 4."),
        click.option(
            "--level",
            "level",
            type=click.IntRange(0, 4),
            default=0,
            show_default=True,
            help="Trust to reach first: 1 connected, 2 encrypted, 3, 4.",
        ),
    ):
        command = option(command)
    return command


@click.command("wolpertinger")
@click.argument("address", default=f"tcp://127.0.0.1:{PROTOCOL.port}")
@click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help="Certificate authorities to trust, for xmpp://.")
@click.option("--users", "users", type=click.Path(path_type=Path), help="A file of lines NAME:PASSWORD, for level 4.")
@_session_flags
@server_flags
def serve(
    address: str,
    users: Path | None,
    ca_file: Path | None,
    cluster_key: Path | None,
    xmpp_password: Path | None,
    xmpp_server: str | None,
    key_log: Path | None,
    dotnet: bool,
    limits: Limits,
    quiet: bool,
    record: Path | None,
    server: ServerLimits,
    cert: Path | None,
    key: Path | None,
) -> int:
    """Offer a component Demo to try clients with, and print each call that arrives as one JSON object. Ctrl-C ends it.

    \b
    Demo.Echo(value), Demo.Add(a, b), Demo.Note(text) need no trust, Demo.Sleep(seconds) and Demo.Fail(code) level 1,
    Demo.Secret() 2, Demo.Shared() 3 and Demo.Private() 4.

    \b
    ADDRESS  Where to listen: tcp:// or tls://host:port, unix:///path, or xmpp://user@domain; port 0 is any free one.
    """
    if address.partition("://")[0] in ENCRYPTED and cert is None:
        raise UsageError("tls:// needs --cert")
    is_login = address.startswith(f"{XMPP}://")
    compile_scanner("wolpertinger")
    options = _options(cluster_key, users, limits, dotnet=dotnet)
    _make_log(key_log)

    async def offer() -> None:
        from wirelake.peers import wolpertinger  # noqa: PLC0415 - imported when it is used
        from wirelake.peers.wolpertinger.demo_component import Demo  # noqa: PLC0415

        with recording(record, "wolpertinger") as recorder:
            shown = options if quiet else msgspec.structs.replace(options, on_call=_show_call, on_event=_show_event)
            recorded = msgspec.structs.replace(shown, recorder=recorder, key_log=key_log)
            tls = server_context(cert, key) if cert is not None else client_context(ca_file=ca_file) if is_login else None
            login = _login(xmpp_password, xmpp_server)
            async with wolpertinger.serve(address, Demo, options=recorded, tls=tls, limits=server, login=login) as serving:
                say(f"listening at {serving.address}; Ctrl-C ends it")
                await until_stopped()
                say("closing")

    run(offer())
    return ExitCode.OK


@click.command("wolpertinger")
@click.argument("address")
@click.argument("name", metavar="COMPONENT.METHOD")
@click.argument("parameters", nargs=-1)
@click.option("--void", "void", is_flag=True, help="The method returns nothing: be content with its delivery.")
@click.option(
    "--timeout", "timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for the response; 30 unless given."
)
@_level_flags
@_session_flags
@connection_flags
def call(address: str, name: str, parameters: tuple[str, ...], void: bool, timeout: float | None, **flags: Any) -> int:
    """Call one method and print what it returns as JSON.

    \b
    ADDRESS           tcp:// or tls://host:port, unix:///path, or xmpp://me@domain/peer@domain.
    COMPONENT.METHOD  What is called.
    PARAMETERS        JSON (true, 5, 2.5, [1, 2]), TYPE:TEXT for a type by name (uint64:5, guid:…, dateTime:…),
                      and anything else is a string.
    """
    component, dot, method = name.rpartition(".")
    if not dot or not component or not method:
        raise UsageError(f"{name!r}: write Component.Method")
    values = [_value(text) for text in parameters]

    async def ask() -> None:
        async with _connected(address, **flags) as peer:
            answer = await peer.call(component, method, *values, returns=not void, timeout=timeout)
            if not void:
                _print(_printable(answer))

    run(ask())
    return ExitCode.OK


@click.command("wolpertinger")
@click.argument("address")
@click.option("-c", "--count", "count", type=click.IntRange(min=1), help="Stop after so many events.")
@_level_flags
@_session_flags
@connection_flags
def listen(address: str, count: int | None, **flags: Any) -> int:
    """Connect, and print errors that answer no call, changes of trust and resets, one JSON object per line, until Ctrl-C.

    \b
    ADDRESS  tcp:// or tls://host:port, unix:///path, or xmpp://me@domain/peer@domain.
    """

    async def hear() -> None:
        seen, enough = 0, asyncio.Event()

        def show(peer: Peer, event: Any) -> None:
            nonlocal seen
            if not enough.is_set():
                _show_event(peer, event)
                seen += 1
                if seen == count:
                    enough.set()

        async with _connected(address, on_event=show, **flags) as peer:
            say(f"connected to {address}; Ctrl-C ends it")
            await first_of(until_stopped(), enough.wait(), peer.over())
            if peer.ended is not None:
                say(str(peer.ended.reason()))

    run(hear())
    return ExitCode.OK


@asynccontextmanager
async def _connected(
    address: str,
    *,
    level: int,
    user: str,
    password: Path | None,
    cluster_key: Path | None,
    xmpp_password: Path | None,
    xmpp_server: str | None,
    key_log: Path | None,
    dotnet: bool,
    limits: Limits,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
    on_event: Callable[[Peer, Any], None] | None = None,
) -> AsyncIterator[Peer]:
    """A connected peer at the given trust level, recorded if a file is given."""
    from wirelake.peers.wolpertinger import connect  # noqa: PLC0415 - imported when it is used

    if level == 4 and (not user or password is None):
        raise UsageError("--level 4 needs --user and --password")
    if level == 3 and cluster_key is None:
        raise UsageError("--level 3 needs --cluster-key")
    _make_log(key_log)
    wants_tls = address.partition("://")[0] in (*ENCRYPTED, XMPP)
    tls = client_context(ca_file=ca_file, verify=not insecure) if wants_tls else None
    with recording(record, "wolpertinger") as recorder:
        options = msgspec.structs.replace(
            _options(cluster_key, None, limits, dotnet=dotnet),
            recorder=recorder,
            key_log=key_log,
            on_event=on_event,
            authenticate=level,
            user=user,
            password="" if password is None else _line(password),
        )
        async with connect(address, options=options, tls=tls, login=_login(xmpp_password, xmpp_server)) as peer:
            yield peer


def _options(cluster_key: Path | None, users: Path | None, limits: Limits, *, dotnet: bool) -> Options:
    from wirelake.peers.wolpertinger import Options  # noqa: PLC0415 - imported when it is used

    known: dict[str, str] = {}
    if users is not None:
        for line in _text(users).splitlines():
            name, colon, password = line.partition(":")
            if not colon:
                raise UsageError(f"{users}: write a line for each user as NAME:PASSWORD")
            known[name.lower()] = password
    try:
        key = None if cluster_key is None else bytes.fromhex(_line(cluster_key))
    except ValueError:
        raise UsageError(f"{cluster_key}: a cluster key is an even number of hex digits") from None
    return Options(
        **live_limits("wolpertinger", limits), cluster_key=key, password_of=known.get if users is not None else None, dotnet=dotnet
    )


def _make_log(path: Path | None) -> None:
    """Create the key log, so that a path that cannot be written is reported first."""
    if path is not None:
        from wirelake.peers import key_log  # noqa: PLC0415 - imported when it is used

        key_log.make(path)


def _login(password: Path | None, server: str | None) -> Xmpp:
    from wirelake.transports.xmpp import Xmpp  # noqa: PLC0415 - imported when it is used

    place = None
    if server is not None:
        host, colon, port = server.rpartition(":")
        if not colon or not port.isdecimal():
            raise UsageError(f"--xmpp-server {server}: write HOST:PORT")
        place = (host, int(port))
    return Xmpp(password_file=password, server=place)


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip("\r")


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except OSError as reason:
        raise UsageError(f"cannot read {path}: {reason.strerror}") from None


def _value(text: str) -> Any:
    """A parameter as people write it."""
    from wirelake.protocols.wolpertinger.layer2.values import PRIMITIVES  # noqa: PLC0415 - imported when it is used

    name, colon, rest = text.partition(":")
    if colon and name in PRIMITIVES:
        return PRIMITIVES[name](rest)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if value is None or isinstance(value, dict):
        raise UsageError(f"{text!r} is no value: null and objects cannot be sent (WOLP-19); for a text write 'string:{text}'")
    return value


def _print(value: Any) -> None:
    print(json_text(value, _plain), flush=True)


def _printable(value: Any) -> Any:
    """A value with doubles that JSON cannot spell as texts; JSON would have null for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return [_printable(item) for item in value] if isinstance(value, (tuple, list)) else value


def _plain(value: Any) -> Any:
    """What JSON does not know."""
    if isinstance(value, int):
        return int(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _show_call(peer: Peer, name: str, parameters: tuple[Any, ...]) -> None:
    emit({"from": _place(peer), "call": name, "parameters": _printable(parameters)}, _plain)


def _show_event(peer: Peer, event: Any) -> None:
    fields = {name: _told(getattr(event, name)) for name in event.__struct_fields__}
    emit({"from": _place(peer), "event": type(event).__name__, **fields}, _plain)


def _told(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value


def _place(peer: Peer) -> str:
    host, port = peer.stream.remote
    return f"{host}:{port}" if port else host


COMMANDS: Final = Commands(serve=serve, listen=listen, call=call)
