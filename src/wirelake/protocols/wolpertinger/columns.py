"""What texts of wolpertinger look like as table rows: every field of both layers by its name, and the vocabulary all protocols share.

It refuses to know files, sessions and Spark: it turns bytes and scanned rows into Arrow columns, a block at a time. Payloads are opened one
by one, where that takes no key and no other text; what the lake opened or joined itself, it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.errors import DecodeError
from wirelake.protocols.arrow import Array, Columns, binary, field, integers, names, nulls
from wirelake.protocols.kernel import FAULT, KIND, LENGTH
from wirelake.protocols.wolpertinger import documents
from wirelake.protocols.wolpertinger.calls import Call, Error, Response, error_name
from wirelake.protocols.wolpertinger.conversation import CORE, Fragment, ResetNotice, utterance
from wirelake.protocols.wolpertinger.documents import Rejected
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.messages import Encryption, ResultCode, TextKind
from wirelake.protocols.wolpertinger.notation import described_document
from wirelake.protocols.wolpertinger.scanner import (
    ENCRYPTION,
    FRAGMENT_COUNT,
    FRAGMENT_INDEX,
    GZIP,
    MESSAGE_ID,
    ODD_BLANKS,
    ODDITIES,
    PART_COLUMNS,
    PAYLOAD,
    PAYLOAD_LENGTH,
    RESULT,
    ROW_COLUMNS,
    Limits,
)
from wirelake.protocols.wolpertinger.wire import BLANKS, opened

__all__ = ["FAULTS", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "readable"]

_VALUE: Final = pa.struct(
    [
        field("type", pa.string(), "WOLP-18: the data type"),
        field("value", pa.string(), "WOLP-18: the value as JSON"),
    ]
)

SCHEMA: Final = pa.schema(
    [
        field("size", pa.int64(), "WOLP-11: bytes of the text, its line feed counted"),
        field("type", pa.string(), "Transmission layer: message, fragment (of a message) or result"),
        field("message_id", pa.int64(), "message_id: of this message, or of the one that is confirmed (WOLP-3)"),
        field("result_code", pa.int64(), "result: 0 is success; codes above 5 have no meaning (WOLP-4)"),
        field("result_name", pa.string(), "result: the name of the code"),
        field("gzip", pa.int64(), "gzip: bytes of the compressed payload"),
        field("encryption", pa.string(), "encryption: aes, or unknown; null in clear"),
        field("fragment_index", pa.int64(), "fragment_index: which piece of a message this is, the first is 0"),
        field("fragment_count", pa.int64(), "fragment_count: how many pieces there are"),
        field("payload", pa.binary(), "Payload: base64 as it came (WOLP-6)"),
        field("root", pa.string(), "Message layer: RemoteMethodCall, RemoteMethodResponse or RemoteError; null if nobody here can read it"),
        field("component", pa.string(), "ComponentName"),
        field("method", pa.string(), "MethodName"),
        field("call_id", pa.string(), "CallId, in lower case (WOLP-14)"),
        field("parameters", pa.list_(pa.field("element", _VALUE)), "Parameters, in order"),
        field("value", _VALUE, "ResponseValue; null of a response without one, too (WOLP-19)"),
        field("error_code", pa.int64(), "ErrorCode"),
        field("error_name", pa.string(), "ErrorCode: its name; null for one that is not in the schema (WOLP-15)"),
        field("fault", pa.string(), "The first rule this message breaks by itself; see violations"),
        field(
            "oddities",
            pa.int32(),
            "Bits for what is tolerated: 1 a key not in lower case (WOLP-2), 2 `secure` for `encryption` (WOLP-5), 4 blanks in a payload"
            " (WOLP-6), 8 a result with a payload, 16 a result whose code nobody knows (WOLP-4)",
        ),
    ]
)
"""The columns of table `wolpertinger` that are wolpertinger's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
_TYPES: Final = {kind.value: kind.name.lower() for kind in TextKind}
_RESULTS: Final = {code.value: code.name.lower() for code in ResultCode}
_ENCRYPTIONS: Final = {Encryption.AES.value: "aes", Encryption.SECURE_AES.value: "aes", Encryption.UNKNOWN.value: "unknown"}
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)

Said = Call | Response | Error | Rejected


