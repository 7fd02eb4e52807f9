"""A lake served on loopback by a thread, for tests of pages."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from wirelake.explore.web.application import WebOptions, create
from wirelake.explore.web.serve import configure

__all__ = ["served"]


@contextmanager
def served(lake: Path, options: WebOptions | None = None) -> Iterator[str]:
    """Serve a lake on a free port; gives the address without a slash."""
    listening = socket.create_server(("127.0.0.1", 0))
    options = options or WebOptions()
    server = uvicorn.Server(configure(create(lake, options), options))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server.run(sockets=[listening])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"  # connections wait until it accepts them
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
    assert not failed, failed
    assert not thread.is_alive()
