"""Sends bytes that no peer of ours would send, for the rule violations of the demo."""

from __future__ import annotations

import asyncio
import contextlib

from wirelake.transports.address import parse

__all__ = ["send_raw"]


async def send_raw(address: str, data: bytes, *, seconds: float = 0.3, finish: bool = False) -> None:
    """Send bytes as they are, read for a moment or until the server closes, and close.

    `finish` ends our side first.
    """
    target = parse(address, 0)
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(data)
    if finish:
        writer.write_eof()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            while await reader.read(4096):
                pass
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
