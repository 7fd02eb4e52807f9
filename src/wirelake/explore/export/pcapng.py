"""pcapng: selected messages as a capture that Wireshark opens.

Sources that are still there give their own records (`packets.py`). The lake itself has no frames: so a message whose source is gone, or
has changed, becomes an exported PDU with its body, marked as such. Records of several sources are merged in order of time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from wirelake.capture.containers.pcapng import build_interface, build_packet, build_section
from wirelake.capture.record.exported_pdu import LINK_EXPORTED, Tags, build, info_text, is_address
from wirelake.capture.record.recorder import SHOWN_BY_WIRESHARK
from wirelake.explore.export.packets import Body, Packet, Place, packets
from wirelake.explore.model.conditions import Condition

if TYPE_CHECKING:
    import duckdb

__all__ = ["Written", "write_pcapng"]

DISSECTOR: Final = "data"
"""The dissector for a body alone: no protocol's frame."""
_PORT_TYPES: Final = {"tcp": 2, "tls": 2, "websocket": 2, "xmpp": 2, "udp": 3, "quic": 3, "dtls": 3}


class Written(msgspec.Struct):
    """Counts of what was written."""

    packets: int = 0
    """Original packets."""
    pdus: int = 0
    """Messages of recordings, as exported PDUs."""
    bodies: int = 0
    """Messages of which only the body was to be had."""
    cut: int = 0
    """Bodies that are longer than Wireshark reads, and were cut."""


def write_pcapng(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> Written:
    """Write the messages of a condition as pcapng. Returns what it wrote."""
    written = Written()
    out.write(build_section("wirelake"))
    interfaces: dict[int, int] = {}
    for item in _merged(connection, where):
        packet = _body(connection, item, written) if isinstance(item, Body) else item
        if isinstance(item, Packet):
            if item.link == LINK_EXPORTED:
                written.pdus += 1
            else:
                written.packets += 1
        if packet.link not in interfaces:
            interfaces[packet.link] = len(interfaces)
            out.write(build_interface(packet.link))
        out.write(build_packet(packet.ts, packet.data, interface=interfaces[packet.link], wire_size=packet.wire_size))
    if not interfaces:  # a capture without any interface is no capture for some readers
        out.write(build_interface(LINK_EXPORTED))
    return written


def _merged(connection: duckdb.DuckDBPyConnection, where: Condition) -> Iterator[Packet | Body]:
    """The records of all sources in order of time. A source is opened when its first message is due, and closed after its last."""
    sources = connection.execute(
        "SELECT m.source, m.message_id[1:8], coalesce(epoch_us(min(m.ts)), 0) AS first FROM messages m"
        f" WHERE {where.sql} GROUP BY ALL ORDER BY first, m.source, 2",
        list(where.values),
    ).fetchall()
    waiting = iter(sources)
    following = next(waiting, None)
    heap: list[tuple[int, int, Packet | Body, Iterator[Packet | Body]]] = []
    number = 0
    while heap or following is not None:
        while following is not None and (not heap or following[2] <= heap[0][0]):
            stream = packets(connection, where, following[0], following[1])
            if (item := next(stream, None)) is not None:
                heapq.heappush(heap, (item.ts, number, item, stream))
            number += 1
            following = next(waiting, None)
        if not heap:
            continue
        _, order, item, stream = heap[0]
        yield item
        if (after := next(stream, None)) is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (after.ts, order, after, stream))


def _body(connection: duckdb.DuckDBPyConnection, item: Body, written: Written) -> Packet:
    """The body of a message as an exported PDU, whose info says that it is no frame."""
    place = item.place
    row = connection.execute("SELECT m.body FROM messages m WHERE m.message_id = ?", [place.message_id]).fetchone()
    body = bytes(row[0]) if row is not None and row[0] is not None else b""
    if len(body) > SHOWN_BY_WIRESHARK:
        written.cut += 1
    data = build(_tags(place)) + body[:SHOWN_BY_WIRESHARK]
    written.bodies += 1
    return Packet(item.ts, LINK_EXPORTED, data, len(data))


def _tags(place: Place) -> Tags:
    words = {"body": "only", "name": place.name, "subject": place.subject or "", "message": place.message_id.hex()}
    for word, host in (("source", place.sender), ("destination", place.receiver)):
        words[word] = "" if host is None or is_address(host) else host
    return Tags(
        dissector=DISSECTOR,
        source=place.sender or "",
        destination=place.receiver or "",
        port_type=_PORT_TYPES.get(place.transport or "", 0),
        source_port=place.sender_port or 0,
        destination_port=place.receiver_port or 0,
        protocol_column=place.protocol.upper(),
        info=info_text(words),
    )
