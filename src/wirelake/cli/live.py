"""What the live commands share: TLS flags, bodies from arguments, and what a peer of EMP is told on the command line."""

from __future__ import annotations

import ssl
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from wirelake import protocols
from wirelake.capture.recording import Recorder
from wirelake.errors import UsageError
from wirelake.transports.tls import client_context

__all__ = ["body_of", "client_tls", "only_emp", "recording"]


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


def client_tls(address: str, ca_file: Path | None, insecure: bool) -> ssl.SSLContext | None:
    """The TLS context for an address, if it wants one."""
    if not address.startswith("tls://"):
        return None
    return client_context(ca_file=ca_file, verify=not insecure)


def recording(path: Path | None) -> AbstractContextManager[Recorder | None]:
    """A recorder, if a file was named."""
    return nullcontext() if path is None else Recorder(path)
