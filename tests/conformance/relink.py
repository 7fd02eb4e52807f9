"""One vector of relink.json: a part of the handshake or a packet, read in both forms of the scanner, at every cut, and by a session."""

from __future__ import annotations

from typing import Any

from tests.conformance.reading import Unmapped, keys, octets

from wirelake.errors import DecodeError
from wirelake.protocols import kernel
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.conversation import Speaker
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link import Link
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.registry import Registry
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, Stage
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.wire import buffer, decode, encode, message

STAGES = {"version": Stage.VERSION, "open": Stage.REQUEST, "request": Stage.REQUEST, "reply": Stage.REPLY}
PACKETS = ("general", "channel_op", "channel_ack", "sequence_op", "sequence_ack", "message", "unknown")
QUIET = Options(ping_interval=None, handshake_timeout=None, packet_timeout=None)
EPOCH, LINK_ID = 1_700_000_000_000_000, 81985529216486895
WORDS = {
    "unknown type": {"RELINK-12"},
    "unknown channel packet format": {"RELINK-12"},
    "unknown format": {"RELINK-12"},
    "limit": {"RELINK-24"},
    "utf-8": {"RELINK-31"},
    "link id": {"RELINK-8", "RELINK-9"},
    "epoch": {"RELINK-9"},
}
"""What an error's text contains -> the clauses that may be blamed for it."""


def run(vector: Any) -> None:
    """Hold one vector, with the scanner as it stands and compiled."""
    keys("vector", vector, {"hex", "fields", "expect"}, {"name", "source", "note", "ctx", "spec", "ruling"})
    keys("ctx", vector.get("ctx", {}), set(), {"id_size"})
    switch = kernel._use_compiled
    try:
        for kernel._use_compiled in (False, True):
            if vector["expect"] == "ok":
                accept(vector)
            elif vector["expect"] == "terminate":
                refuse(vector)
            else:
                raise Unmapped(f"expect {vector['expect']!r}")
    finally:
        kernel._use_compiled = switch


def stage_of(fields: dict[str, Any]) -> Stage:
    kind = fields.get("kind")
    if kind not in STAGES and kind not in PACKETS:
        raise Unmapped(f"kind {kind!r}")
    return STAGES.get(kind, Stage.PACKETS)


def accept(vector: Any) -> None:
    data, fields = octets("hex", vector["hex"]), vector["fields"]
    stage, size = stage_of(fields), vector.get("ctx", {}).get("id_size", 0)
    said = decode(data, stage=stage, sender_id_size=size, receiver_id_size=size)
    assert described(said) == expected(fields)
    again = encode(said)
    assert decode(again, stage=stage, sender_id_size=size, receiver_id_size=size) == said
    if not has_odd_bits(data, stage, size):
        assert again == data
    limits = DEFAULT_LIMITS.for_scan(stage, size, size)
    for cut in range(1, len(data)):
        one = buffer(DEFAULT_LIMITS, limits)
        heard = [
            message(whole, row, parts) for piece in (data[:cut], data[cut:]) for whole, rows, parts in one.feed(piece) for row in rows[:1]
        ]
        assert heard[0] == said


def has_odd_bits(data: bytes, stage: Stage, size: int) -> bool:
    from wirelake.protocols.relink.scanner import ODD_BITS, ODDITIES, PART_COLUMNS, ROW_COLUMNS, scan

    row = [0] * ROW_COLUMNS
    scan(data, 0, len(data), row, [0] * (1024 * PART_COLUMNS), DEFAULT_LIMITS.for_scan(stage, size, size))
    return bool(row[ODDITIES] & ODD_BITS)


def described(said: m.Said) -> dict[str, Any]:
    """A message in the words of the vectors."""
    match said:
        case m.Version(version):
            return {"kind": "version", "version": version}
        case m.Request(endpoint, connector, listener, flags, epoch, link_id):
            sizes = {"connector_id_size": connector, "listener_id_size": listener}
            return {"kind": "request", "endpoint": endpoint, **sizes, "flags": flags, "epoch": epoch, "link_id": link_id}
        case m.Reply(epoch, link_id):
            return {"kind": "reply", "epoch": epoch, "link_id": link_id}
        case m.Message():
            forms = {"multicast": said.multicast, "long": said.long, "large": said.large}
            return {"kind": "message", **forms, "ids": [one.hex() for one in said.ids], "parts": [one.hex() for one in said.parts]}
        case m.Nop() | m.Ping() | m.Pong() | m.Resume() | m.Shutdown():
            return {"kind": "general", "type": m.name_of(type(said))}
    sequence = getattr(said, "sequence", None)
    group = "ack" if isinstance(said, m.Acknowledgement | m.Closed) else "op"
    told = {"type": m.name_of(type(said)), "multicast": said.multicast, "ids": [one.hex() for one in said.ids]}
    return {"kind": f"{'channel' if sequence is None else 'sequence'}_{group}", **told} | (
        {} if sequence is None else {"sequence": sequence}
    )


def expected(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "kind": "request"} if fields["kind"] == "open" else fields


def refuse(vector: Any) -> None:
    """The bytes cannot be read, or must not be said; a live session ends for the same reason."""
    data, fields = octets("hex", vector["hex"]), vector["fields"]
    keys("fields", fields, {"kind", "error"})
    stage, size = stage_of(fields), vector.get("ctx", {}).get("id_size", 0)
    faults = [live(data, stage, size, speaker) for speaker in speakers(stage)]
    try:
        decode(data, stage=stage, sender_id_size=size, receiver_id_size=size)
        raise AssertionError("it was read")
    except DecodeError as reason:
        faults.append(reason.fault)
    for words, clauses in WORDS.items():
        if words in fields["error"].lower():
            assert all(fault.clause in clauses for fault in faults), faults
            break


def speakers(stage: Stage) -> list[Speaker]:
    """Who may say this."""
    if stage is Stage.PACKETS:
        return list(Speaker)
    return [Speaker.LISTENER if stage is Stage.REPLY else Speaker.CONNECTOR]


def live(data: bytes, stage: Stage, size: int, speaker: Speaker) -> Fault:
    """Say it to a session of ours that has come so far; why the session ended."""
    endpoint = Endpoint("demo", size, size)
    if speaker is Speaker.CONNECTOR:
        session = Session(Speaker.LISTENER, QUIET, registry=Registry([endpoint], EPOCH, lambda: LINK_ID, QUIET))
        before = [m.Version(), m.Request("demo", size, size)]
    else:
        session = Session(Speaker.CONNECTOR, QUIET, link=Link(Speaker.CONNECTOR, endpoint, QUIET))
        before = [m.Version(), m.Reply(EPOCH, LINK_ID)]
    session.start(0.0)
    for said in before[: 2 if stage is Stage.PACKETS else 0 if stage is Stage.VERSION else 1]:
        session.receive(encode(said), 0.0)
        assert session.ended is None, session.ended
    session.receive(data, 0.0)
    assert session.ended is not None, "the connection goes on"
    assert session.ended.here
    assert session.ended.fault is not None
    return session.ended.fault
