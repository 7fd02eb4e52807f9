"""Arrow columns of wolpertinger: every field of both layers, and the shared columns.

The row of the text that completes a message has the document; rows of other fragments have their part of the payload. `passive` decodes
fragments and encrypted texts, and keeps their state from block to block.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.errors import DecodeError
from wirelake.protocols.arrow import UNLIMITED, Array, Columns, binary, field, integers, names, nulls
from wirelake.protocols.kernel import FAULT, KIND, LENGTH
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, error_name
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.layer2.notation import describe_value
from wirelake.protocols.wolpertinger.layer2.values import Int32, Int64, UInt64, Value
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope, ResultCode, TextKind
from wirelake.protocols.wolpertinger.passive import Passive, PassiveDecoder
from wirelake.protocols.wolpertinger.scanner import (
    ENCRYPTION,
    FRAGMENT_COUNT,
    FRAGMENT_INDEX,
    GZIP,
    MESSAGE_ID,
    ODD_BLANKS,
    ODD_LATE,
    ODDITIES,
    PART_COLUMNS,
    PAYLOAD,
    PAYLOAD_LENGTH,
    RESULT,
    ROW_COLUMNS,
    Limits,
)
from wirelake.protocols.wolpertinger.state_machine import MESSAGES, Encrypted, Fragment, ResetNotice, call_kind, is_heartbeat, message_kind
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import BLANKS, base64_length, message, opened

__all__ = ["FAULTS", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "passive", "readable"]

NAMES: Final = 1024
"""Names of components and methods that are kept as JSON."""
LONGEST_NAMES: Final = 256
"""Characters of names that are kept: a capture cannot fill the memory with long ones."""
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
        field("text_id", pa.int64(), "message_id: of this message, or of the one that is confirmed (WOLP-3)"),
        field("result_code", pa.int64(), "result: 0 is success; codes above 5 have no meaning (WOLP-4)"),
        field("result_name", pa.string(), "result: the name of the code"),
        field("gzip", pa.int64(), "gzip: bytes of the compressed payload"),
        field("encryption", pa.string(), "encryption: aes, or unknown; null in clear"),
        field("decrypted", pa.bool_(), "Whether keys opened the message that ends with this text; null in clear"),
        field("fragment_index", pa.int64(), "fragment_index: which piece of a message this is, the first is 0"),
        field("fragment_count", pa.int64(), "fragment_count: how many pieces there are"),
        field("payload", pa.binary(), "Payload: base64 as it came (WOLP-6)"),
        field(
            "root",
            pa.string(),
            "Message layer: RemoteMethodCall, RemoteMethodResponse or RemoteError; null if nobody here can read it, and of a"
            " fragment that does not complete its message",
        ),
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
            " (WOLP-6), 8 a result with a payload, 16 a result whose code nobody knows (WOLP-4), 32 a fragment of a message that was"
            " refused (WOLP-9)",
        ),
    ]
)
"""The columns of table `wolpertinger` that are wolpertinger's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
_TYPES: Final = {kind.value: kind.name.lower() for kind in TextKind}
_RESULTS: Final = {code.value: code.name.lower() for code in ResultCode}
_ENCRYPTIONS: Final = {Encryption.AES.value: "aes", Encryption.SECURE_AES.value: "aes", Encryption.UNKNOWN.value: "unknown"}
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)
_READ: Final = [KIND, PAYLOAD, PAYLOAD_LENGTH, GZIP, ENCRYPTION, FRAGMENT_COUNT]
_NOTHING: Final = Passive()
_TAGS: Final = {what: str(what.__struct_config__.tag) for what in MESSAGES}

AnyCall = Call | Response | Error


