"""One vector of emp.json: decoded and encoded again, cut everywhere, scanned in both forms; or refused as it says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from tests.conformance.reading import LABELS, Unmapped, keys, octets, same

from wirelake.protocols import kernel
from wirelake.protocols.emp import messages as m
from wirelake.protocols.emp.events import DataReceived, Ended, Opened, RequestReceived, ResponseReceived
from wirelake.protocols.emp.limits import DEFAULT_LIMITS
from wirelake.protocols.emp.options import Options
from wirelake.protocols.emp.scanner import PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import buffer, decode, encode, message, pack, plain
from wirelake.protocols.kernel import KIND, LENGTH, START, compiled

HELLO = bytes.fromhex("0000000c0000000001000000")
COMMON = {"size", "type", "type_name", "extensions"}
FIELDS = {
    "hello": {"version"},
    "bye": set(),
    "ping": set(),
    "pong": set(),
    "error": {"error_code", "extension_id", "extension_error_code", "message"},
    "data": {"body_hex", "plain_body_hex"},
    None: {"body_hex", "plain_body_hex"},
}
"""Type name -> the fields it has beside the common ones; None is an application's own type."""
NUMBERS = {"hello": 0, "bye": 1, "ping": 2, "pong": 3, "error": 4, "data": 5}
BODILESS = {"bye", "ping", "pong"}


def run(vector: Any) -> None:
    """Hold one vector."""
    if not isinstance(vector, dict) or vector.get("expect") not in ("ok", "reject"):
        raise Unmapped(f"expect neither ok nor reject: {vector!r}")
    ok = vector["expect"] == "ok"
    keys("vector", vector, {"hex", "expect", "fields" if ok else "reject"}, LABELS)
    data = octets("hex", vector["hex"])
    if ok:
        accept(data, vector["fields"])
    else:
        refuse(data, vector["reject"])


# What is accepted.


def accept(data: bytes, fields: dict[str, Any]) -> None:
    check_shape(fields)
    said = decode(data)
    row, parts = scan_once(data)
    assert same([row[KIND], row[LENGTH], len(data)], [fields["type"], fields["size"], fields["size"]])
    assert row[START] == 0
    check_fields(said, data, row, parts, fields)
    bare = without_oddities(data, row, fields)
    assert encode(said) == bare
    assert decode(bare) == said
    check_packing(said)
    for pieces in cuts(data):
        assert through_buffer(pieces) == [said]
    check_forms(data, row, parts)


def check_shape(fields: dict[str, Any]) -> None:
    if not isinstance(fields, dict) or fields.get("type_name", "") not in FIELDS:
        raise Unmapped(f"fields of no message known here: {fields!r}")
    name = fields["type_name"]
    keys("fields", fields, COMMON | FIELDS[name], {"body_hex"} if name in BODILESS else set())
    number = fields["type"]
    assert number == NUMBERS[name] if name is not None else 128 <= number <= 255
    for index, extension in enumerate(fields["extensions"]):
        special = {0: {"request", "request_id"}, 1: {"scheme"}}.get(extension.get("id"), set())
        keys(f"extensions[{index}]", extension, {"size", "id", "more", "content_hex"} | special)


def check_fields(said: m.Message, data: bytes, row: list[int], parts: list[list[int]], fields: dict[str, Any]) -> None:
    name = fields["type_name"]
    assert m.name_of(type(said)) == (name or "application")
    check_extensions(said, data, parts, fields["extensions"])
    end = fields["size"]
    body = data[8 + sum(extension["size"] for extension in fields["extensions"]) : end]
    for key in FIELDS[name]:
        if key == "body_hex":
            assert said.body == octets(key, fields[key]) == body
        elif key == "plain_body_hex":
            assert plain(said) == octets(key, fields[key])
        else:
            assert same(getattr(said, key), fields[key]), key
    if name is None:
        assert said.type_id == fields["type"]
    if name in BODILESS and "body_hex" in fields:
        assert body == octets("body_hex", fields["body_hex"])


def check_extensions(said: m.Message, data: bytes, parts: list[list[int]], expected: list[dict[str, Any]]) -> None:
    assert len(said.extensions) == len(parts) == len(expected)
    at = 8
    for extension, part, fields in zip(said.extensions, parts, expected, strict=True):
        content = octets("content_hex", fields["content_hex"])
        assert same([*part[1:3], bool(part[3])], [fields["size"], fields["id"], fields["more"]])
        assert part[0] == at
        assert data[at + 8 : at + fields["size"]] == content
        if fields["id"] == 0:
            assert isinstance(extension, m.RequestResponse)
            assert same([extension.request, extension.request_id], [fields["request"], fields["request_id"]])
        elif fields["id"] == 1:
            assert isinstance(extension, m.Compression)
            assert same(int(extension.scheme), fields["scheme"])
        else:
            assert extension == m.OtherExtension(fields["id"], content)
        at += fields["size"]


