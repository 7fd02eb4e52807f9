"""`wirelake serve`: a server that answers, shows what it hears, and records if asked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from wirelake.cli.exits import ExitCode
from wirelake.cli.live import only_emp, recording
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.protocols.kernel import use_compiled
from wirelake.transports.tls import server_context

if TYPE_CHECKING:
    from wirelake.peers.emp import Peer
    from wirelake.protocols.emp.events import DataReceived, RequestReceived

__all__ = ["serve"]


@click.command()
@click.argument("protocol")
@click.argument("address", default="tcp://127.0.0.1:5040")
@click.option("--answer", "answer", help="Answer every request with this text instead of its own body.")
@click.option("-q", "--quiet", "quiet", is_flag=True, help="Do not print what arrives.")
@click.option("--record", "record", type=click.Path(path_type=Path), help="Record all conversations to this pcapng file.")
@click.option("--cert", "cert", type=click.Path(path_type=Path), help="The server's certificate, for tls://.")
@click.option("--key", "key", type=click.Path(path_type=Path), help="Its key, if it is not in the same file.")
def serve(protocol: str, address: str, answer: str | None, quiet: bool, record: Path | None, cert: Path | None, key: Path | None) -> int:
    """Answer requests with an echo, or with a fixed text, and print each message that arrives as one JSON object. Ctrl-C ends it.

    \b
    PROTOCOL  Which protocol to speak: emp.
    ADDRESS   Where to listen: tcp://host:port or tls://host:port; port 0 is any free one.
    """
    only_emp(protocol)
    if address.startswith("tls://") and cert is None:
        raise UsageError("tls:// needs --cert")
    use_compiled()
    asyncio.run(_serve(address, answer, quiet, record, cert, key))
    return ExitCode.OK


async def _serve(address: str, answer: str | None, quiet: bool, record: Path | None, cert: Path | None, key: Path | None) -> None:
    from wirelake.peers import emp  # noqa: PLC0415 - only who talks pays for it
    from wirelake.protocols.emp import Options  # noqa: PLC0415

    def show(peer: Peer, event: DataReceived | RequestReceived) -> None:
        if not quiet:
            host, port = peer.stream.remote
            fields = {name: value for name, value in msgspec.structs.asdict(event).items() if name not in ("body", "extensions")}
            print(msgspec.json.encode({"from": f"{host}:{port}", **fields, "body": event.body.hex()}).decode(), flush=True)

    def on_request(peer: Peer, request: RequestReceived) -> bytes:
        show(peer, request)
        return request.body if answer is None else answer.encode()

    async def on_data(peer: Peer, data: DataReceived) -> None:
        show(peer, data)

    options = Options(application_types=frozenset(range(128, 256)))
    with recording(record) as recorder:
        live = emp.Live(session=options, on_request=on_request, on_data=on_data, recorder=recorder)
        async with emp.serve(address, live=live, tls=None if cert is None else server_context(cert, key)) as server:
            say(f"listening at {server.address}; Ctrl-C ends it")
            await _until_told()
            say("closing")


async def _until_told() -> None:
    """Wait for Ctrl-C or a polite kill."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, told.set)
    await told.wait()
