"""`wirelake send`: messages nobody answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.cli.flags import connection_flags
from wirelake.cli.live import body_of, connected, only_emp

__all__ = ["send"]


@click.command()
@click.argument("protocol")
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
@connection_flags
def send(
    protocol: str,
    address: str,
    bodies: tuple[str, ...],
    hex_text: bool,
    compress: bool,
    type_id: int,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Send data messages, then say bye.

    \b
    PROTOCOL  Which protocol to speak: emp.
    ADDRESS   tcp://host:port or tls://host:port.
    BODIES    What to send, one message each: text, or - for standard input.
    """
    only_emp(protocol)
    messages = [body_of(body, hex_text) for body in bodies]

    async def tell() -> None:
        async with connected(address, ca_file, insecure, record) as peer:
            for body in messages:
                await peer.send(body, compress=compress, type_id=type_id)

    asyncio.run(tell())
    return ExitCode.OK
