"""One vector of yamp.json: decoded and encoded again, cut everywhere, scanned in both forms, heard by a session; or refused as it says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from tests.conformance.reading import LABELS, Unmapped, keys, octets, same

from wirelake.protocols import kernel
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, START, compiled
from wirelake.protocols.yamp import messages as m
from wirelake.protocols.yamp.events import Ended, Ending, Noticed, Opened
from wirelake.protocols.yamp.faults import UNREADABLE
from wirelake.protocols.yamp.limits import DEFAULT_LIMITS
from wirelake.protocols.yamp.options import Options
from wirelake.protocols.yamp.scanner import CODE, ODD_REASON, ODDITIES, ROW_COLUMNS, URI, URI_LENGTH, scan
from wirelake.protocols.yamp.serializers.registry import OPAQUE
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.protocols.yamp.wire import buffer, decode, encode, message

HANDSHAKE = b"\x00\x00\x01\x04json"
HEADER = {"uid", "uri"}
FIELDS = {
    "system.handshake": (m.Handshake, {"version", "serializer"}),
    "system.ping": (m.Ping, {"payload_hex"}),
    "system.pong": (m.Pong, {"payload_hex"}),
    "system.close": (m.Close, {"reason"}),
    "system.close-redirect": (m.CloseRedirect, {"url"}),
    "event": (m.Event, HEADER | {"body_hex"}),
    "request": (m.Request, HEADER | {"progressive", "body_hex"}),
    "cancel": (m.Cancel, HEADER | {"request_uid", "kill"}),
    "response": (m.Response, HEADER | {"request_uid", "response_type", "body_hex"}),
}
"""Type name -> what it is, and the fields it has beside the common ones."""
RESPONSES = ["done", "error", "progress", "cancelled"]


def run(vector: Any) -> None:
    """Hold one vector."""
    if not isinstance(vector, dict) or vector.get("expect") not in ("ok", "reject"):
        raise Unmapped(f"expect neither ok nor reject: {vector!r}")
    ok = vector["expect"] == "ok"
    keys("vector", vector, {"hex", "expect", "fields" if ok else "reject"}, LABELS | {"ws_message_sizes"})
    data = octets("hex", vector["hex"])
    if ok:
        accept(data, vector["fields"], pieces_of(data, vector.get("ws_message_sizes")))
    else:
        refuse(data, vector["reject"])


def pieces_of(data: bytes, sizes: Any) -> list[bytes]:
    """YAMP-14: a peer's WebSocket messages; empty ones are ignored."""
    if sizes is None:
        return [data]
    if not isinstance(sizes, str):
        raise Unmapped(f"ws_message_sizes {sizes!r}")
    pieces, at = [], 0
    for size in map(int, sizes.split("+")):
        pieces.append(data[at : at + size])
        at += size
    assert at == len(data)
    return [piece for piece in pieces if piece]


# What is accepted.


def accept(data: bytes, fields: Any, as_sent: list[bytes]) -> None:
    check_shape(fields)
    said = decode(data)
    row = scan_once(data)
    assert (row[START], row[LENGTH], row[KIND], row[FAULT]) == (0, len(data), fields["type"], 0)
    assert type(said) is FIELDS[fields["type_name"]][0]
    assert m.name_of(type(said)) == fields["type_name"]
    for key in set(fields) - {"type", "type_name"}:
        assert same(value_of(said, key), fields[key]), key
    bare = without_oddities(data, row)
    assert encode(said) == bare or row[ODDITIES] & ODD_REASON
    assert decode(encode(said)) == said
    for pieces in (as_sent, *cuts(data)):
        assert through_buffer(pieces) == [said]
    check_forms(data, row)
    check_hearing(as_sent, said)


def check_shape(fields: Any) -> None:
    if not isinstance(fields, dict) or fields.get("type_name") not in FIELDS:
        raise Unmapped(f"fields of no message known here: {fields!r}")
    keys("fields", fields, {"type", "type_name"} | FIELDS[fields["type_name"]][1])
    assert fields["type"] == list(FIELDS).index(fields["type_name"])
    if "response_type" in fields and fields["response_type"] not in RESPONSES:
        raise Unmapped(f"response_type {fields['response_type']!r}")


def value_of(said: m.Message, key: str) -> Any:
    """A field as vectors write it."""
    value = getattr(said, key.removesuffix("_hex"))
    if key == "response_type":
        return RESPONSES[value]
    return value.hex() if isinstance(value, bytes) else value


def without_oddities(data: bytes, row: list[int]) -> bytes:
    """The same message with truth values of 0 and 1: what we would have sent."""
    if row[KIND] not in (6, 7) or row[CODE] < 2:
        return data
    at = row[URI] + row[URI_LENGTH] + (16 if row[KIND] == 7 else 0)
    return data[:at] + b"\x01" + data[at + 1 :]


