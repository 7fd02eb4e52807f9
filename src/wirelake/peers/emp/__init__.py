"""EMP live: `connect` makes a peer, `serve` one for each client.

Both sides may send requests and answer them.

```
async with serve("tcp://127.0.0.1:5040", on_request=lambda peer, request: request.body.upper()) as server:
    async with connect(server.address) as peer:
        print(await peer.request(b"hello", timeout=1))
```
"""

from __future__ import annotations

import ssl

import msgspec

from wirelake.peers.admission import ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.emp.options import DataHandler, FailureHandler, Options, RequestHandler
from wirelake.peers.emp.peer import Peer
from wirelake.peers.server import Server
from wirelake.protocols.emp.events import DataReceived, Ended, RequestReceived
from wirelake.protocols.emp.messages import DEFAULT_PORT
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.transports.address import parse
from wirelake.transports.tls import for_client, for_server

__all__ = [
    "Backoff",
    "DataHandler",
    "DataReceived",
    "Ended",
    "FailureHandler",
    "Options",
    "Peer",
    "RequestHandler",
    "RequestReceived",
    "ServerLimits",
    "connect",
    "serve",
]

SCHEMES = ("tcp", "tls")


def connect(
    address: str,
    *,
    on_request: RequestHandler | None = None,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """Connect to the server at `tcp://host:port` or `tls://host:port`; use it with `async with`.

    Without `reconnect` the client gives up when its connection ends.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    chosen = _answering(options, on_request)
    return Client(
        target,
        lambda stream: Peer(Speaker.CLIENT, stream, chosen),
        tls=for_client(target, tls),
        reconnect=reconnect,
        connect_timeout=connect_timeout,
    )


def serve(
    address: str,
    *,
    on_request: RequestHandler | None = None,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits | None = None,
) -> Server[Peer]:
    """Serve at `tcp://host:port` or `tls://host:port` (port 0: any free one); use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    chosen = _answering(options, on_request)
    return Server(target, lambda stream: Peer(Speaker.SERVER, stream, chosen), tls=for_server(target, tls), limits=limits)


def _answering(options: Options | None, on_request: RequestHandler | None) -> Options:
    """The options with this handler, if one is given."""
    options = options or Options()
    return options if on_request is None else msgspec.structs.replace(options, on_request=on_request)
