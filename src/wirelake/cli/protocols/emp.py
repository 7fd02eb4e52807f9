"""EMP from the command line: `serve`, `call` and `send`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from wirelake.cli.commands import Commands
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import limits_flag
from wirelake.cli.live import body_fields, body_of, compile_scanner, emit, live_limits, recording, run, say, until_stopped
from wirelake.cli.live_flags import connection_flags, server_flags
from wirelake.errors import UsageError
from wirelake.protocols.emp import PROTOCOL
from wirelake.transports.tls import client_context, server_context

if TYPE_CHECKING:
    from wirelake.peers.admission import ServerLimits
    from wirelake.peers.emp import Peer
    from wirelake.protocols.emp.events import DataReceived, RequestReceived
    from wirelake.protocols.emp.options import Limits

__all__ = ["COMMANDS", "call", "send", "serve"]


@click.command("emp")
@click.argument("address", default=f"tcp://127.0.0.1:{PROTOCOL.port}")
@click.option("--answer", "answer", help="Answer every request with this text instead of its own body.")
@limits_flag("emp")
@server_flags
def serve(
    address: str,
    answer: str | None,
    limits: Limits,
    quiet: bool,
    record: Path | None,
    server: ServerLimits,
    cert: Path | None,
    key: Path | None,
) -> int:
    """Answer requests with an echo, or with a fixed text, and print each message that arrives as one JSON object. Ctrl-C ends it.

    \b
    ADDRESS  Where to listen: tcp://host:port or tls://host:port; port 0 is any free one.
    """
    if address.startswith("tls://") and cert is None:
        raise UsageError("tls:// needs --cert")
    compile_scanner("emp")
    run(_serve(address, answer, limits, quiet, record, server, cert, key))
    return ExitCode.OK


async def _serve(
    address: str,
    answer: str | None,
    limits: Limits,
    quiet: bool,
    record: Path | None,
    limited: ServerLimits,
    cert: Path | None,
    key: Path | None,
) -> None:
    from wirelake.peers import emp  # noqa: PLC0415 - imported when it is used

    def show(peer: Peer, event: DataReceived | RequestReceived) -> None:
        if not quiet:
            host, port = peer.stream.remote
            fields = {name: value for name, value in msgspec.structs.asdict(event).items() if name not in ("body", "extensions")}
            emit({"from": f"{host}:{port}", **fields, **body_fields(event.body)})

    def on_request(peer: Peer, request: RequestReceived) -> bytes:
        show(peer, request)
        return request.body if answer is None else answer.encode()

    async def on_data(peer: Peer, data: DataReceived) -> None:
        show(peer, data)

    with recording(record, "emp") as recorder:
        options = emp.Options(
            **live_limits("emp", limits),
            application_types=frozenset(range(128, 256)),
            on_request=on_request,
            on_data=on_data,
            recorder=recorder,
        )
        async with emp.serve(address, options=options, limits=limited, tls=None if cert is None else server_context(cert, key)) as server:
            say(f"listening at {server.address}; Ctrl-C ends it")
            await until_stopped()
            say("closing")


@click.command("emp")
@click.argument("address")
@click.argument("body")
@click.option("--hex", "hex_text", is_flag=True, help="The request is hex digits, and so is the answer.")
@click.option("--compress", "compress", is_flag=True, help="Pack the request with gzip.")
@click.option(
    "--timeout", "timeout", type=click.FloatRange(min=0.001), default=30.0, show_default=True, help="Seconds to wait for the answer."
)
@limits_flag("emp")
@connection_flags
def call(
    address: str,
    body: str,
    hex_text: bool,
    compress: bool,
    timeout: float,
    limits: Limits,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Send one request and print the answer's body.

    \b
    ADDRESS  tcp://host:port or tls://host:port.
    BODY     The request: text, or - for standard input.
    """
    request = body_of(body, hex_text)

    async def ask() -> bytes:
        async with _connected(address, limits, ca_file, insecure, record) as peer:
            return await peer.request(request, timeout=timeout, compress=compress)

    answer = run(ask())
    sys.stdout.buffer.write(answer.hex().encode() if hex_text else answer)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return ExitCode.OK


@click.command("emp")
@click.argument("address")
@click.argument("bodies", nargs=-1, required=True)
@click.option("--hex", "hex_text", is_flag=True, help="The bodies are hex digits.")
@click.option("--compress", "compress", is_flag=True, help="Pack the bodies with gzip.")
@click.option(
    "--type",
    "type_id",
    type=click.IntRange(min=5, max=255),
    default=5,
    show_default=True,
    help="5 for data, or an application's own type from 128 on.",
)
@limits_flag("emp")
@connection_flags
def send(
    address: str,
    bodies: tuple[str, ...],
    hex_text: bool,
    compress: bool,
    type_id: int,
    limits: Limits,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Send data messages, then say bye.

    \b
    ADDRESS  tcp://host:port or tls://host:port.
    BODIES   What to send, one message each: text, or - for standard input.
    """
    messages = [body_of(body, hex_text) for body in bodies]

    async def tell() -> None:
        async with _connected(address, limits, ca_file, insecure, record) as peer:
            for body in messages:
                await peer.send(body, compress=compress, type_id=type_id)

    run(tell())
    return ExitCode.OK


@asynccontextmanager
async def _connected(address: str, limits: Limits, ca_file: Path | None, insecure: bool, record: Path | None) -> AsyncIterator[Peer]:
    """A connected peer, recorded if a file is given."""
    from wirelake.peers.emp import Options, connect  # noqa: PLC0415 - imported when it is used

    tls = client_context(ca_file=ca_file, verify=not insecure) if address.startswith("tls://") else None
    with recording(record, "emp") as recorder:
        async with connect(address, tls=tls, options=Options(**live_limits("emp", limits), recorder=recorder)) as peer:
            yield peer


COMMANDS: Final = Commands(serve=serve, call=call, send=send)
