"""`wirelake call`: one request, its answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.cli.live import body_of, client_tls, only_emp, recording

__all__ = ["call"]


@click.command()
@click.argument("protocol")
@click.argument("address")
@click.argument("body")
@click.option("--hex", "hex_text", is_flag=True, help="The request is hex digits, and so is the answer.")
@click.option("--compress", "compress", is_flag=True, help="Pack the request with gzip.")
@click.option(
    "--timeout", "timeout", type=click.FloatRange(min=0.001), default=30.0, show_default=True, help="Seconds to wait for the answer."
)
@click.option("--ca-file", "ca_file", type=click.Path(path_type=Path), help="Certificate authorities to trust instead of the system's.")
@click.option("--insecure", "insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--record", "record", type=click.Path(path_type=Path), help="Record the conversation to this pcapng file.")
def call(
    protocol: str,
    address: str,
    body: str,
    hex_text: bool,
    compress: bool,
    timeout: float,
    ca_file: Path | None,
    insecure: bool,
    record: Path | None,
) -> int:
    """Send one request and print the answer's body.

    \b
    PROTOCOL  Which protocol to speak: emp.
    ADDRESS   tcp://host:port or tls://host:port.
    BODY      The request: text, or - for standard input.
    """
    only_emp(protocol)
    request = body_of(body, hex_text)
    answer = asyncio.run(_call(address, request, compress, timeout, ca_file, insecure, record))
    sys.stdout.buffer.write(answer.hex().encode() if hex_text else answer)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return ExitCode.OK


async def _call(
    address: str, request: bytes, compress: bool, timeout: float, ca_file: Path | None, insecure: bool, record: Path | None
) -> bytes:
    from wirelake.peers.emp import Live, connect  # noqa: PLC0415 - only who talks pays for it

    with recording(record) as recorder:
        async with connect(address, tls=client_tls(address, ca_file, insecure), live=Live(recorder=recorder)) as peer:
            return await peer.request(request, timeout=timeout, compress=compress)