def without_oddities(data: bytes, row: list[int], fields: dict[str, Any]) -> bytes:
    """The same message with unused bits zero and without a body where there is none: what we would have sent."""
    bare, at = bytearray(data), 8
    zero(bare, 5, b"\x80\x00\x00")
    for extension in fields["extensions"]:
        zero(bare, at + 5, b"\x80\x00\x00")
        if extension["id"] == 0:
            zero(bare, at + 8, b"\x80\x00\x00\x00")
        elif extension["id"] == 1:
            zero(bare, at + 8, b"\xff\x00\x00\x00")
        at += extension["size"]
    if fields["type_name"] == "hello":
        zero(bare, at, b"\xff\x00\x00\x00")
    elif fields["type_name"] == "error":
        zero(bare, at, b"\xff\xff\xff\x00")
    elif fields["type_name"] in BODILESS:
        del bare[at:]
        bare[:4] = len(bare).to_bytes(4)
    return bytes(bare)


def zero(data: bytearray, at: int, mask: bytes) -> None:
    for index, bits in enumerate(mask):
        data[at + index] &= bits


def check_packing(said: m.Message) -> None:
    """Packed by us, the body may be other bytes, but it is the same body."""
    if isinstance(said, m.Data | m.Application) and any(isinstance(one, m.Compression) for one in said.extensions):
        body, others = plain(said), tuple(one for one in said.extensions if not isinstance(one, m.Compression))
        ours = msgspec.structs.replace(said, body=pack(body), extensions=(*others, m.Compression(m.Scheme.GZIP)))
        assert plain(decode(encode(ours))) == body


# Every cut, both forms.


def scan_once(data: bytes) -> tuple[list[int], list[list[int]]]:
    row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * DEFAULT_LIMITS.max_extension_blocks)
    count, used, end, _ = scan(data, 0, len(data), row, parts, DEFAULT_LIMITS.for_scan())
    assert (count, end) == (1, len(data))
    return row, [parts[at : at + PART_COLUMNS] for at in range(0, used * PART_COLUMNS, PART_COLUMNS)]


def check_forms(data: bytes, row: list[int], parts: list[list[int]]) -> None:
    """Compiled, the scanner says the same; between neighbours it says the same too."""
    rows, blocks = np.zeros(3 * ROW_COLUMNS, np.int64), np.zeros((DEFAULT_LIMITS.max_extension_blocks + 16) * PART_COLUMNS, np.int64)
    said = compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), rows, blocks, DEFAULT_LIMITS.for_scan())
    assert said[:3] == (1, len(parts), len(data))
    assert rows[:ROW_COLUMNS].tolist() == row
    assert blocks[: len(parts) * PART_COLUMNS].tolist() == [cell for part in parts for cell in part]
    assert through_buffer([HELLO + data + HELLO]) == [m.Hello(1), decode(data), m.Hello(1)]


def cuts(data: bytes) -> Iterable[list[bytes]]:
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    dice = random.Random(data)
    for _ in range(5):
        places = sorted(dice.randrange(len(data) + 1) for _ in range(4))
        yield [data[one:other] for one, other in zip([0, *places], [*places, len(data)], strict=True)]


def through_buffer(pieces: list[bytes]) -> list[m.Message]:
    stream = buffer()
    found = [message(whole, row, parts) for piece in pieces for whole, rows, parts in stream.feed(piece) for row in rows]
    assert stream.rest == b""
    return found


# What is refused.


def refuse(data: bytes, reject: dict[str, Any]) -> None:
    code = reject.get("error_code", "missing") if isinstance(reject, dict) else "missing"
    keys("reject", reject, {"error_code"} | ({"extension_id"} if code == 4 else set()), {"in"})
    if "in" in reject and reject["in"] != "handshake":
        raise Unmapped(f"in {reject['in']!r}")
    if code is not None and not isinstance(code, int):
        raise Unmapped(f"error_code {code!r}")
    for pieces in cuts(data):
        check_refusal(pieces, reject)
    switch, kernel._use_compiled = kernel._use_compiled, True
    try:
        check_refusal([data], reject)
    finally:
        kernel._use_compiled = switch


def check_refusal(pieces: list[bytes], reject: dict[str, Any]) -> None:
    session = Session(Speaker.SERVER, Options(answers_other_versions=True))  # EMP-27: a vector has the error of the ruling
    session.start(0.0)
    if "in" not in reject:
        session.receive(HELLO, 0.0)
        assert session.events() == [Opened(1)]
    assert session.output() == HELLO
    for piece in pieces:
        session.receive(piece, 0.0)
    if session.ended is None and session.rest and reject["error_code"] is None:
        session.receive_eof(0.0)  # what is not a whole message is refused by the end of the stream, without a word
    assert session.ended is not None, "accepted, or still waiting for more"
    output = session.output()
    if reject["error_code"] is None:
        assert output == b""
    else:
        error = decode(output)
        assert isinstance(error, m.Error)
        assert error.error_code == reject["error_code"]
        assert error.extension_id == reject.get("extension_id", 0)
    events = session.events()
    assert not any(isinstance(event, Opened | DataReceived | RequestReceived | ResponseReceived) for event in events)
    assert events[-1:] == [session.ended]
    assert sum(isinstance(event, Ended) for event in events) == 1
    assert (session.pending, session.deadline) == (0, None)