def readable(rows: Array) -> Array:
    """Which rows are texts, whatever else is wrong with them."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def passive(
    data: Array,
    rows: Array,
    speakers: Array,
    seconds: Array,
    decoders: dict[int, PassiveDecoder],
    limits: Limits,
    keyring: Keyring | None,
    budget: int = UNLIMITED,
) -> tuple[dict[int, Passive], int]:
    """Decode readable rows that need other texts, or keys; by row number, for `columns`.

    `decoders` has the state of each of the `speakers`, and is kept up to date. Also how many of the rows were looked at: no
    more once half of the budget is used.
    """
    limits, size = _fitting(limits, budget), 0
    is_piece = (rows[:, KIND] == TextKind.FRAGMENT) & (rows[:, FRAGMENT_COUNT] != 1)
    results = {}
    for index in np.flatnonzero(is_piece | ((rows[:, ENCRYPTION] != 0) & (rows[:, KIND] != TextKind.RESULT))).tolist():
        row = rows[index].tolist()
        begin, end = row[PAYLOAD], row[PAYLOAD] + row[PAYLOAD_LENGTH]
        row[PAYLOAD] = 0
        said = cast(Envelope, message(data[begin:end].tobytes(), row))
        decoder = decoders.setdefault(int(speakers[index]), PassiveDecoder())
        results[index] = decoded = decoder.decode(said, float(seconds[index]), limits, keyring)
        size += len(decoded.payload or b"")
        if size > budget // 2:
            return results, index + 1
    return results, len(rows)


def _fitting(limits: Limits, budget: int) -> Limits:
    """The limits, with no payload larger than the budget."""
    return msgspec.structs.replace(limits, max_inflated_size=min(limits.max_inflated_size, budget))


def columns(
    data: Array,
    rows: Array,
    parts: Array,  # noqa: ARG001 - as in every protocol
    limits: Limits,
    json_bodies: bool = True,
    budget: int = UNLIMITED,
    passive_results: Mapping[int, Passive] | None = None,
) -> Columns:
    """The texts of readable rows; `passive_results` has the results of `passive` about them.

    Only the first rows are taken, if the payloads of all would take more than the budget.
    """
    read = _Reading(data, rows, _fitting(limits, budget), passive_results or {}, budget)
    rows = rows[: read.taken]
    kind, encryption = rows[:, KIND], rows[:, ENCRYPTION]
    is_result = kind == TextKind.RESULT
    fault = names(read.faults, FAULTS)
    call_id = pa.array(read.call_ids, pa.string())
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "type": names(kind, _TYPES),
        "text_id": integers(rows[:, MESSAGE_ID], pa.int64()),
        "result_code": integers(rows[:, RESULT], pa.int64(), is_result),
        "result_name": names(rows[:, RESULT], _RESULTS, is_result),
        "gzip": integers(rows[:, GZIP], pa.int64(), rows[:, GZIP] >= 0),
        "encryption": names(encryption, _ENCRYPTIONS),
        "decrypted": pa.array(read.decrypted, pa.bool_(), mask=(encryption == 0) | is_result),
        "fragment_index": integers(rows[:, FRAGMENT_INDEX], pa.int64(), rows[:, FRAGMENT_INDEX] >= 0),
        "fragment_count": integers(rows[:, FRAGMENT_COUNT], pa.int64(), rows[:, FRAGMENT_COUNT] >= 0),
        "payload": binary(data, rows[:, PAYLOAD], rows[:, PAYLOAD_LENGTH], ~is_result),
        "root": pa.array(read.roots, pa.string()),
        "component": pa.array(read.components, pa.string()),
        "method": pa.array(read.methods, pa.string()),
        "call_id": call_id,
        "parameters": read.parameters.lists(),
        "value": read.values.singles(),
        "error_code": pa.array(read.codes, pa.int64()),
        "error_name": pa.array([None if code is None else error_name(code) for code in read.codes], pa.string()),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES] | read.odd, pa.int32()),
    }
    failed = np.array([code is not None for code in read.codes], bool) | (is_result & (rows[:, RESULT] != ResultCode.SUCCESS))
    subjects = [None if method is None else f"{name}.{method}" for name, method in zip(read.components, read.methods, strict=True)]
    shared: dict[str, pa.Array] = {
        "kind": pa.array(read.kinds, pa.string()),
        "name": pa.array(read.names, pa.string()),
        "subject": pa.array(subjects, pa.string()),
        "correlation_id": call_id,
        "status": names(np.where(read.faults != 0, 1, np.where(failed, 2, 0)), ("ok", "faulty", "error")),
        "fault": fault,
        "body": pa.array(read.bodies, pa.binary()),
        "body_json": pa.array(read.json, pa.string()) if json_bodies else nulls(pa.string(), len(rows)),
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared, taken=read.taken)


def _text(value: str | None) -> str:
    return msgspec.json.encode(value).decode()


_SHORT: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    str: ("string", _text),
    bool: ("boolean", lambda value: "true" if value else "false"),
    **{number: (number.__name__.lower(), int.__repr__) for number in (Int32, Int64, UInt64)},
}
"""Type of a value -> its data type and JSON writer, for the most common types.

