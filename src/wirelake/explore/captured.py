"""Captured: the messages of one capture as objects, as `wirelake decode` prints them.

It uses the lake's decoder, without Spark. An object has `ts`, `from`, `to` and `connection_id` before the fields of its message; `offset`
is the place in the capture. Bytes that are no message are objects with `fault`, as they are rows of `quarantine` in a lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.accounting import OTHER
from wirelake.capture.blocks.block import SEGMENT_FLOW, SEGMENT_TO_SERVER, Block, Endpoint, Flow, Source
from wirelake.capture.blocks.read_file import open_container, read
from wirelake.capture.files.source_file import measure
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import Reason, Speaker
from wirelake.lake.decode.streams import ScanInput
from wirelake.protocols.kernel import LENGTH, START
from wirelake.protocols.protocol import Describe, JsonObject, Limits

__all__ = ["Captured"]

Rows = npt.NDArray[np.int64]
Verify = Callable[[bytes, float | None], JsonObject]
"""The bytes of a message, and the time it was seen, if known -> fields about its sender."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Captured:
    """The messages of one protocol in one capture."""

    def __init__(
        self,
        path: str,
        protocol: str,
        describer: Callable[[], Describe[Limits]],
        *,
        limits: Mapping[str, object] | None = None,
        ports: tuple[int, ...] = (),
        verify: Verify | None = None,
    ) -> None:
        """`describer` is called once for each direction of a connection; connections of `ports` are read besides those recognised."""
        self._source = Source(*_named(path))
        self._protocol = protocol
        own = [port for port, name in protocols.ports().items() if name == protocol]
        self._ports = dict.fromkeys([*own, *ports], protocol)
        options = DecodeOptions(protocol_limits={protocol: dict(limits or {})})
        self._decoder = _Describing(protocol, options, describer, verify)
        self.container = open_container(self._source).layer
        """`pcap` or `pcapng`. Raises CaptureError if the file is neither."""
        self.others: set[str] = set()
        """Protocols of other connections, as far as they are recognised."""
        self.unread = 0
        """Bytes of other connections, and of packets that carry none of the protocols."""

    def objects(self) -> Iterator[JsonObject]:
        """Every message, in the order of the file as far as a window of it reaches."""
        for block in read(self._source, ports=self._ports, sniff=self._sniff):
            self.others |= {flow.protocol for flow in block.flows if flow.protocol != self._protocol}
            self.unread += sum(account.bytes for account in block.accounts if account.category == OTHER)
            yield from self._decoder.objects(block)
        yield from self._decoder.last_objects()

    def _sniff(self, data: bytes) -> str | None:
        name = protocols.sniff(data)
        if name not in (None, self._protocol):
            self.others.add(str(name))
        return name if name == self._protocol else None


def _named(path: str) -> tuple[str, bytes, int]:
    place, size = measure(path)
    return place, b"", size


