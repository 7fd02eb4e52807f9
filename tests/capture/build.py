"""Captures built by hand for the tests, and the checks every read must pass.

It refuses to use the code under test for building: a layout misunderstood there must not be misunderstood here.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from wirelake.capture.blocks.block import Block, from_batch, to_batch
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
CLIENT, SERVER = ("10.0.0.1", 40000), ("10.0.0.2", 5040)
PORTS = {5040: "emp"}


def ip(text: str) -> bytes:
    """An address by hand: dotted IPv4, or `6.n` for the n-th IPv6 address."""
    if text.startswith("6."):
        return bytes.fromhex("20010db8") + bytes(11) + bytes([int(text[2:])])
    return bytes(int(part) for part in text.split("."))


def tcp(source: int, destination: int, seq: int, ack: int, flags: int, data: bytes = b"", options: bytes = b"") -> bytes:
    return struct.pack(">HHIIBBHHH", source, destination, seq, ack, (20 + len(options)) << 2, flags, 1024, 0, 0) + options + data


def udp(source: int, destination: int, data: bytes = b"", *, size: int | None = None) -> bytes:
    return struct.pack(">HHHH", source, destination, 8 + len(data) if size is None else size, 0) + data


def ipv4(
    source: str, destination: str, body: bytes, *, protocol: int = 6, options: bytes = b"", fragment: int = 0, total: int | None = None
) -> bytes:
    head = 20 + len(options)
    total = head + len(body) if total is None else total
    packed = struct.pack(">BBHHHBBH", 0x40 | head // 4, 0, total, 7, fragment, 64, protocol, 0)
    return packed + ip(source) + ip(destination) + options + body


def ipv6(source: str, destination: str, body: bytes, *, protocol: int = 6, extensions: Iterable[int] = ()) -> bytes:
    """`extensions` are header numbers, each written with 8 or 16 bytes."""
    kinds = [*extensions, protocol]
    chain = b""
    for size, following in enumerate(kinds[1:]):
        chain += bytes([following, size % 2]) + bytes(6 + 8 * (size % 2))
    packed = struct.pack(">IHBB", 6 << 28, len(chain) + len(body), kinds[0], 64)
    return packed + ip(source) + ip(destination) + chain + body


def ethernet(packet: bytes, *, vlans: Iterable[int] = (), kind: int | None = None, trailer: bytes = b"") -> bytes:
    tags = b"".join(struct.pack(">HH", tag, 100) for tag in vlans)
    return bytes(12) + tags + struct.pack(">H", kind if kind is not None else ether_type(packet)) + packet + trailer


def ether_type(packet: bytes) -> int:
    return 0x0800 if packet[0] >> 4 == 4 else 0x86DD


def pcap(
    packets: Iterable[tuple[int, bytes]], *, link: int = 1, order: str = "<", nanoseconds: bool = False, snap: int = 65535, cut: int = 0
) -> bytes:
    """A pcap of (microseconds, packet); `cut` bytes of each packet are lost to the snap length."""
    out = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)]
    for ts, packet in packets:
        kept = packet[: len(packet) - cut]
        out.append(struct.pack(order + "IIII", ts // 10**6, ts % 10**6 * (1000 if nanoseconds else 1), len(kept), len(packet)) + kept)
    return b"".join(out)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def fragment_v4(packet: bytes, cuts: list[int], number: int = 99) -> list[bytes]:
    """An IPv4 packet without options, its body cut at multiples of eight."""
    body, head = packet[20:], packet[:20]
    parts = []
    for start, stop in pairwise([0, *cuts, len(body)]):
        flags = start // 8 | (0x2000 if stop < len(body) else 0)
        made = head[:2] + struct.pack(">HHH", 20 + stop - start, number, flags) + head[8:]
        parts.append(made + body[start:stop])
    return parts


def fragment_v6(packet: bytes, cuts: list[int], number: int = 99) -> list[bytes]:
    """An IPv6 packet without extension headers, its body cut at multiples of eight."""
    body, head = packet[40:], packet[:40]
    parts = []
    for start, stop in pairwise([0, *cuts, len(body)]):
        extra = struct.pack(">BBHI", head[6], 0, start | (1 if stop < len(body) else 0), number)
        parts.append(head[:4] + struct.pack(">HB", 8 + stop - start, 44) + head[7:] + extra + body[start:stop])
    return parts


def payloads(path: Path) -> list[bytes]:
    """What follows the tags of each record of a recording, read by hand; empty for a record that only tells an event."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 6:
            start, stop = at + 28, at + 28 + struct.unpack_from("<I", data, at + 20)[0]
            tag, length = 1, 0
            while tag:
                tag, length = struct.unpack_from(">HH", data, start)
                start += 4 + length
            found.append(data[start:stop])
        at += size
    return found


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(link: int = 1, order: str = "<", *, resolution: int | None = None, offset: int | None = None, snap: int = 0) -> bytes:
    options = b""
    if offset is not None:
        options += option(14, struct.pack(order + "q", offset), order)
    if resolution is not None:
        options += option(9, bytes([resolution]), order)
    if options:
        options += option(0, b"", order)
    return block(1, struct.pack(order + "HHI", link, 0, snap) + options, order)


def packet_block(ticks: int, data: bytes, order: str = "<", *, number: int = 0, size: int | None = None, wire: int | None = None) -> bytes:
    size = len(data) if size is None else size
    wire = size if wire is None else wire
    body = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, size, wire) + data + bytes(-len(data) % 4)
    return block(6, body, order)


def old_packet_block(ticks: int, data: bytes, order: str = "<", *, number: int = 0) -> bytes:
    return block(2, struct.pack(order + "HHIIII", number, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data)) + data, order)