They write as `describe_value` does.
"""


class _Typed:
    """Typed values of many rows, as Arrow wants them: one after the other, and which rows they are of."""

    def __init__(self, count: int) -> None:
        self.types: list[str] = []
        self.texts: list[str] = []
        self.rows: list[int] = []
        self.is_there = bytearray(count)
        """1 for rows that have values, or at least a list without any."""

    def add(self, index: int, value: Value) -> str:
        """One more value of a row, not before those of earlier ones; gives it as JSON."""
        short = _SHORT.get(type(value))
        if short is not None:
            kind, text = short[0], short[1](value)
        else:
            described = describe_value(value)
            kind, text = described["type"], msgspec.json.encode(described["value"]).decode()
        self.rows.append(index)
        self.types.append(kind)
        self.texts.append(text)
        return f'{{"type":"{kind}","value":{text}}}'

    def lists(self) -> pa.Array:
        """A list for each row, null where there is none."""
        offsets = pa.array(self._offsets(), pa.int32(), mask=np.append(self._is_absent(), False))
        return pa.ListArray.from_arrays(offsets, self._structs(self.types, self.texts), type=SCHEMA.field("parameters").type)

    def singles(self) -> pa.Array:
        """The one value of each row, or null."""
        return self._structs(self.types, self.texts).take(pa.array(self._offsets()[:-1], mask=self._is_absent()))

    def _is_absent(self) -> Array:
        return np.frombuffer(self.is_there, np.bool_) ^ True

    def _offsets(self) -> Array:
        """Where the values of each row begin, and where the last ones end."""
        offsets = np.zeros(len(self.is_there) + 1, np.int64)
        np.cumsum(np.bincount(np.array(self.rows, np.int64), minlength=len(self.is_there)), out=offsets[1:])
        return offsets

    @staticmethod
    def _structs(types: list[str], texts: list[str]) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array(types, pa.string()), pa.array(texts, pa.string())], fields=list(_VALUE))


class _Reading:
    """What the texts of a block carry, row by row."""

    def __init__(self, data: Array, rows: Array, limits: Limits, passive_results: Mapping[int, Passive], budget: int) -> None:
        self.odd = np.zeros(len(rows), np.int64)
        self._found: list[tuple[int, Passive, bool, bool]] = []
        self.taken = count = self._payloads(data, rows, limits, passive_results, budget)
        self.faults = rows[:count, FAULT].copy()
        self.odd = self.odd[:count]
        self.decrypted = np.zeros(count, bool)
        self.bodies: list[bytes | None] = [None] * count
        self.kinds: list[str] = ["ack"] * count
        self.names: list[str] = ["result"] * count
        self.roots: list[str | None] = [None] * count
        self.components: list[str | None] = [None] * count
        self.methods: list[str | None] = [None] * count
        self.call_ids: list[str | None] = [None] * count
        self.codes: list[int | None] = [None] * count
        self.json: list[str | None] = [None] * count
        self.parameters, self.values = _Typed(count), _Typed(count)
        for index, found, is_encrypted, is_piece in self._found:
            self._take(index, found, is_encrypted=is_encrypted, is_piece=is_piece)

    def _payloads(self, data: Array, rows: Array, limits: Limits, passive_results: Mapping[int, Passive], budget: int) -> int:
        """Open the payloads of as many rows as fit, and say how many that are."""
        size, view = 0, data.data
        for index, (kind, at, length, gzip, encryption, pieces) in enumerate(rows[:, _READ].tolist()):
            if kind == TextKind.RESULT:
                continue
            payload = view[at : at + length]
            is_piece = kind == TextKind.FRAGMENT and pieces != 1
            if encryption or is_piece:
                decoded = passive_results.get(index, _NOTHING)
                self._look_for_blanks(index, bytes(payload))
            else:
                decoded = self._opened(index, payload, gzip, limits)
            self._found.append((index, decoded, encryption != 0, is_piece))
            size += len(decoded.payload or b"")
            if size > budget // 2:
                return index + 1
        return len(rows)

    def _look_for_blanks(self, index: int, payload: bytes) -> None:
        if any(blank in payload for blank in BLANKS):
            self.odd[index] |= ODD_BLANKS

    def _opened(self, index: int, payload: memoryview, gzip: int, limits: Limits) -> Passive:
        """WOLP-6, WOLP-7: what a whole message in clear carries."""
        if gzip < 0:
            try:
                plain = binascii.a2b_base64(payload, strict_mode=True)
            except binascii.Error:
                plain = b""  # blanks, perhaps
            if len(payload) == base64_length(len(plain)):
                return Passive(plain)
        self._look_for_blanks(index, bytes(payload))
        try:
            return Passive(opened(bytes(payload), None if gzip < 0 else gzip, Encryption.NONE, None, limits))
        except DecodeError as reason:
            return Passive(fault=cast(Fault, reason.fault))

    def _take(self, index: int, decoded: Passive, *, is_encrypted: bool, is_piece: bool) -> None:
        """What became of one text, and the message that it ends, if that can be read."""
        if decoded.fault is Fault.FRAGMENT_LATE:
            self.odd[index] |= ODD_LATE
        elif decoded.fault is not None:
            self.faults[index] = self.faults[index] or decoded.fault
        self.kinds[index] = "event"
        if decoded.payload is None:
            self.names[index] = _TAGS[Fragment if is_piece else Encrypted if is_encrypted else Envelope]
            return
        document = documents.decode(decoded.payload)
        self.bodies[index] = decoded.payload
        if is_encrypted:
            self.decrypted[index] = True
        if isinstance(document, Rejected):
            self.faults[index] = self.faults[index] or document.fault
            self.names[index] = _TAGS[message_kind(None, is_encrypted)]
        else:
            self._tell(index, document, is_encrypted)

    def _tell(self, index: int, document: AnyCall, is_encrypted: bool) -> None:
        """Layer 2: every element in its column, and all of them as the JSON that `notation` gives."""
        component = self.components[index] = document.component
        self.call_ids[index] = document.call_id
        if isinstance(document, Call):
            self.roots[index] = _CALL
            method = self.methods[index] = document.method
            describe = _described_call if len(component) + len(method) <= LONGEST_NAMES else _described_call.__wrapped__
            self.names[index], self.kinds[index], head = describe(component, method, is_encrypted)
            self.parameters.is_there[index] = True
            inside = ",".join([self.parameters.add(index, value) for value in document.parameters])
            self.json[index] = f'{head}"call_id":"{document.call_id}","parameters":[{inside}]}}'
            return
        root = self.roots[index] = _TAGS[type(document)]
        self.names[index] = _TAGS[message_kind(document, is_encrypted)]
        describe_name = _name if len(component) <= LONGEST_NAMES else _text
        if isinstance(document, Response):
            self.kinds[index] = "response"
            self.values.is_there[index] = document.value is not None
            value = "null" if document.value is None else self.values.add(index, document.value)
            rest = f'"call_id":"{document.call_id}","value":{value}'
        else:
            self.kinds[index] = "error" if document.call_id is None else "response"
            self.codes[index] = document.code
            call_id = "null" if document.call_id is None else f'"{document.call_id}"'
            rest = f'"code":{document.code},"name":{_text(error_name(document.code))},"call_id":{call_id}'
        self.json[index] = f'{{"root":"{root}","component":{describe_name(component)},{rest}}}'


@lru_cache(maxsize=NAMES)
def _described_call(component: str, method: str, is_encrypted: bool) -> tuple[str, str, str]:
    """The name and the kind of a call, and the beginning of its JSON: calls of few methods repeat.

    It takes 1.5 µs of the 15 µs of a message.
    """
    what = call_kind(component, method, is_encrypted)
    kind = "control" if what is ResetNotice else "keepalive" if is_heartbeat(component, method) else "request"
    return _TAGS[what], kind, f'{{"root":"{_CALL}","component":{_text(component)},"method":{_text(method)},'


_name: Final = lru_cache(maxsize=NAMES)(_text)
_CALL: Final = _TAGS[Call]
