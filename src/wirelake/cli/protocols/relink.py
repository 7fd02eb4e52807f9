"""Relink from the command line: `serve`, `listen` and `send`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from wirelake.cli.commands import Commands
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import limits_flag
from wirelake.cli.live import body_of, compile_scanner, emit, first_of, live_limits, recording, run, say, text_of, until_stopped
from wirelake.cli.live_flags import connection_flags, server_flags
from wirelake.errors import UsageError
from wirelake.protocols.relink import PROTOCOL
from wirelake.transports.tls import client_context, server_context

if TYPE_CHECKING:
    from wirelake.peers.admission import ServerLimits
    from wirelake.peers.relink import Endpoint, Link
    from wirelake.protocols.relink.events import MessageReceived, SessionEvent
    from wirelake.protocols.relink.options import Limits

__all__ = ["COMMANDS", "listen", "send", "serve"]

F = TypeVar("F", bound=Callable[..., Any])


def _endpoint_flags(command: F) -> F:
    """What both sides must say alike."""
    for option in (
        click.option("--transactions", "transactions", is_flag=True, help="The connector's messages are committed."),
        click.option(
            "--id-sizes",
            "id_sizes",
            nargs=2,
            type=click.IntRange(0, 255),
            default=(0, 0),
            show_default=True,
            help="Bytes of channel ids: of the connector's channels, and of the listener's.",
        ),
        click.option("--endpoint", "endpoint", default="", help="The endpoint's name; empty if not given."),
    ):
        command = option(command)
    return command


def _endpoint(name: str, id_sizes: tuple[int, int], transactions: bool) -> Endpoint:
    from wirelake.peers.relink import Endpoint  # noqa: PLC0415 - imported when it is used

    return Endpoint(name, *id_sizes, transactions)


def _show(message: MessageReceived) -> None:
    texts = [text_of(part) for part in message.parts]
    shown = {"parts": [part.hex() for part in message.parts]} if None in texts else {"texts": texts}
    emit({"channel": message.channel.hex(), "sequence": message.sequence, **shown})


def _tell(link: Link, event: SessionEvent) -> None:
    """Print an event of a link as one line on stderr."""
    if (name := type(event).__name__) in ("Opened", "Resumed", "LinkLost", "LinkShutdown", "Ended"):
        say(f"link {link.core.id}: {name.lower()} {getattr(event, 'detail', '') or ''}".rstrip())


@click.command("relink")
@click.argument("address", default=f"tcp://127.0.0.1:{PROTOCOL.port}")
@_endpoint_flags
@limits_flag("relink")
@server_flags
def serve(
    address: str,
    endpoint: str,
    id_sizes: tuple[int, int],
    transactions: bool,
    limits: Limits,
    quiet: bool,
    record: Path | None,
    server: ServerLimits,
    cert: Path | None,
    key: Path | None,
) -> int:
    """Consume every message that arrives, and print each as one JSON object. Ctrl-C ends it.

    \b
    ADDRESS  Where to listen: tcp://host:port, tls://host:port or unix:///path; port 0 is any free one.
    """
    if address.startswith("tls://") and cert is None:
        raise UsageError("tls:// needs --cert")
    compile_scanner("relink")
    run(_serve(address, _endpoint(endpoint, id_sizes, transactions), limits, quiet, record, server, cert, key))
    return ExitCode.OK


async def _serve(
    address: str,
    endpoint: Endpoint,
    limits: Limits,
    quiet: bool,
    record: Path | None,
    limited: ServerLimits,
    cert: Path | None,
    key: Path | None,
) -> None:
    from wirelake.peers import relink  # noqa: PLC0415 - imported when it is used

    async def take(link: Link) -> None:
        async for message in link:
            if not quiet:
                _show(message)

    with recording(record, "relink") as recorder:
        options = relink.Options(**live_limits("relink", limits), on_event=_tell, recorder=recorder, close_timeout=2.0)
        tls = None if cert is None else server_context(cert, key)
        async with relink.serve(address, {endpoint: take}, options=options, limits=limited, tls=tls) as listener:
            say(f"listening at {listener.address}; Ctrl-C ends it")
            await until_stopped()
            say("closing")


@click.command("relink")
@click.argument("address")
@click.argument("bodies", nargs=-1, required=True)
@click.option("--hex", "hex_text", is_flag=True, help="The bodies are hex digits.")
@click.option("--channel", "channel", default="", help="The id of the channel to send on, as hex digits.")
@click.option(
    "--timeout", "timeout", type=click.FloatRange(min=0.001), default=30.0, show_default=True, help="Seconds until all must be consumed."
)
@_endpoint_flags
@limits_flag("relink")
@connection_flags
def send(
    address: str,
    bodies: tuple[str, ...],
    hex_text: bool,
    channel: str,
    timeout: float,
    endpoint: str,
    id_sizes: tuple[int, int],
    transactions: bool,
    limits: Limits,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Send messages, wait until all of them are consumed, then shut the link down.

    \b
    ADDRESS  tcp://host:port, tls://host:port or unix:///path.
    BODIES   What to send, one message each: text, or - for standard input.
    """
    from wirelake.peers import relink  # noqa: PLC0415 - imported when it is used

    messages = [body_of(body, hex_text) for body in bodies]
    try:
        channel_id = bytes.fromhex(channel)
    except ValueError:
        raise UsageError(f"--channel {channel}: hex digits are needed") from None

    async def tell() -> None:
        with recording(record, "relink") as recorder:
            options = relink.Options(**live_limits("relink", limits), recorder=recorder, close_timeout=timeout)
            tls = _tls(address, ca_file, insecure)
            async with relink.connect(address, _endpoint(endpoint, id_sizes, transactions), options=options, tls=tls) as link:
                await asyncio.gather(*(link.channel(channel_id).send(body, timeout=timeout) for body in messages))

    run(tell())
    return ExitCode.OK


@click.command("relink")
@click.argument("address")
@click.option("-c", "--count", "count", type=click.IntRange(min=1), help="Stop after so many messages.")
@_endpoint_flags
@limits_flag("relink")
@connection_flags
def listen(
    address: str,
    count: int | None,
    endpoint: str,
    id_sizes: tuple[int, int],
    transactions: bool,
    limits: Limits,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Connect, consume what the listener sends, and print each message as one JSON object, until it shuts down or Ctrl-C.

    \b
    ADDRESS  tcp://host:port, tls://host:port or unix:///path.
    """
    from wirelake.peers import relink  # noqa: PLC0415 - imported when it is used

    async def hear() -> None:
        with recording(record, "relink") as recorder:
            options = relink.Options(**live_limits("relink", limits), on_event=_tell, recorder=recorder, close_timeout=2.0)
            tls = _tls(address, ca_file, insecure)
            async with relink.connect(
                address, _endpoint(endpoint, id_sizes, transactions), options=options, tls=tls, reconnect=relink.Backoff()
            ) as link:
                await first_of(until_stopped(), _show_all(link, count))

    run(hear())
    return ExitCode.OK


async def _show_all(link: Link, count: int | None) -> None:
    """Print what arrives, up to so many messages."""
    seen = 0
    async for message in link:
        _show(message)
        seen += 1
        if seen == count:
            link.consume(message)
            if link.unread:  # it will not be consumed, and the peer would wait for that
                await link.leave()
            return


def _tls(address: str, ca_file: Path | None, insecure: bool) -> ssl.SSLContext | None:
    return client_context(ca_file=ca_file, verify=not insecure) if address.startswith("tls://") else None


COMMANDS: Final = Commands(serve=serve, listen=listen, send=send)
