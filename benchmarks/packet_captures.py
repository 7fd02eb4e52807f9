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


def short_steps(connections: int = 4, protocol: str = "emp") -> list[Step]:
    """A round of short connections, from the first packet to the last."""
    said = ((sender, ACK | PSH, payload) for sender, payload in conversation(protocol))
    opening = ((1, SYN, b""), (0, SYN | ACK, b""), (1, ACK, b""))
    closing = ((1, ACK, b""), (1, FIN | ACK, b""), (0, FIN | ACK, b""), (1, ACK, b""))
    return [Step(one, *kind) for kind in (*opening, *said, *closing) for one in range(connections)]


def conversation(protocol: str) -> list[tuple[int, bytes]]:
    """A short connection: sender (1: the client) and payload of each packet that has one."""
    if protocol == "emp":
        hello, asked, answered = messages()
        return [(1, hello), (0, hello), (1, asked), (0, answered)]
    if protocol == "yamp":
        from wirelake.protocols.yamp import messages as yamp
        from wirelake.protocols.yamp.wire import encode as encode_yamp

        request = yamp.Request(bytes(16), "sum", body=b"[1, 2]" + b" " * 40)
        response = yamp.Response(bytes(16), "sum", request.uid, body=b"3" + b" " * 40)
        handshake = encode_yamp(yamp.Handshake())
        return [(1, handshake), (0, handshake), (1, encode_yamp(request)), (0, encode_yamp(response))]
    if protocol == "relink":
        from wirelake.protocols.relink import messages as relink
        from wirelake.protocols.relink.wire import encode as encode_relink

        said: list[relink.AnyMessage] = [relink.Version(), relink.Version(), relink.Request("bench", 2)]
        said += [relink.Reply(1_700_000_000_000_000, 4711), relink.Message((b"aa",), (b"x" * 60,)), relink.Consumed((b"aa",), 0)]
        return [(1 - number % 2, encode_relink(message)) for number, message in enumerate(said)]
    from wirelake.protocols.wolpertinger.layer2 import documents
    from wirelake.protocols.wolpertinger.layer2.calls import Call, Response
    from wirelake.protocols.wolpertinger.messages import Envelope, Result
    from wirelake.protocols.wolpertinger.wire import encode, sealed

    name, result = "f5afec97-5839-4666-b8d3-000000000001", encode(Result(0, 1)) + b"\n"
    call, answer = (
        encode(Envelope(1, sealed(documents.encode(one), None).text)) + b"\n"
        for one in (Call("Bench", "Echo", name, ("tea",)), Response("Bench", name, "tea"))
    )
    return [(1, call), (0, result + answer), (1, result)]


def _put(rounds: Any, at: int, values: Any, kind: str) -> None:
    """Write a number of every round at the same byte."""
    made = np.broadcast_to(np.asarray(values), len(rounds)).astype(kind)
    rounds[:, at : at + made.itemsize] = made.view(np.uint8).reshape(len(rounds), -1)


def capture(
    path: Path, steps: Sequence[Step], rounds: int, seed: int, *, is_long: bool, first_round: int = 0, server_port: int = 5040
) -> int:
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
        ends = ((10 << 24) + 1 + (flow >> 12), 20_000 + (flow & 0xFFF)), ((10 << 24) + (200 << 16) + 1, server_port)
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