def simple_packet_block(data: bytes, order: str = "<", *, wire: int | None = None) -> bytes:
    return block(3, struct.pack(order + "I", len(data) if wire is None else wire) + data, order)


class Talk:
    """A TCP conversation that keeps its own sequence numbers; `packets` are (microseconds, IP packet)."""

    def __init__(
        self, client: tuple[str, int] = CLIENT, server: tuple[str, int] = SERVER, *, first: int = 1000, ts: int = 1_700_000_000_000_000
    ) -> None:
        self.ends = (client, server)
        self.next = [first, first + 5_000_000]
        self.ts = ts
        self.packets: list[tuple[int, bytes]] = []

    def segment(self, speaker: int, flags: int, data: bytes = b"", *, seq: int | None = None) -> bytes:
        """Add a segment of the client (0) or server (1); `seq` overrides what comes next and leaves it."""
        (source, source_port), (destination, destination_port) = self.ends if speaker == 0 else self.ends[::-1]
        at = self.next[speaker] if seq is None else seq
        made = tcp(source_port, destination_port, at % 2**32, self.next[1 - speaker] % 2**32, flags, data)
        packet = (ipv6 if source.startswith("6.") else ipv4)(source, destination, made)
        self.packets.append((self.ts, packet))
        self.ts += 1000
        if seq is None:
            self.next[speaker] += len(data) + bool(flags & SYN) + bool(flags & FIN)
        return packet

    def open(self) -> Talk:
        self.segment(0, SYN)
        self.segment(1, SYN | ACK)
        self.segment(0, ACK)
        return self

    def say(self, speaker: int, data: bytes) -> Talk:
        self.segment(speaker, ACK | PSH, data)
        return self

    def close(self) -> Talk:
        self.segment(0, FIN | ACK)
        self.segment(1, FIN | ACK)
        self.segment(0, ACK)
        return self

    def frames(self) -> list[tuple[int, bytes]]:
        return [(ts, ethernet(packet)) for ts, packet in self.packets]


def read_checked(
    path: Path, *, ports: dict[int, str] | None = None, sniff=lambda data: None, raw: bytes | None = None, **options: object
) -> list[Block]:
    """All blocks of a file, held to what is promised for every file; `raw` is what is in it, if it is packed."""
    source = identify(path)
    blocks = list(read(source, ports=PORTS if ports is None else ports, sniff=sniff, **options))
    check(blocks, path.read_bytes() if raw is None else raw, source.size)
    return blocks


def check(blocks: list[Block], raw: bytes, file_size: int) -> None:
    """Hold the blocks of a whole file to what is promised for every file."""
    covered: list[tuple[int, int]] = []
    accounted = 0
    for one in blocks:
        data = bytes(one.data)
        assert all(type(account.bytes) is int for account in one.accounts)
        assert all(account.bytes >= 0 or account.reason == "spared by compression" for account in one.accounts)
        accounted += sum(account.bytes for account in one.accounts)
        quarantined = sum(account.bytes for account in one.accounts if account.category == "quarantine")
        assert quarantined == sum(stretch.length for stretch in one.unreadable)
        pieces = one.origins.tolist()
        starts = [piece[0] for piece in pieces]
        assert starts == sorted(set(starts))
        end = 0
        for start, stop, flow, to_server, _ in one.segments.tolist():
            assert end <= start < stop <= len(data)
            assert 0 <= flow < len(one.flows)
            assert to_server in (0, 1)
            end = stop
            first, last = bisect_left(starts, start), bisect_left(starts, stop)
            assert starts[first] == start
            for (at, offset, _), following in zip(pieces[first:last], [*starts[first + 1 : last], stop], strict=True):
                assert data[at:following] == raw[offset : offset + following - at]
                covered.append((offset, offset + following - at))
        for stretch in one.unreadable:
            if stretch.layer == "file":
                continue
            assert stretch.raw == raw[stretch.offset : stretch.offset + stretch.length]
            covered.append((stretch.offset, stretch.offset + stretch.length))
        for event in one.events:
            assert 0 <= event.flow < len(one.flows)
        again = from_batch(to_batch(one))[0]
        assert bytes(again.data) == data
        assert (again.segments == one.segments).all()
    in_segments = sum(int((one.segments[:, 1] - one.segments[:, 0]).sum()) for one in blocks)
    assert in_segments + accounted == file_size
    covered.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(covered))
    assert [one.last for one in blocks] == [False] * (len(blocks) - 1) + [True]


def said(blocks: list[Block]) -> list[tuple[bytes, int, bytes]]:
    """(session, to server, bytes) of every run in order, neighbours of one direction joined."""
    out: list[tuple[bytes, int, bytes]] = []
    for one in blocks:
        for start, stop, flow, to_server, _ in one.segments.tolist():
            session, data = one.flows[flow].session_id, bytes(one.data[start:stop])
            if out and out[-1][:2] == (session, to_server):
                data = out.pop()[2] + data
            out.append((session, to_server, data))
    return out


def talk_of(blocks: list[Block]) -> list[tuple[int, bytes]]:
    """(to server, bytes) of a file with one session."""
    spoken = said(blocks)
    assert len({session for session, _, _ in spoken}) <= 1
    return [(to_server, data) for _, to_server, data in spoken]


def accounts(blocks: list[Block]) -> dict[tuple[str, str], int]:
    """Bytes per category and reason."""
    sums: dict[tuple[str, str], int] = {}
    for one in blocks:
        for account in one.accounts:
            key = (account.category, account.reason)
            sums[key] = sums.get(key, 0) + account.bytes
    return sums


def events(blocks: list[Block]) -> list[tuple[str, str]]:
    return [(event.what, event.by) for one in blocks for event in one.events]
