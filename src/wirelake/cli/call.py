"""`wirelake call`: one request, its answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.cli.flags import connection_flags
from wirelake.cli.live import body_of, connected, only_emp

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
@connection_flags
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

    async def ask() -> bytes:
        async with connected(address, ca_file, insecure, record) as peer:
            return await peer.request(request, timeout=timeout, compress=compress)

    answer = asyncio.run(ask())
    sys.stdout.buffer.write(answer.hex().encode() if hex_text else answer)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return ExitCode.OK
