"""Writes shop.pcap, the packet capture of docs/tutorial.md: three tills of a shop that ask one server, over EMP.

`python docs/tutorial/make_capture.py` writes the same bytes each time. The tills ask for prices, which is fast, and for stock, which is
slow from the second minute on. The third till uses a request id again while its first request is open. One request is never answered,
some packets are sent twice, and there is other traffic, as in real captures.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

from wirelake.protocols.emp.messages import Bye, Data, Error, Hello, RequestResponse
from wirelake.protocols.emp.wire import encode

FILE = Path(__file__).parent / "shop.pcap"
START = 1_790_000_000 * 10**6
"""The first packet, in microseconds since 1970."""
SERVER = ("10.0.0.5", 5040)
ITEMS = ("tea", "coffee", "sugar", "milk", "bread")
SYN, ACK, PUSH, FIN = 2, 16, 8, 1


def _ip(address: str) -> bytes:
    return bytes(int(part) for part in address.split("."))


def _frame(source: str, destination: str, transport: int, body: bytes) -> bytes:
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0x4000, 64, transport, 0)
    return bytes(12) + b"\x08\x00" + header + _ip(source) + _ip(destination) + body


class Capture:
    """Packets by time."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []

    def add(self, seconds: float, frame: bytes) -> None:
        """Capture a frame this long after the start."""
        self.packets.append((START + round(seconds * 1e6), frame))

    def pcap(self) -> bytes:
        """The file, in order of time."""
        parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
        for moment, frame in sorted(self.packets, key=lambda packet: packet[0]):
            parts.append(struct.pack("<IIII", moment // 10**6, moment % 10**6, len(frame), len(frame)) + frame)
        return b"".join(parts)


class Till:
    """One TCP connection of a till to the server."""

    def __init__(self, capture: Capture, address: str, port: int, opened: float) -> None:
        self.capture, self.ends = capture, ((address, port), SERVER)
        self.sent = [1000, 5000]
        self._packet(opened, 0, SYN)
        self._packet(opened + 0.0002, 1, SYN | ACK)
        self.say(opened + 0.0004, 0, Hello(1))
        self.say(opened + 0.0009, 1, Hello(1))

    def _packet(self, seconds: float, side: int, flags: int, data: bytes = b"", times: int = 1) -> None:
        (source, source_port), (destination, destination_port) = self.ends[side], self.ends[1 - side]
        numbers = struct.pack(">HHII", source_port, destination_port, self.sent[side], self.sent[1 - side])
        segment = numbers + struct.pack(">BBHHH", 0x50, flags, 64240, 0, 0) + data
        for again in range(times):
            self.capture.add(seconds + again * 0.2, _frame(source, destination, 6, segment))
        self.sent[side] += len(data) + (1 if flags & (SYN | FIN) else 0)

    def say(self, seconds: float, side: int, message: Hello | Data | Error | Bye, times: int = 1) -> None:
        """Send a message; its packet is captured so many times."""
        self._packet(seconds, side, PUSH | ACK, encode(message), times)

    def ask(self, seconds: float, number: int, body: dict[str, object], times: int = 1) -> None:
        """Send a request."""
        self.say(seconds, 0, Data(extensions=(RequestResponse(True, number),), body=json.dumps(body).encode()), times)

    def answer(self, seconds: float, number: int, body: dict[str, object]) -> None:
        """Send its response."""
        self.say(seconds, 1, Data(extensions=(RequestResponse(False, number),), body=json.dumps(body).encode()))

    def close(self, seconds: float) -> None:
        """Both sides say bye and close."""
        self.say(seconds, 0, Bye())
        self.say(seconds + 0.0004, 1, Bye())
        self.finish(seconds + 0.0005)

    def finish(self, seconds: float) -> None:
        """Close the connection, as TCP does."""
        self._packet(seconds, 1, FIN | ACK)
        self._packet(seconds + 0.0002, 0, FIN | ACK)


def make() -> bytes:
    """The capture."""
    rng = random.Random(5)  # noqa: S311 - the same shop each time
    capture = Capture()
    tills = [Till(capture, "10.0.0.11", 40110, 0.0), Till(capture, "10.0.0.12", 40120, 0.4)]
    for number in range(1, 61):
        for till in tills:
            moment = 2 * number + rng.uniform(0, 0.5) + (0.5 if till is tills[1] else 0)
            is_stock, item = number % 5 == 0, rng.choice(ITEMS)
            wait = rng.uniform(0.002, 0.005)
            if is_stock:
                wait = rng.uniform(0.8, 1.4) if number > 30 else rng.uniform(0.004, 0.009)
            till.ask(moment, number, {"ask": "stock" if is_stock else "price", "item": item}, times=2 if number == 17 else 1)
            if till is tills[1] and number == 43:
                continue  # the server never answers
            reply: dict[str, object] = {"count": rng.randrange(90)} if is_stock else {"cents": rng.randrange(80, 900)}
            till.answer(moment + wait, number, reply)
    for till, end in zip(tills, (124.0, 125.0), strict=True):
        till.close(end)
    for again in range(3):
        opened = 70.0 + 15 * again
        till = Till(capture, "10.0.0.13", 40130 + again, opened)
        till.ask(opened + 1.0, 1, {"ask": "price", "item": "tea"})
        till.answer(opened + 1.003, 1, {"cents": 250})
        till.ask(opened + 2.0, 2, {"ask": "stock", "item": "tea"})
        till.ask(opened + 2.1, 2, {"ask": "price", "item": "milk"})
        till.say(opened + 2.1006, 1, Error(3, message="a request identifier that is still in flight"))
        till.finish(opened + 2.1009)
    for number in range(12):
        question = bytes([number, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"\x04shop\x07example\x00\x00\x01\x00\x01"
        datagram = struct.pack(">HHHH", 50000 + number, 53, 8 + len(question), 0) + question
        capture.add(9.0 * number + 1.5, _frame("10.0.0.11", "10.0.0.1", 17, datagram))
    return capture.pcap()


if __name__ == "__main__":
    FILE.write_bytes(make())
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes")
