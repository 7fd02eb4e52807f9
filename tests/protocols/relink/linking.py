"""Channels, an endpoint with transactions and hand-made packets that tests of links share."""

from __future__ import annotations

from tests.protocols.relink.pair import C, Pair

from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    AnyMessage,
)
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.wire import encode

A, B = b"a", b"b"
TX = Endpoint("demo", 1, 1, connector_transactions=True)
SIX = Endpoint("demo", 6, 6)


def say(pair: Pair, to, *message: AnyMessage) -> Fault | None:
    """Said to one side by hand; the fault it ends the connection with."""
    pair.give(to, b"".join(map(encode, message)))
    ended = pair.ends[to].ended
    return ended.fault if ended is not None else None


def post(pair: Pair, count: int, speaker=C, channel: bytes = A) -> None:
    for number in range(count):
        pair.link(speaker).send(channel, (b"%d" % number,))
