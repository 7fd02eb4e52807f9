"""The reader: a capture file in, blocks out, window by window, with memory that does not grow with the file.

Recordings (exported PDUs) become blocks that point into the file's own bytes; packets become blocks of TCP and UDP payload. Whatever a file
contains, reading it does not raise: what cannot be read becomes stretches, and runs and accounts of all blocks add up to the size of the
file. Only a file that cannot be read at all, or is shorter than when it was identified, is an error.

One reader reads one file from its start. Reading from somewhere in the middle, to share a file between tasks, will need a container that
finds its first record itself; `_Reading` takes the place to begin as `_at`.

It refuses to know containers, packets, tags and protocols.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from wirelake.capture.blocks import PIECE_COLUMNS, RUN_COLUMNS, Block, Source
from wirelake.capture.containers import HEAD_SIZE, Container, recognise
from wirelake.capture.datagrams import Datagrams
from wirelake.capture.exported import LINK_EXPORTED
from wirelake.capture.flows import Tracker
from wirelake.capture.gather import Gathering
from wirelake.capture.packets import (
    ACKNOWLEDGED,
    DESTINATION,
    DESTINATION_PORT,
    FLAGS,
    PACKET_COLUMNS,
    PAYLOAD,
    PAYLOAD_SIZE,
    REASON,
    REASONS,
    SEQUENCE,
    SOURCE,
    SOURCE_PORT,
    TCP,
    TRANSPORT,
    WIDTH,
    dissect,
)
from wirelake.capture.recorded import Recorded
from wirelake.capture.records import (
    FAULTS,
    KIND,
    LENGTH,
    LINK,
    RECORD_BAD_DATA,
    RECORD_COLUMNS,
    RECORD_KINDS,
    RECORD_PACKET,
    SIZE,
    START,
    TS,
)
from wirelake.capture.tally import CONTAINER, HEADERS, OTHER, Tally
from wirelake.errors import CaptureError
from wirelake.protocols.kernel import active, array

__all__ = ["ROWS", "WINDOW", "identify", "open_container", "read"]

WINDOW: Final = 8 << 20
"""Bytes of a file looked at together; a longer record is read whole."""
ROWS: Final = 1 << 17
"""Records looked at together."""
IDENTIFYING: Final = 64 << 10
"""Bytes at each end of a file that go into its id."""
CUT_SHORT: Final = "cut short"


def identify(path: str | os.PathLike[str]) -> Source:
    """Name a file by its content: its size, and its first and last bytes. A file that cannot be read raises CaptureError."""
    place = str(Path(path).absolute())
    try:
        with Path(place).open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            first = os.pread(file.fileno(), IDENTIFYING, 0)
            last = os.pread(file.fileno(), IDENTIFYING, max(0, size - IDENTIFYING))
    except OSError as error:
        raise CaptureError(place, 0, f"cannot read: {error.strerror or error}") from error
    return Source(place, blake2b(size.to_bytes(8, "big") + first + last, digest_size=8).digest(), size)


def open_container(source: Source) -> Container:
    """The container a file is; CaptureError when it is no capture. `read` makes that a stretch over the whole file instead."""
    with _File(source) as file:
        return recognise(source.path, file.window(0, HEAD_SIZE))


def read(
    source: Source,
    *,
    ports: Mapping[int, str],
    sniff: Callable[[bytes], str | None],
    protocols: Collection[str] | None = None,
    window: int = WINDOW,
) -> Iterator[Block]:
    """Read a capture of any content; the last block is marked.

    A flow's protocol is known by the tag of a recording (any, or only those in `protocols`), by `ports` at either end, or by what `sniff`
    says of the first bytes of a direction (None: not known, or not yet).
    """
    with _File(source) as file:
        yield from _Reading(source, file, ports, sniff, protocols, window).blocks()


class _File:
    """A file as it was identified: what it was longer then is missed, what it is longer now is ignored."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> _File:
        try:
            self._descriptor = os.open(self._source.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise CaptureError(self._source.path, 0, f"cannot read: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def window(self, at: int, size: int) -> bytes:
        """Bytes from `at`, as many as asked for or as the source has."""
        size = min(size, self._source.size - at)
        parts = []
        while size > 0:
            try:
                part = os.pread(self._descriptor, size, at)
            except OSError as error:
                raise CaptureError(self._source.path, at, f"cannot read: {error.strerror or error}") from error
            if not part:
                raise CaptureError(self._source.path, at, f"file is shorter than the {self._source.size} bytes it had")
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Reading:
    """One pass over one file."""

    def __init__(
        self,
        source: Source,
        file: _File,
        ports: Mapping[int, str],
        sniff: Callable[[bytes], str | None],
        protocols: Collection[str] | None,
        window: int,
    ) -> None:
        self._source = source
        self._file = file
        self._window = window
        self._at = 0
        self._tally = Tally()
        self._gathering = Gathering()
        self._tracker = Tracker(ports, sniff, self._gathering, self._tally)
        self._datagrams = Datagrams(ports, sniff, self._gathering, self._tally)
        self._recorded = Recorded(ports, protocols, self._tally)

    def blocks(self) -> Iterator[Block]:
        head = self._file.window(0, HEAD_SIZE)
        if not head:
            yield from self._emit([])
            return
        try:
            container = recognise(self._source.path, head)
        except CaptureError as error:
            yield from self._rest("capture", error.reason)
            return
        if len(head) < container.preamble:
            yield from self._rest(container.layer, CUT_SHORT)
            return
        self._at = container.preamble
        self._tally.add(CONTAINER, "file header", container.preamble, min(container.preamble, 1))
        yield from self._records(container)

    def _records(self, container: Container) -> Iterator[Block]:
        if self._at == self._source.size:
            yield from self._emit([])
        rows = np.empty((ROWS, RECORD_COLUMNS), np.int64)
        want = self._window
        while self._at < self._source.size:
            data = self._file.window(self._at, want)
            count, used, end = container.scan(array(data), rows)
            if used:
                yield from self._block(container, data, used, rows[:count])
                want = self._window
            elif end < 0:
                yield from self._rest(container.layer, FAULTS[end])
            elif end > self._source.size - self._at:
                yield from self._rest(container.layer, CUT_SHORT)
            else:
                want = end  # one record longer than a window

    def _block(self, container: Container, window: bytes, used: int, rows: np.ndarray[Any, Any]) -> Iterator[Block]:
        """Blocks of a window whose first `used` bytes are whole records."""
        base = self._at
        self._at += used
        is_packet = rows[:, KIND] == RECORD_PACKET
        packets = rows[is_packet]
        self._tally.add(CONTAINER, "packet record", int((packets[:, LENGTH] - packets[:, SIZE]).sum()), len(packets))
        is_bad = rows[:, KIND] >= RECORD_BAD_DATA
        for kind in np.unique(rows[~is_packet & ~is_bad, KIND]).tolist():
            sizes = rows[rows[:, KIND] == kind, LENGTH]
            self._tally.add(CONTAINER, RECORD_KINDS[kind], int(sizes.sum()), len(sizes))
        for record in rows[is_bad].tolist():
            raw = window[record[START] : record[START] + record[LENGTH]]
            self._tally.quarantine(base + record[START], raw, container.layer, RECORD_KINDS[record[KIND]])
        exported = packets[:, LINK] == LINK_EXPORTED
        blocks = []
        if exported.any():
            blocks.append(self._recorded.block(self._source, base, window, used, packets[exported]))
        if not exported.all():
            self._packets(base, window, packets[~exported])
        yield from self._emit(blocks)

    def _packets(self, base: int, window: bytes, records: np.ndarray[Any, Any]) -> None:
        """Hand the segments and datagrams of a window to those who know flows, and account for all other packets."""
        packets = np.zeros((len(records), PACKET_COLUMNS), np.int64)
        active(dissect)(array(window), records, packets)
        is_ours = packets[:, REASON] == 0
        for reason in np.unique(packets[~is_ours, REASON]).tolist():
            sizes = records[packets[:, REASON] == reason, SIZE]
            self._tally.add(OTHER, REASONS[reason], int(sizes.sum()), len(sizes))
        records, packets = records[is_ours], packets[is_ours]
        for name, is_one in (("tcp", packets[:, TRANSPORT] == TCP), ("udp", packets[:, TRANSPORT] != TCP)):
            headers = records[is_one, SIZE] - packets[is_one, PAYLOAD_SIZE]
            self._tally.add(HEADERS, f"link, ip and {name}", int(headers.sum()), len(headers))
        # Column by column: a list per packet would keep Python's garbage collector busy.
        places = (packets[:, column].tolist() for column in (SOURCE, DESTINATION, WIDTH, PAYLOAD, PAYLOAD_SIZE))
        values = (packets[:, column].tolist() for column in (TRANSPORT, SOURCE_PORT, DESTINATION_PORT, SEQUENCE, ACKNOWLEDGED, FLAGS))
        origins = (records[:, column].tolist() for column in (TS, START))
        for source, destination, width, payload, size, transport, port, other_port, sequence, acknowledged, flags, ts, start in zip(
            *places, *values, *origins, strict=True
        ):
            here, there = window[source : source + width], window[destination : destination + width]
            chunk = window[payload : payload + size]
            if transport != TCP:
                if chunk:
                    self._datagrams.packet(here, port, there, other_port, ts, base + payload, chunk)
                continue
            self._tracker.packet(here, port, there, other_port, sequence, acknowledged, flags, ts, base + start, base + payload, chunk)

    def _rest(self, layer: str, reason: str) -> Iterator[Block]:
        """Blocks of stretches over everything that is left."""
        while self._at < self._source.size:
            raw = self._file.window(self._at, self._window)
            self._tally.quarantine(self._at, raw, layer, reason)
            self._at += len(raw)
            yield from self._emit([])

    def _emit(self, blocks: list[Block | None]) -> Iterator[Block]:
        """Complete the blocks of a window: with what was gathered, with the tally, and with the mark on the last."""
        is_over = self._at == self._source.size
        if is_over:
            self._tracker.finish()
        ready = [block for block in (*blocks, self._gathering.take(self._source)) if block is not None]
        accounts, stretches = self._tally.take()
        if not ready:
            if not (accounts or is_over):
                return
            runs, pieces = np.empty((0, RUN_COLUMNS), np.int64), np.empty((0, PIECE_COLUMNS), np.int64)
            ready = [Block(self._source, b"", runs, pieces)]
        ready[0].accounts, ready[0].stretches = accounts, stretches
        ready[-1].last = is_over
        yield from ready