class _Describing(Decoder):
    """A decoder that makes objects of messages, instead of rows of tables."""

    def __init__(self, protocol: str, options: DecodeOptions, describer: Callable[[], Describe[Limits]], verify: Verify | None) -> None:
        super().__init__(options)
        self._protocol = protocol
        self._describer = describer
        self._verify = verify
        self._describers: dict[Speaker, Describe[Limits]] = {}
        self._objects: list[tuple[int, Callable[[], JsonObject]]] = []
        """Offset, and a function that makes the object. An object may be many times larger than its bytes: it is made when printed."""

    def objects(self, block: Block) -> Iterator[JsonObject]:
        """The objects of one block, to be taken before the next block comes."""
        ours = np.array([flow.protocol == self._protocol for flow in block.flows], np.bool_)
        for one in block.unreadable:
            fields = {"offset": one.offset, "length": one.length, "fault": one.reason, "layer": one.layer}
            self._objects.append((one.offset, partial(dict, fields)))
        if len(block.segments):
            block = msgspec.structs.replace(block, segments=block.segments[ours[block.segments[:, SEGMENT_FLOW]]])
        self.feed(block)
        return self._take_objects()

    def last_objects(self) -> Iterator[JsonObject]:
        """The objects that are left when no more blocks come."""
        self.finish()
        return self._take_objects()

    def _take_objects(self) -> Iterator[JsonObject]:
        objects, self._objects = sorted(self._objects, key=lambda each: each[0]), []
        return (describe() for _, describe in objects)

    def _add(self, *_: object) -> None:
        """Rows of tables are not wanted."""

    def _note_connections(self, block: Block) -> None:
        """Neither are those of connections."""

    def _put(self, scanner: Scanner, scan_input: ScanInput, scanned: Rows, parts: Rows, segment_of: Rows) -> None:
        data, flat, limits = scan_input.data.tobytes(), parts.ravel().tolist(), scanner.limits
        extent = self._where.extent(scan_input.origins, scanned[:, START], scanned[:, LENGTH])
        for index, row in enumerate(scanned.tolist()):
            segment = scan_input.segments[segment_of[index]]
            flow, to_server = scan_input.flows[segment[SEGMENT_FLOW]], int(segment[SEGMENT_TO_SERVER])
            offset, ts = int(extent.offsets[index]), int(extent.ts[index])
            describe = partial(self._describe(flow, to_server), data, row, flat, limits, 0)
            self._objects.append((offset, partial(self._placed, describe, scan_input, row, data, offset, ts, _seen(flow, to_server, ts))))

    def _placed(
        self,
        describe: Callable[[], JsonObject],
        scan_input: ScanInput,
        row: list[int],
        data: bytes,
        offset: int,
        ts: int,
        seen: JsonObject,
    ) -> JsonObject:
        """The object of one message, with its places in the capture."""
        described = describe()
        if self._verify is not None and "fault" not in described:
            described |= self._verify(data[row[START] : row[START] + row[LENGTH]], ts / 1e6 if ts > 0 else None)
        for name in ("offset", "message_offset"):
            if isinstance(at := described.get(name), int):
                described[name] = self._offset(scan_input, at) if at != row[START] else offset
        return seen | described

    def _quarantine(self, flow: Flow, to_server: int, fault: Reason, scan_input: ScanInput, start: int, length: int) -> None:
        extent = self._where.extent(scan_input.origins, np.array([start]), np.array([length]))
        offset = int(extent.offsets[0])
        fields = {"offset": offset, "fault": fault.name, "clause": fault.clause, "text": fault.text, "message_length": length}
        self._objects.append((offset, partial(dict, _seen(flow, to_server, int(extent.ts[0])) | fields)))

    def _describe(self, flow: Flow, to_server: int) -> Describe[Limits]:
        """The describer of one side of a connection."""
        speaker = (flow.session_id, to_server)
        if speaker not in self._describers:
            self._describers[speaker] = self._describer()
        return self._describers[speaker]

    def _offset(self, scan_input: ScanInput, at: int) -> int:
        """The offset in the capture of a byte of the segments; for their end, that of the last byte."""
        place = np.array([min(at, len(scan_input.data) - 1)])
        return int(self._where.extent(scan_input.origins, place, np.array([1])).offsets[0])


def _seen(flow: Flow, to_server: int, ts: int) -> JsonObject:
    """Where a message was seen, and when; packets may have no time."""
    sides = (flow.client, flow.server) if to_server else (flow.server, flow.client)
    when = (_EPOCH + timedelta(microseconds=ts)).isoformat().replace("+00:00", "Z") if ts > 0 else None
    return {"ts": when, "from": _address(sides[0]), "to": _address(sides[1]), "connection_id": flow.session_id.hex()}


def _address(end: Endpoint) -> str:
    host = f"[{end.address}]" if ":" in end.address else end.address
    return f"{host}:{end.port}" if end.port else host
