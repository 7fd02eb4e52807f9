"""Two ends of a conversation, for the peers of any protocol: in memory, or over each transport."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

from wirelake.protocols.speaker import Speaker
from wirelake.transports.memory import pair

__all__ = ["ANY", "Way", "two_ends", "ways"]

ANY = "tcp://127.0.0.1:0"


class Way(NamedTuple):
    """A transport as a test uses it."""

    address: str
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


def ways(folder: Path, server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Way]:
    """Every transport that carries a stream or messages, by its scheme."""
    return {
        "tcp": Way(ANY),
        "tls": Way("tls://127.0.0.1:0", server, client),
        "ws": Way("ws://127.0.0.1:0/some/where?x=1"),
        "wss": Way("wss://127.0.0.1:0", server, client),
        "unix": Way(f"unix://{folder}/peer.sock"),
        "udp": Way("udp://127.0.0.1:0"),
    }


@contextlib.asynccontextmanager
async def two_ends(peer: Callable[..., Any], client: Any, server: Any, cut: int | None = None) -> AsyncIterator[tuple[Any, Any]]:
    """Both ends of a conversation in memory, opened; `peer` is the class of a protocol's peers. The client closes at the end."""
    one, two = pair(cut)
    ends = peer(Speaker.CLIENT, one, client), peer(Speaker.SERVER, two, server)
    async with asyncio.TaskGroup() as group:
        for end in ends:
            group.create_task(end.run())
        await asyncio.gather(*(end.opened() for end in ends))
        try:
            yield ends
        finally:
            ends[0].close()
