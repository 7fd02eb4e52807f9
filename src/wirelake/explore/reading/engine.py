"""Chain: one decoder and one analysis, for captures of which each begins when the one before has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.explore.reading.analysis import Analysis, Counter, narrowed
from wirelake.explore.reading.records import SHOWN_BYTES, Record
from wirelake.lake.decode.accounting import Extent
from wirelake.lake.decode.batches import Batches
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.streams import ScanInput
from wirelake.protocols.arrow import Columns
from wirelake.protocols.kernel import LENGTH, START

__all__ = ["EXCERPT_BYTES", "Chain", "Items", "Ports", "ReadOptions"]

Items = Iterable[PacketBatch | Block]
IntArray = npt.NDArray[np.int64]

BATCH_BYTES: Final = 16 << 20
"""Bytes of decoded rows that are kept before long values in them are cut."""
EXCERPT_BYTES: Final = 256
"""Bytes of a body that are kept if only its beginning is shown."""


class ReadOptions(msgspec.Struct, frozen=True):
    """How captures are read."""

    ports: Mapping[int, str] | None = None
    """Port -> protocol; None: every protocol's own."""
    limits: dict[str, dict[str, object]] = {}
    """Protocol -> fields of its limits."""
    keys: object | None = None
    """Keys that verify messages."""
    keyring: object | None = None
    """Keys that decrypt messages."""
    whole: bool = False
    """Whether messages have every field of their protocol's table, and whole bodies."""
    raw: bool = False
    """Whether messages have their bytes."""
    bodies: bool = False
    """Whether bodies are whole, up to `SHOWN_BYTES`, and not only `EXCERPT_BYTES`."""


class Ports(Mapping[int, str]):
    """Every protocol's own port. The protocols are imported when the first port is looked up: a recording rarely needs it."""

    @cached_property
    def _known(self) -> dict[int, str]:
        return protocols.ports()

    def __getitem__(self, port: int) -> str:
        return self._known[port]

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Chain:
    """Decodes blocks and packets of its captures, and watches their sessions."""

    def __init__(self, options: ReadOptions, counter: Counter) -> None:
        self.ports: Mapping[int, str] = Ports() if options.ports is None else options.ports
        self._options = options
        self._most = SHOWN_BYTES if options.whole or options.bodies else EXCERPT_BYTES
        self._early: list[Batches] = []
        decode_options = DecodeOptions(protocol_limits=options.limits, max_batch_bytes=BATCH_BYTES)
        kind = _KeepsRaw if options.raw else Decoder
        self._decoder = kind(decode_options, options.keys, None, options.keyring, self._put)
        self._assembly = Assembly(self.ports, protocols.sniff, protocols.dialect)
        self._analysis = Analysis(counter, whole=options.whole, waits=self._waits)

    @property
    def newest(self) -> int:
        """Time of its last message, in microseconds since 1970."""
        return self._analysis.newest

    def feed(self, items: Items) -> Iterator[Record]:
        """The records of what was read; more comes later."""
        return self._records(items, is_end=False)

    def overdue(self, now: int) -> Iterator[Record]:
        """Rules that are broken because something did not come until `now`, in microseconds since 1970."""
        return self._analysis.overdue(now)

    def end(self) -> Iterator[Record]:
        """The records of what is left when nothing more comes."""
        yield from self._records((), is_end=True)
        yield from self._analysis.end()

    def _waits(self, connection_id: bytes) -> bool:
        """Whether bytes of a connection wait for more."""
        state = self._decoder.decoder_state
        for key in ((connection_id, 0), (connection_id, 1)):
            for known in (state.directions.get(key), state.wrapped.get(key), state.stanzas.get(key)):
                if known is not None and len(known.data):
                    return True
        return connection_id in state.pending

    def _put(self, rows: Batches) -> None:
        self._early.append(narrowed(rows, whole=self._options.whole, most=self._most))

    def _records(self, items: Items, *, is_end: bool) -> Iterator[Record]:
        for decoded in decode(items, self._decoder, self._assembly, is_end=is_end):
            self._put(decoded.rows)
            early, self._early = self._early, []
            rows: Batches = {}
            for some in early:
                for table, batches in some.items():
                    rows.setdefault(table, []).extend(batches)
            raw = self._decoder.take_raw() if isinstance(self._decoder, _KeepsRaw) else None
            yield from self._analysis.block(rows, raw)


class _KeepsRaw(Decoder):
    """A decoder that keeps the bytes of every message of a block."""

    _raw: list[bytes]

    def take_raw(self) -> Iterator[bytes]:
        """The bytes of all messages since the last call, in the order of the rows of `messages`."""
        raw, self._raw = getattr(self, "_raw", []), []
        return iter(raw)

    def _put_columns(
        self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, parts: IntArray, segments: IntArray, extent: Extent, made: Columns
    ) -> None:
        kept = getattr(self, "_raw", [])
        self._raw = kept
        for start, length in scanned[:, [START, LENGTH]].tolist():
            kept.append(scan_input.data[start : start + min(length, SHOWN_BYTES)].tobytes())
        super()._put_columns(scanner, scan_input, scanned, parts, segments, extent, made)
