"""Serve the application on a socket until the process is told to stop."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from os import PathLike

import uvicorn

from wirelake.errors import UsageError
from wirelake.explore.web.application import WebOptions, create
from wirelake.explore.web.guard import is_loopback
from wirelake.protocols.kernel import use_plain

__all__ = ["serve"]

SHUTDOWN_SECONDS = 3
"""Seconds that open requests get when the server stops."""


def serve(lake: str | PathLike[str], options: WebOptions, port: int, ready: Callable[[str], object]) -> None:
    """Serve a lake; `ready` gets the address. Raises UsageError if the address is not on loopback and there is no token."""
    if not is_loopback(options.host) and options.token is None:
        raise UsageError(f"--host {options.host}: others could read the lake; give --token-file with a file that only you may read")
    use_plain()  # a page decodes one message: loading compiled scanners would take longer
    with _bound(options.host, port) as listening:
        name = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{name}:{listening.getsockname()[1]}/"
        config = uvicorn.Config(
            create(lake, options, lambda: ready(address)),
            http="h11",
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
            uvicorn.Server(config).run(sockets=[listening])


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
