"""A server of any protocol: accepts connections, gives each a peer, and closes all of them in order.

It refuses to know what is said on them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from wirelake.errors import ConnectFailed
from wirelake.peers.client import Runnable
from wirelake.transports import tcp
from wirelake.transports.address import Target
from wirelake.transports.stream import Stream

__all__ = ["Server"]

log = logging.getLogger("wirelake.server")

P = TypeVar("P", bound=Runnable)


class Server(Generic[P]):
    """Listens from `async with` on; at its end it says bye to everybody and waits for them to be gone."""

    def __init__(
        self, target: Target, make: Callable[[Stream], P], *, tls: ssl.SSLContext | None = None, max_connections: int = 10_000
    ) -> None:
        self.target = target
        self.peers: set[P] = set()
        """Who is connected now."""
        self.accepted = 0
        """Connections taken so far."""
        self._make = make
        self._tls = tls
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._group: asyncio.TaskGroup | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a client wants it."""
        return str(self.target)

    async def __aenter__(self) -> Server[P]:
        self._group = await asyncio.TaskGroup().__aenter__()
        try:
            self._server = await tcp.listen(self.target.host, self.target.port, self._accept, self._tls)
        except OSError as reason:
            await self._group.__aexit__(None, None, None)
            raise ConnectFailed(f"cannot listen at {self.target}: {reason.strerror or reason}") from None
        self.target = self.target._replace(port=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers):
            peer.close("the server is shutting down")
        if self._group is not None:
            await self._group.__aexit__(None, None, None)

    def _accept(self, stream: Stream) -> None:
        if self._group is None or len(self.peers) >= self._max_connections:
            log.warning("refused %s: %d connections are the limit", stream.remote, self._max_connections)
            stream.abort()
            return
        self.accepted += 1
        self._group.create_task(self._live(stream))

    async def _live(self, stream: Stream) -> None:
        peer = self._make(stream)
        self.peers.add(peer)
        try:
            await peer.run()
        except Exception:
            log.exception("the peer at %s broke down", stream.remote)  # one bad connection must not end the others
        finally:
            self.peers.discard(peer)