def readable(rows: Array) -> Array:
    """Which rows are texts, whatever else is wrong with them."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def columns(
    data: Array,
    rows: Array,
    parts: Array,  # noqa: ARG001 - as every room's
    limits: Limits,
    json_bodies: bool = True,
    payloads: Mapping[int, bytes] | None = None,
) -> Columns:
    """The texts of readable rows; `payloads` has what rows carry that take keys, or other texts, to be opened, by the number of the row."""
    read = _Reading(data, rows, limits, payloads or {})
    kind = rows[:, KIND]
    is_result = kind == TextKind.RESULT
    fault = names(read.faults, FAULTS)
    said = read.said
    calls = [one if isinstance(one, Call) else None for one in said]
    errors = [one if isinstance(one, Error) else None for one in said]
    told = [None if isinstance(one, Rejected) else one for one in said]
    shown = [None if one is None else described_document(one) for one in told]
    call_id = pa.array([None if one is None else one.call_id for one in told], pa.string())
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "type": names(kind, _TYPES),
        "message_id": integers(rows[:, MESSAGE_ID], pa.int64()),
        "result_code": integers(rows[:, RESULT], pa.int64(), is_result),
        "result_name": names(rows[:, RESULT], _RESULTS, is_result),
        "gzip": integers(rows[:, GZIP], pa.int64(), rows[:, GZIP] >= 0),
        "encryption": names(rows[:, ENCRYPTION], _ENCRYPTIONS),
        "fragment_index": integers(rows[:, FRAGMENT_INDEX], pa.int64(), rows[:, FRAGMENT_INDEX] >= 0),
        "fragment_count": integers(rows[:, FRAGMENT_COUNT], pa.int64(), rows[:, FRAGMENT_COUNT] >= 0),
        "payload": binary(data, rows[:, PAYLOAD], rows[:, PAYLOAD_LENGTH], ~is_result),
        "root": pa.array([None if one is None else str(type(one).__struct_config__.tag) for one in told], pa.string()),
        "component": pa.array([None if one is None else one.component for one in told], pa.string()),
        "method": pa.array([None if one is None else one.method for one in calls], pa.string()),
        "call_id": call_id,
        "parameters": pa.array([_values(one) for one in shown], SCHEMA.field("parameters").type),
        "value": pa.array([_value(one) for one in shown], _VALUE),
        "error_code": pa.array([None if one is None else one.code for one in errors], pa.int64()),
        "error_name": pa.array([None if one is None else error_name(one.code) for one in errors], pa.string()),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES] | np.where(read.blanks, ODD_BLANKS, 0), pa.int32()),
    }
    failed = np.array([one is not None for one in errors], bool) | (is_result & (rows[:, RESULT] != ResultCode.SUCCESS))
    shared: dict[str, pa.Array] = {
        "kind": pa.array(read.kinds, pa.string()),
        "name": pa.array(read.names, pa.string()),
        "subject": pa.array([None if one is None else f"{one.component}.{one.method}" for one in calls], pa.string()),
        "correlation_id": call_id,
        "status": names(np.where(read.faults != 0, 1, np.where(failed, 2, 0)), ("ok", "faulty", "error")),
        "fault": fault,
        "body": pa.array(read.bodies, pa.binary()),
        "body_json": pa.array([None if one is None else _json(one) for one in shown], pa.string())
        if json_bodies
        else nulls(pa.string(), len(rows)),
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared)


class _Reading:
    """What the texts of a block carry, row by row."""

    def __init__(self, data: Array, rows: Array, limits: Limits, payloads: Mapping[int, bytes]) -> None:
        count = len(rows)
        self.faults = rows[:, FAULT].copy()
        self.blanks = np.zeros(count, bool)
        self.bodies: list[bytes | None] = [None] * count
        self.said: list[Said | None] = [None] * count
        self.kinds: list[str] = ["ack"] * count
        self.names: list[str] = ["result"] * count
        view = data.data
        chosen = np.flatnonzero(rows[:, KIND] != TextKind.RESULT)
        for index, row in zip(chosen.tolist(), rows[chosen].tolist(), strict=True):
            payload = bytes(view[row[PAYLOAD] : row[PAYLOAD] + row[PAYLOAD_LENGTH]])
            self.blanks[index] = len(payload.translate(None, BLANKS)) < len(payload)
            encryption = Encryption(row[ENCRYPTION])
            is_piece = row[KIND] == TextKind.FRAGMENT and row[FRAGMENT_COUNT] != 1
            if index in payloads:
                self._read(index, payloads[index], encryption)
            elif is_piece:
                self.kinds[index], self.names[index] = "event", _tag(Fragment)
            elif encryption is not Encryption.NONE:
                self.kinds[index], self.names[index] = "event", _tag(utterance(None, True))
            else:
                try:
                    self._read(index, opened(payload, None if row[GZIP] < 0 else row[GZIP], encryption, None, limits), encryption)
                except DecodeError as reason:
                    self.faults[index] = self.faults[index] or cast(Fault, reason.fault)
                    self.kinds[index], self.names[index] = "event", _tag(utterance(None, False))

    def _read(self, index: int, payload: bytes, encryption: Encryption) -> None:
        said = documents.decode(payload)
        self.bodies[index] = payload
        self.said[index] = said
        told = None if isinstance(said, Rejected) else said
        if isinstance(said, Rejected):
            self.faults[index] = self.faults[index] or said.fault
        what = utterance(told, encryption is not Encryption.NONE)
        self.names[index] = _tag(what)
        self.kinds[index] = "control" if what is ResetNotice else _kind(told)


def _tag(what: type[msgspec.Struct]) -> str:
    return str(what.__struct_config__.tag)


def _kind(said: Call | Response | Error | None) -> str:
    """What a message is in the vocabulary all protocols share."""
    if isinstance(said, Call):
        return "keepalive" if said.method == "Heartbeat" and said.component.lower() == CORE.lower() else "request"
    if isinstance(said, Error) and said.call_id is None:
        return "error"
    return "event" if said is None else "response"


def _values(shown: dict[str, Any] | None) -> list[dict[str, str]] | None:
    """The parameters of a call."""
    if shown is None or "parameters" not in shown:
        return None
    return [{"type": one["type"], "value": _json(one["value"])} for one in shown["parameters"]]


def _value(shown: dict[str, Any] | None) -> dict[str, str] | None:
    """The value of a response, if it has one."""
    value = None if shown is None else shown.get("value")
    return None if value is None else {"type": value["type"], "value": _json(value["value"])}


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


_ENCODER: Final = msgspec.json.Encoder()
