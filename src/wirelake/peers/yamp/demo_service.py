"""A service to try a client with: an echo, and a uri for each outcome of a request.

| uri | body | what it does |
|---|---|---|
| `echo` | anything | answers with it |
| `sum` | numbers | their sum |
| `count` | `{"to": 3, "seconds": 1}`, or nothing | reports 1, 2, 3, one each so many seconds, then answers |
| `fail` | anything | fails with it |
| `sleep` | seconds | answers after them, unless it is cancelled |
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from wirelake.errors import RequestFailed
from wirelake.peers.yamp.peer import Peer
from wirelake.peers.yamp.service import Call, Service

__all__ = ["showcase"]


class Count(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `count`."""

    to: int = 3
    seconds: float = 1.0


def showcase() -> Service:
    """The service."""
    service = Service()
    service.request("echo", lambda _, call: call.body)
    service.request("sum", lambda _, call: sum(call.body), of=list[int | float])
    service.request("count", _count, of=Count | None)
    service.request("fail", _fail)
    service.request("sleep", _sleep, of=float)
    return service


async def _count(_: Peer, call: Call) -> int:
    told: Count = call.body or Count()
    for number in range(1, told.to + 1):
        await asyncio.sleep(told.seconds)
        await call.progress(number)
    return told.to


def _fail(_: Peer, call: Call) -> Any:
    raise RequestFailed(call.body)


async def _sleep(_: Peer, call: Call) -> None:
    await asyncio.sleep(call.body)