def check_hearing(pieces: list[bytes], said: m.Message) -> None:
    """A session that hears it as the peer sent it neither ends nor complains, unless that is what the message is for."""
    session = established() if not isinstance(said, m.CloseRedirect) else established(Speaker.CLIENT)
    for piece in pieces:
        session.receive(piece, 0.0)
    events = [event for event in session.events() if not isinstance(event, Noticed)]
    if isinstance(said, m.Close | m.CloseRedirect):
        assert session.output() == b""
        assert session.ended is not None
        assert session.ended.how is (Ending.CLOSE if isinstance(said, m.Close) else Ending.REDIRECT)
        assert session.ended.detail == (said.reason if isinstance(said, m.Close) else said.url)
    else:
        assert session.ended is None
        assert [getattr(event, "uid", None) for event in events] == ([said.uid] if isinstance(said, m.Event | m.Request) else [])
        assert [event.body or b"" for event in events] == [said.body for _ in events]
        assert session.output() == (encode(m.Pong(said.payload)) if isinstance(said, m.Ping) else b"")


# Every cut, both forms.


def scan_once(data: bytes) -> list[int]:
    row = [0] * ROW_COLUMNS
    count, _, end, _ = scan(data, 0, len(data), row, [], DEFAULT_LIMITS.for_scan())
    assert (count, end) == (1, len(data))
    return row


def check_forms(data: bytes, row: list[int]) -> None:
    """Compiled, the scanner says the same; between neighbours it says the same too."""
    rows = np.zeros(3 * ROW_COLUMNS, np.int64)
    said = compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), rows, np.zeros(1, np.int64), DEFAULT_LIMITS.for_scan())
    assert said[:3] == (1, 0, len(data))
    assert rows[:ROW_COLUMNS].tolist() == row
    assert through_buffer([HANDSHAKE + data + HANDSHAKE]) == [m.Handshake(), decode(data), m.Handshake()]


def cuts(data: bytes) -> Iterable[list[bytes]]:
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    dice = random.Random(data)
    for _ in range(5):
        places = sorted(dice.randrange(len(data) + 1) for _ in range(4))
        yield [data[one:other] for one, other in zip([0, *places], [*places, len(data)], strict=True)]


def through_buffer(pieces: list[bytes]) -> list[m.Message]:
    stream = buffer()
    found = [message(whole, row) for piece in pieces for whole, rows, _ in stream.feed(piece) for row in rows]
    assert stream.rest == b""
    return found


# What is refused.


def refuse(data: bytes, reject: Any) -> None:
    keys("reject", reject, set(), {"in", "close", "incomplete"})
    outcomes = [reject[word] for word in ("close", "incomplete") if word in reject]
    if reject.get("in", "handshake") != "handshake" or len(outcomes) != 1 or outcomes[0] is not True:
        raise Unmapped(f"reject {reject!r}")
    for pieces in cuts(data):
        check_refusal(pieces, reject)
    switch, kernel._use_compiled = kernel._use_compiled, True
    try:
        check_refusal([data], reject)
    finally:
        kernel._use_compiled = switch


def established(speaker: Speaker = Speaker.SERVER, *, greeted: bool = True) -> Session:
    session = Session(speaker, Options(serializers={"json": OPAQUE}), draw=bytes)
    session.start(0.0)
    if greeted:
        session.receive(HANDSHAKE, 0.0)
        assert session.events() == [Opened(1, "json")]
        assert session.output() == HANDSHAKE
    return session


def check_refusal(pieces: list[bytes], reject: dict[str, Any]) -> None:
    session = established(greeted="in" not in reject)
    for piece in pieces:
        session.receive(piece, 0.0)
    if "incomplete" in reject:
        assert session.ended is None, "not waiting for more"
        assert session.output() == b""
        assert session.rest != b""
        session.receive_eof(0.0)
        assert session.ended.how is Ending.CLOSED
        assert session.ended.here is False
    else:
        assert session.ended is not None, "accepted, or still waiting for more"
        assert session.ended.here
        assert session.ended.fault is not None
        assert isinstance(decode(session.output()), m.Close)
    assert session.output() == b""
    events = session.events()
    assert events[-1:] == [session.ended]
    assert all(isinstance(event, Noticed | Ended) for event in events)
    assert sum(isinstance(event, Ended) for event in events) == 1
    assert (session.pending, session.serving, session.deadline) == (0, 0, None)
    assert session.ended.fault in UNREADABLE or session.ended.fault >= 40
