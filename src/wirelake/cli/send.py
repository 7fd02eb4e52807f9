"""`wirelake send`: messages nobody answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.cli.live import body_of, client_tls, only_emp, recording

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
@click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help="Certificate authorities to trust instead of the system's.")
@click.option("--insecure", "insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--record", "record", type=click.Path(path_type=Path), help="Record the conversation to this pcapng file.")
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
    asyncio.run(_send(address, messages, compress, type_id, ca_file, insecure, record))
    return ExitCode.OK


async def _send(
    address: str, messages: list[bytes], compress: bool, type_id: int, ca_file: Path | None, insecure: bool, record: Path | None
) -> None:
    from wirelake.peers.emp import Live, connect  # noqa: PLC0415 - only who talks pays for it

    with recording(record) as recorder:
        async with connect(address, tls=client_tls(address, ca_file, insecure), live=Live(recorder=recorder)) as peer:
            for body in messages:
                await peer.send(body, compress=compress, type_id=type_id)
