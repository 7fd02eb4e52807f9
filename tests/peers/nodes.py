"""Live nodes for tests: each knows the keys of those it is told."""

from __future__ import annotations

import msgspec
from tests.protocols.event_mesh.mesh import credentials, known

from wirelake.peers.event_mesh import Node, Options, node

ANY = "udp://127.0.0.1:0"


def make_options(*names: str, base: Options | None = None, **more) -> Options:
    """Options of a node that knows the keys of these."""
    return msgspec.structs.replace(base or Options(), trust=known(names), **more)


def proven(name: str, *others: str, address: str = ANY, peers=(), groups=(), **more) -> Node:
    return node(address, credentials=credentials(name), options=make_options(name, *others, **more), peers=peers, groups=groups)


async def names(subscription, count: int) -> list[str | None]:
    return [(await anext(subscription)).name for _ in range(count)]
