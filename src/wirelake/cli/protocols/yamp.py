"""YAMP from the command line: `serve`, `call`, `send` and `listen`.

Bodies are JSON here, whatever they are on the wire.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from wirelake.protocols.yamp import PROTOCOL
from wirelake.protocols.yamp.serializers.bounds import compile_walks
from wirelake.transports.address import ENCRYPTED
from wirelake.transports.tls import client_context, server_context

if TYPE_CHECKING:
    from wirelake.peers.admission import ServerLimits
    from wirelake.peers.yamp import Call, Options, Peer, ReceivedEvent, Service
    from wirelake.protocols.yamp.options import Limits

__all__ = ["COMMANDS", "call", "listen", "send", "serve"]

F = TypeVar("F", bound=Callable[..., Any])


def _session_flags(command: F) -> F:
    """What bodies are in on the wire, and the limits."""
    serializer = click.option(
        "--serializer", "serializer", default="json", show_default=True, help="What bodies are in: json, msgpack, bson, cbor or xml."
    )
    return serializer(limits_flag("yamp")(command))


@click.command("yamp")
@click.argument("address", default=f"tcp://127.0.0.1:{PROTOCOL.port}")
@click.option("--echo", "echo", is_flag=True, help="Answer every request with its own body.")
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin connect over WebSocket, as https://example.org; give it more than once. Pages of the same host may.",
)
@_session_flags
@server_flags
def serve(
    address: str,
    echo: bool,
    origins: tuple[str, ...],
    quiet: bool,
    record: Path | None,
    server: ServerLimits,
    cert: Path | None,
    key: Path | None,
    **session: Any,
) -> int:
    """Offer a service to try clients with, and print each event and request that arrives as one JSON object. Ctrl-C ends it.

    It answers requests of echo, sum ([1, 2]), count ({"to": 3, "seconds": 1}, with progress), fail and sleep (seconds).

    \b
    ADDRESS  Where to listen: tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path; port 0 is any free one.
    """
    if address.partition("://")[0] in ENCRYPTED and cert is None:
        raise UsageError("tls:// and wss:// need --cert")
    compile_scanner("yamp", compile_walks)
    options = msgspec.structs.replace(_options(**session), origins=origins)
    run(_serve(address, echo, options, quiet, record, server, cert, key))
    return ExitCode.OK


async def _serve(
    address: str, echo: bool, options: Options, quiet: bool, record: Path | None, limited: ServerLimits, cert: Path | None, key: Path | None
) -> None:
    from wirelake.peers import yamp  # noqa: PLC0415 - imported when it is used
    from wirelake.peers.yamp.demo_service import showcase  # noqa: PLC0415

    service = yamp.Service() if echo else showcase()
    if echo:
        service.otherwise(lambda _, asked: asked.body)
    if not quiet:
        service.on(">", _show_event)
    with recording(record, "yamp") as recorder:
        options = msgspec.structs.replace(options, service=service, recorder=recorder, on_request=None if quiet else _show_request)
        async with yamp.serve(address, options=options, limits=limited, tls=None if cert is None else server_context(cert, key)) as server:
            say(f"listening at {server.address}; Ctrl-C ends it")
            await until_stopped()
            say("closing")


@click.command("yamp")
@click.argument("address")
@click.argument("uri")
@click.argument("body", default="null")
@click.option("--progress", "progress", is_flag=True, help="Ask for progress, and print each step as a line of its own.")
@click.option("--timeout", "timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait; 0: for ever.")
@click.option("--follow", "follow", is_flag=True, help="Go where a server redirects to.")
@_session_flags
@connection_flags
def call(
    address: str,
    uri: str,
    body: str,
    progress: bool,
    timeout: float,
    follow: bool,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
    **session: Any,
) -> int:
    """Send one request and print the answer as JSON; Ctrl-C gives it up.

    \b
    ADDRESS  tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path.
    URI      What is asked for.
    BODY     JSON, or - for standard input; null unless it is given.
    """
    asked = _body(body)

    async def ask() -> None:
        async with _connected(address, _options(**session), follow, ca_file, insecure, record) as peer:
            if progress:
                pending = await peer.ask(uri, asked, timeout=timeout or math.inf)
                async for step in pending:
                    _print(step)
                _print(await pending.answer())
            else:
                _print(await peer.request(uri, asked, timeout=timeout or math.inf))

    run(ask())
    return ExitCode.OK


@click.command("yamp")
@click.argument("address")
@click.argument("uri")
@click.argument("bodies", nargs=-1)
@_session_flags
@connection_flags
def send(address: str, uri: str, bodies: tuple[str, ...], ca_file: Path | None, insecure: bool, record: Path | None, **session: Any) -> int:
    """Send events, then close.

    \b
    ADDRESS  tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path.
    URI      What they are called.
    BODIES   JSON, one event each, or - for standard input; without any, one event with null.
    """
    events = [_body(body) for body in bodies or ("null",)]

    async def tell() -> None:
        async with _connected(address, _options(**session), False, ca_file, insecure, record) as peer:
            for event in events:
                await peer.send(uri, event)

    run(tell())
    return ExitCode.OK


@click.command("yamp")
@click.argument("address")
@click.argument("pattern", default=">")
@click.option("-c", "--count", "count", type=click.IntRange(min=1), help="Stop after so many events.")
@_session_flags
@connection_flags
def listen(address: str, pattern: str, count: int | None, ca_file: Path | None, insecure: bool, record: Path | None, **session: Any) -> int:
    """Connect, and print the events that a server sends, one JSON object per line, until it closes or Ctrl-C.

    \b
    ADDRESS  tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path.
    PATTERN  Which events: news.* has any one word at the star, news.> anything below news.
    """

    async def hear() -> None:
        from wirelake.peers.yamp import Service  # noqa: PLC0415 - imported when it is used

        # A server may speak as soon as hands are shaken: who listens is there before.
        service, enough, left = Service(), asyncio.Event(), math.inf if count is None else count

        def show(peer: Peer, event: ReceivedEvent) -> None:
            nonlocal left
            if left > 0:
                _show_event(peer, event)
                left -= 1
            if left <= 0:
                enough.set()

        service.on(pattern, show)
        async with _connected(address, _options(**session), False, ca_file, insecure, record, service) as peer:
            say(f"connected to {address}; Ctrl-C ends it")
            await first_of(until_stopped(), enough.wait(), peer.over())
            if peer.ended is not None:
                say(str(peer.ended.reason()))

    run(hear())
    return ExitCode.OK


@asynccontextmanager
async def _connected(
    address: str,
    options: Options,
    follow: bool,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
    service: Service | None = None,
) -> AsyncIterator[Peer]:
    """A connected peer, recorded if a file is given."""
    from wirelake.peers.yamp import connect  # noqa: PLC0415 - imported when it is used

    wants_tls = follow or address.partition("://")[0] in ENCRYPTED
    tls = client_context(ca_file=ca_file, verify=not insecure) if wants_tls else None
    with recording(record, "yamp") as recorder:
        recorded = msgspec.structs.replace(options, recorder=recorder)
        async with connect(address, service, options=recorded, tls=tls, follow_redirects=follow) as peer:
            yield peer


def _options(serializer: str, limits: Limits) -> Options:
    from wirelake.peers.yamp import Options  # noqa: PLC0415 - imported when it is used
    from wirelake.protocols.yamp.serializers.formats import installed, named  # noqa: PLC0415 - imported when it is used

    known = installed()
    if named(serializer) is None:
        raise UsageError(f"--serializer {serializer}: there are {', '.join(known)}")
    return Options(**live_limits("yamp", limits), serializer=serializer, serializers=known)


def _body(text: str) -> Any:
    """JSON from an argument, or from standard input for `-`."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as reason:
        raise UsageError(f"the body is not JSON: {reason}; write a text as '\"text\"'") from None


def _print(value: Any) -> None:
    print(json_text(value, str), flush=True)


def _show_event(_: Peer, event: ReceivedEvent) -> None:
    emit({"from": _place(event.peer), "event": event.uri, "body": event.body}, str)


def _show_request(_: Peer, asked: Call) -> None:
    emit({"from": _place(asked.peer), "request": asked.uri, "progressive": asked.progressive, "body": asked.body}, str)


def _place(peer: Peer) -> str:
    host, port = peer.stream.remote
    return f"{host}:{port}" if port else host


COMMANDS: Final = Commands(serve=serve, listen=listen, call=call, send=send)
