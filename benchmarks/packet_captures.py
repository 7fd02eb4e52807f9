"""Captures for benchmarks of packets: EMP over TCP in Ethernet frames, made by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FIN, SYN, PSH, ACK = 1, 2, 8, 16
HEADS = 16 + 14 + 20 + 20
"""Bytes of a packet record before its payload: pcap, Ethernet, IPv4, TCP."""
SIZE = 100
"""Bytes of a request or response."""


class Step(NamedTuple):
    """One packet of a round: the connection, its sender (1: the client), its flags and its payload."""

    connection: int
    sender: int
    flags: int
    payload: bytes = b""


def messages() -> tuple[bytes, bytes, bytes]:
    """A greeting, a request and a response."""
    from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
    from wirelake.protocols.emp.wire import encode

    asked, answered = (encode(Data(b"x" * 72, (RequestResponse(is_request, 1),))) for is_request in (True, False))
    assert len(asked) == len(answered) == SIZE
    return encode(Hello()), asked, answered


def long_steps(connections: int = 8) -> list[Step]:
    """A round of long connections: each asks, is answered, acknowledges."""
    _, asked, answered = messages()
    kinds = ((1, ACK | PSH, asked), (0, ACK | PSH, answered), (1, ACK, b""))
    return [Step(one, *kind) for kind in kinds for one in range(connections)]


def short_steps(connections: int = 4) -> list[Step]:
    """A round of short connections, from the first packet to the last."""
    hello, asked, answered = messages()
    kinds = (
        (1, SYN, b""),
        (0, SYN | ACK, b""),
        (1, ACK, b""),
        (1, ACK | PSH, hello),
        (0, ACK | PSH, hello),
        (1, ACK | PSH, asked),
        (0, ACK | PSH, answered),
        (1, ACK, b""),
        (1, FIN | ACK, b""),
        (0, FIN | ACK, b""),
        (1, ACK, b""),
    )
    return [Step(one, *kind) for kind in kinds for one in range(connections)]


def _put(rounds: Any, at: int, values: Any, kind: str) -> None:
    """Write a number of every round at the same byte."""
    made = np.broadcast_to(np.asarray(values), len(rounds)).astype(kind)
    rounds[:, at : at + made.itemsize] = made.view(np.uint8).reshape(len(rounds), -1)


def capture(path: Path, steps: Sequence[Step], rounds: int, seed: int, *, is_long: bool, first_round: int = 0) -> int:
    """Write a pcap of so many rounds; connections go on from round to round, or begin anew. Returns the packets.

    With a first round that is not the first, the rounds are added to the file.
    """
    dice, bodies = np.random.default_rng(seed), np.random.default_rng((seed, first_round))
    connections = 1 + max(step.connection for step in steps)
    numbers = np.arange(first_round, first_round + rounds)
    table = np.zeros((rounds, sum(HEADS + len(step.payload) for step in steps)), np.uint8)
    sent = np.zeros((connections, 2), np.int64)
    advance = np.zeros((connections, 2), np.int64)
    for step in steps:
        advance[step.connection, step.sender] += len(step.payload)
    first = dice.integers(0, 1 << 31, (connections, 2))
    at = 0
    for index, step in enumerate(steps):
        flow = np.zeros(rounds, np.int64) + step.connection if is_long else numbers * connections + step.connection
        ends = ((10 << 24) + 1 + (flow >> 12), 20_000 + (flow & 0xFFF)), ((10 << 24) + (200 << 16) + 1, 5040)
        (source, port), (destination, other) = ends if step.sender else ends[::-1]
        here, there = (
            (first[step.connection, side] + sent[step.connection, side] + numbers * advance[step.connection, side] * is_long) % (1 << 32)
            for side in (step.sender, 1 - step.sender)
        )
        size = len(step.payload)
        micros = 1_700_000_000_000_000 + (numbers * len(steps) + index) * 20
        for shift, value, kind in (
            (0, micros // 10**6, "<u4"),
            (4, micros % 10**6, "<u4"),
            (8, HEADS - 16 + size, "<u4"),
            (12, HEADS - 16 + size, "<u4"),
            (28, 0x0800, ">u2"),
            (30, 0x4500, ">u2"),
            (32, 40 + size, ">u2"),
            (38, 0x4006, ">u2"),
            (42, source, ">u4"),
            (46, destination, ">u4"),
            (50, port, ">u2"),
            (52, other, ">u2"),
            (54, here, ">u4"),
            (58, there if step.flags & ACK else 0, ">u4"),
            (62, 0x5000 | step.flags, ">u2"),
            (64, 1024, ">u2"),
        ):
            _put(table, at + shift, value, kind)
        body = at + HEADS
        table[:, body : body + size] = np.frombuffer(step.payload, np.uint8)
        if size == SIZE:
            _put(table, body + 20, (flow << 32) + numbers + 1, ">i8")
            table[:, body + 28 : body + SIZE] = bodies.integers(97, 123, (rounds, SIZE - 28), np.uint8)
        sent[step.connection, step.sender] += size + bool(step.flags & (SYN | FIN))
        at += HEADS + size
    head = b"".join(value.to_bytes(width, "little") for value, width in ((0xA1B2C3D4, 4), (2, 2), (4, 2), (0, 8), (65535, 4), (1, 4)))
    with path.open("ab" if first_round else "wb") as file:
        if not first_round:
            file.write(head)
        file.write(table.data)
    return rounds * len(steps)
