"""What commands that speak share: bodies from arguments, recordings, and waiting to be told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from wirelake.capture.recording import Recorder
from wirelake.errors import UsageError

__all__ = ["body_of", "recording", "until_told"]


def body_of(text: str, hex_text: bool) -> bytes:
    """A body from an argument: text, hex digits, or standard input for `-`."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    if not hex_text:
        return data
    try:
        return bytes.fromhex(data.decode())
    except ValueError:
        raise UsageError("--hex: the body is not an even number of hex digits") from None


def recording(path: Path | None, protocol: str) -> AbstractContextManager[Recorder | None]:
    """A recorder, if a file was named."""
    return nullcontext() if path is None else Recorder(path, protocol=protocol)


async def until_told() -> None:
    """Wait for Ctrl-C or a polite kill."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, told.set)
    await told.wait()
