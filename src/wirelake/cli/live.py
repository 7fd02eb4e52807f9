"""What the live commands share: TLS flags, bodies from arguments, and what a peer of EMP is told on the command line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import protocols
from wirelake.capture.recording import Recorder
from wirelake.errors import UsageError
from wirelake.transports.tls import client_context

if TYPE_CHECKING:
    from wirelake.peers.emp import Peer

__all__ = ["body_of", "connected", "only_emp", "recording"]


def only_emp(protocol: str) -> None:
    """Refuse protocols that cannot be spoken live from here."""
    protocols.room(protocol)


def body_of(text: str, hex_text: bool) -> bytes:
    """A body from an argument: text, hex digits, or standard input for `-`."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    if not hex_text:
        return data
    try:
        return bytes.fromhex(data.decode())
    except ValueError:
        raise UsageError("--hex: the body is not an even number of hex digits") from None


@asynccontextmanager
async def connected(address: str, ca_file: Path | None, insecure: bool, record: Path | None) -> AsyncIterator[Peer]:
    """A connected peer, recorded if a file was named."""
    from wirelake.peers.emp import Live, connect  # noqa: PLC0415 - only who talks pays for it

    tls = client_context(ca_file=ca_file, verify=not insecure) if address.startswith("tls://") else None
    with recording(record) as recorder:
        async with connect(address, tls=tls, live=Live(recorder=recorder)) as peer:
            yield peer


def recording(path: Path | None) -> AbstractContextManager[Recorder | None]:
    """A recorder, if a file was named."""
    return nullcontext() if path is None else Recorder(path)
