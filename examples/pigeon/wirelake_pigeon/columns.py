"""PIGEON/1 as table rows: scanned rows to Arrow columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from wirelake.protocols.arrow import UNLIMITED, Array, Columns, binary, field, integers, names, nulls
from wirelake.protocols.kernel import FAULT, KIND
from wirelake_pigeon.faults import UNREADABLE, Fault
from wirelake_pigeon.messages import Kind
from wirelake_pigeon.scanner import BODY, BODY_LENGTH, PART_COLUMNS, ROW_COLUMNS, Limits

__all__ = ["PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "readable"]

SCHEMA: Final = pa.schema(
    [
        field("type", pa.int16(), "§2.2: the type of the frame, 1 to 4"),
        field("version", pa.int16(), "§3.1: the version of a hello"),
        field("number", pa.int64(), "§3.2: the number of a note, or of the note that is acknowledged"),
        field("text", pa.string(), "§3.2: the text of a note; replacement characters where it is not UTF-8"),
        field("fault", pa.string(), "The first rule that this frame breaks by itself; see violations"),
    ]
)
"""The columns of table `pigeon` behind those that every protocol's table has."""

_NAMES: Final = {kind.value: kind.name.lower() for kind in Kind}
_KINDS: Final = {Kind.HELLO.value: "handshake", Kind.NOTE.value: "event", Kind.ACK.value: "ack", Kind.BYE.value: "close"}
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)


def readable(rows: Array) -> Array:
    """Which rows are messages."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def columns(
    data: Array,
    rows: Array,
    parts: Array,  # noqa: ARG001 - frames have none
    limits: Limits,  # noqa: ARG001 - the scanner checked them
    json_bodies: bool = True,  # noqa: ARG001 - notes are texts
    budget: int = UNLIMITED,  # noqa: ARG001 - nothing inflates
) -> Columns:
    """The columns of readable rows."""
    kind, faults = rows[:, KIND], rows[:, FAULT].copy()
    is_note, has_number = kind == Kind.NOTE, (kind == Kind.NOTE) | (kind == Kind.ACK)
    numbers = np.zeros(len(rows), np.int64)
    if has_number.any():
        places = rows[has_number, BODY][:, None] + np.arange(4)
        numbers[has_number] = data[places].copy().view(">u4")[:, 0]
    texts: list[str | None] = [None] * len(rows)
    for index in np.flatnonzero(is_note).tolist():
        body = data[rows[index, BODY] + 4 : rows[index, BODY] + rows[index, BODY_LENGTH]].tobytes()
        texts[index] = body.decode(errors="replace")
        if body.decode(errors="ignore").encode() != body:
            faults[index] = Fault.NOTE_NOT_UTF8
    fault = names(faults, {one.value: one.name for one in Fault})
    versions = data[np.where(kind == Kind.HELLO, rows[:, BODY], 0)] if len(data) else np.zeros(len(rows), np.uint8)
    own: dict[str, pa.Array] = {
        "type": integers(kind, pa.int16()),
        "version": integers(versions, pa.int16(), kind == Kind.HELLO),
        "number": integers(numbers, pa.int64(), has_number),
        "text": pa.array(texts, pa.string()),
        "fault": fault,
    }
    shared: dict[str, pa.Array] = {
        "kind": names(kind, _KINDS),
        "name": names(kind, _NAMES),
        "subject": nulls(pa.string(), len(rows)),
        "correlation_id": own["number"].cast(pa.string()),
        "status": names((faults != 0).astype(np.int64), ("ok", "faulty")),
        "fault": fault,
        "body": binary(data, rows[:, BODY] + 4, np.maximum(rows[:, BODY_LENGTH] - 4, 0), is_note),
        "body_json": nulls(pa.string(), len(rows)),
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared)
