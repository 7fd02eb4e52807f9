"""Serve the application on a socket until the process is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable
from os import PathLike
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from wirelake.errors import UsageError
from wirelake.explore.web.application import WebOptions, create
from wirelake.explore.web.guard import is_loopback
from wirelake.protocols.kernel import use_plain

__all__ = ["configure", "serve"]

SHUTDOWN_SECONDS = 3
"""Seconds that open requests get when the server stops."""
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def serve(lake: str | PathLike[str], options: WebOptions, port: int, ready: Callable[[str], object]) -> None:
    """Serve a lake; `ready` gets the address. Raises UsageError if the address is not on loopback and there is no token."""
    if not is_loopback(options.host) and options.token is None:
        raise UsageError(f"--host {options.host}: others could read the lake; give --token-file with a file that only you may read")
    use_plain()  # a page decodes one message: loading compiled scanners would take longer
    with _bound(options.host, port) as listening:
        name = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{name}:{listening.getsockname()[1]}/"
        config = configure(create(lake, options, lambda: ready(address)), options)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
            uvicorn.Server(config).run(sockets=[listening])


def configure(app: Starlette, options: WebOptions) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        http=functools.partial(_Connection, seconds=options.request_seconds),  # type: ignore[arg-type]  # whatever makes one
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


class _Connection(H11Protocol):
    """A connection that ends if a request is not complete in time. uvicorn has a limit only between requests."""

    def __init__(self, *, seconds: float, **parts: Any) -> None:
        super().__init__(**parts)
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request: the first begin the time, the last end it."""
        self._await_request()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._stop()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._timer is None and self._seconds:
            self._timer = self.loop.call_later(self._seconds, self._give_up)

    def _give_up(self) -> None:
        if self.conn.our_state is h11.IDLE:
            self.transport.write(_LATE)
        self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket; raises UsageError if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise UsageError(f"{host}:{port}: {error.strerror or error}; choose another --port, or 0 for any") from error
    return listening
