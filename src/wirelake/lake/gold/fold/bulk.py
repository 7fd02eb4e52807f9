"""Long runs of messages of one session, as columns: most requests are paired with their answers at once (`protocols/bulk_pairs.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.fold.seen import one_chunk, seen_messages, to_server
from wirelake.protocols.analyzer import NO_TIME, SeenMessage, SessionAnalyzer
from wirelake.protocols.bulk_pairs import MAX_STRETCH, pair_in_bulk
from wirelake.protocols.request_pairs import PairingAnalyzer

__all__ = ["BULK_MESSAGES", "can_pair", "paired_exchanges"]

BULK_MESSAGES: Final = 512
"""Runs with fewer messages go to analyzers one by one: looking at columns costs as much as some hundred messages."""


def can_pair(analyzer: type[SessionAnalyzer]) -> bool:
    """Whether messages of this protocol can be paired in bulk."""
    return issubclass(analyzer, PairingAnalyzer) and analyzer.PAIRS is not None


class _Ids:
    """Correlation ids; see `bulk_pairs.Ids`."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self._known = encoded.dictionary
        self.codes: npt.NDArray[np.int64] = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)

    def find(self, ids: Iterable[Any]) -> npt.NDArray[np.int64]:
        kind = self._known.type
        wanted = pa.array(list(ids), pa.string()).cast(kind) if pa.types.is_decimal(kind) else pa.array(list(ids), kind)
        found: npt.NDArray[np.int64] = pc.index_in(wanted, value_set=self._known).drop_null().to_numpy().astype(np.int64)
        return found

    def numbers(self) -> npt.NDArray[np.uint64]:
        known = self._known.cast(pa.decimal128(20, 0))
        halves = np.frombuffer(known.buffers()[1], np.uint64)
        return halves[2 * known.offset : 2 * (known.offset + len(known)) : 2]  # the low half of each


class _Stretch:
    """Rows of a message table; see `bulk_pairs.Stretch`."""

    def __init__(self, rows: pa.Table, message: type[SeenMessage]) -> None:
        self._rows = rows
        self._message = message

    def __len__(self) -> int:
        count: int = self._rows.num_rows
        return count

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        column = self._column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        missing = NO_TIME if pa.types.is_timestamp(column.type) else 0
        found: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False)
        return found

    def flags(self, name: str) -> npt.NDArray[np.bool_]:
        column = to_server(self._column("direction")) if name == "to_server" else self._column(name)
        found: npt.NDArray[np.bool_] = column.fill_null(False).to_numpy(zero_copy_only=False)
        return found

    def is_null(self, name: str) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._column(name).is_null().to_numpy(zero_copy_only=False)
        return found

    def codes(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        column = self._column(name)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()

    def ids(self, name: str, other: str | None = None, where: npt.NDArray[np.bool_] | None = None) -> _Ids:
        column = self._column(name)
        return _Ids(column if other is None else pc.if_else(pa.array(where), self._column(other), column))

    def keys(self, name: str) -> npt.NDArray[np.void]:
        column = self._column(name).cast(pa.binary(16))
        found: npt.NDArray[np.void] = np.frombuffer(column.buffers()[1], "V16")[column.offset : column.offset + len(column)]
        return found

    def messages(self, places: npt.NDArray[np.int64]) -> Iterator[SeenMessage]:
        return seen_messages(self._rows.take(pa.array(places)), self._message) if len(places) else iter(())

    def _column(self, name: str) -> pa.Array:
        return one_chunk(self._rows[name])


def paired_exchanges(analyzer: SessionAnalyzer, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Feed rows of one session to its analyzer. Yields rows of requests with those of their answers, which it does not tell itself."""
    assert isinstance(analyzer, PairingAnalyzer)  # noqa: S101 - see `can_pair`
    for start in range(0, rows.num_rows, MAX_STRETCH):
        part = rows.slice(start, MAX_STRETCH)
        pairs = pair_in_bulk(analyzer, _Stretch(part, analyzer.MESSAGE))
        if len(pairs.requests):
            yield part.take(pa.array(pairs.requests)), part.take(pa.array(pairs.answers))
