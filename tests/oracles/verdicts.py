"""Describe a capture as capinfos and tshark do: packets, bytes, times, streams.

It refuses to know where captures come from, and what is expected of them.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import msgspec
import numpy as np

from wirelake.capture.blocks.read_file import read
from wirelake.capture.containers.records import KIND, NO_TIME, RECORD_PACKET, START, TS, WIRE_SIZE
from wirelake.capture.containers.walk import Damaged, Walk
from wirelake.capture.files.identity import identify
from wirelake.capture.files.source_file import open_source


class Counts(msgspec.Struct):
    """Packets of a file as `capinfos` counts them."""

    packets: int
    data_bytes: int
    """Bytes on the wire."""
    first: int | None
    """The earliest time, in microseconds."""
    last: int | None
    spoilt: int
    """Bytes that are no records."""
    wrapped: tuple[int, int] | None = None
    """The earliest and the latest time as `capinfos` computes them: with seconds and nanoseconds in 32 signed bits."""


class Stream(msgspec.Struct):
    """One TCP connection: what each end said."""

    ends: tuple[str, str]
    said: tuple[bytes, bytes]
    """With a mark where bytes are missing, as `tshark` writes it."""

    def turned(self, first: str) -> Stream:
        """The same, with this end first."""
        return self if self.ends[0] == first else Stream(self.ends[::-1], self.said[::-1])


def counts(path: Path) -> Counts:
    """Walk the records of a file."""
    source = identify(path)
    packets, size, spoilt = 0, 0, 0
    times: list[int] = []
    wrapped: list[tuple[int, int]] = []
    with open_source(source) as file:
        order = "<" if file.window(0, 1) in (b"\xd4", b"\x4d") else ">"
        for step in Walk(source.path, file).steps():
            if isinstance(step, Damaged):
                spoilt += len(step.raw)
                continue
            rows = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            packets += len(rows)
            size += int(rows[:, WIRE_SIZE].sum())
            times += rows[rows[:, TS] != NO_TIME, TS].tolist()
            if step.layer == "pcap":
                wrapped += [_wrapped(*struct.unpack_from(order + "II", step.data, start)) for start in rows[:, START].tolist()]
    ends = (_joined(min(wrapped)), _joined(max(wrapped))) if wrapped else None
    return Counts(packets, size, min(times, default=None), max(times, default=None), spoilt, ends)


def _signed(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _wrapped(seconds: int, fraction: int) -> tuple[int, int]:
    """A time as `capinfos` holds it, whose parts it compares one after the other."""
    return _signed(seconds), _signed(fraction * 1000)


def _joined(parts: tuple[int, int]) -> int:
    return parts[0] % 2**32 * 10**6 + int(parts[1] / 1000)  # cut off towards zero, as C does


def streams(path: Path) -> list[Stream]:
    """Read a file as if every flow were ours; one stream per TCP session, in the order in which they are first seen."""
    said: dict[bytes, list[list[bytes]]] = {}
    ends: dict[bytes, tuple[str, str]] = {}
    for block in read(identify(path), ports=AnyPort(), sniff=lambda data: None):
        data = np.frombuffer(block.data, np.uint8)
        for flow in block.flows:
            if flow.transport == "tcp" and flow.session_id not in said:
                said[flow.session_id] = [[], []]
                ends[flow.session_id] = (_end(flow.client), _end(flow.server))
        for start, stop, number, to_server, missing in block.segments.tolist():
            flow = block.flows[number]
            if flow.transport == "tcp":
                if missing > 0:
                    said[flow.session_id][1 - to_server].append(b"[%d bytes missing in capture file]\0" % missing)  # as tshark marks it
                said[flow.session_id][1 - to_server].append(data[start:stop].tobytes())
    return [Stream(ends[name], (b"".join(client), b"".join(server))) for name, (client, server) in said.items()]


class AnyPort(dict[int, str]):
    """Every port is known."""

    def get(self, port: int, default: object = None) -> str:  # type: ignore[override]
        return "emp"

    def __contains__(self, port: object) -> bool:
        return False


def _end(endpoint) -> str:
    address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"{address}:{endpoint.port}"


def moment(text: str | None) -> int | None:
    """A time of `capinfos`, seconds and their fraction in six or nine digits, in microseconds."""
    if text is None or text == "n/a":
        return None
    seconds, _, fraction = text.partition(".")
    part = int(fraction)
    return int(seconds) * 10**6 + (part if len(fraction.lstrip("-")) < 9 else part // 1000)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
