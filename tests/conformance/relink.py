"""One vector of relink.json: a part of the handshake or a packet, read in both forms of the scanner, at every cut, and by a session."""

from __future__ import annotations

import re
from typing import Any

from tests.conformance.reading import LABELS, Unmapped, keys, octets, same

from wirelake.errors import DecodeError
from wirelake.protocols import kernel
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, Stage
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import buffer, decode, encode, message

STAGES = {"version": Stage.VERSION, "open": Stage.REQUEST, "request": Stage.REQUEST, "reply": Stage.REPLY}
FORMATS = ("channel_op", "channel_ack", "sequence_op", "sequence_ack", "message")
PACKETS = ("general", *FORMATS, "unknown")
QUIET = Options(ping_interval=None, handshake_timeout=None, packet_timeout=None)
EPOCH, LINK_ID = 1_700_000_000_000_000, 81985529216486895
UNKNOWN_TYPES = {
    "general": Fault.GENERAL_TYPE_UNKNOWN,
    "channel_op": Fault.OPERATION_UNKNOWN,
    "channel_ack": Fault.ACKNOWLEDGEMENT_UNKNOWN,
    "sequence_op": Fault.SEQUENCE_OPERATION_UNKNOWN,
    "sequence_ack": Fault.SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN,
}
REASONS = (
    (r"unknown .*format", {Fault.FORMAT_UNKNOWN}),
    (r"unknown .*type", set(UNKNOWN_TYPES.values())),
    (r"multicast", {Fault.MULTICAST_OVER_LIMIT}),
    (r"\b(sum|total|together|message size)\b", {Fault.MESSAGE_OVER_LIMIT}),
    (r"\bpart (size|length)|size of (a|one) part", {Fault.PART_OVER_LIMIT}),
    (r"\bparts?\b", {Fault.PARTS_OVER_LIMIT}),
    (r"limit|exceed", {Fault.MULTICAST_OVER_LIMIT, Fault.MESSAGE_OVER_LIMIT, Fault.PART_OVER_LIMIT, Fault.PARTS_OVER_LIMIT}),
    (r"utf-?8", {Fault.ENDPOINT_NOT_UTF8}),
    (r"without (an |its )?epoch", {Fault.LINK_WITHOUT_EPOCH}),
    (r"epoch", {Fault.EPOCH_ZERO, Fault.LINK_WITHOUT_EPOCH}),
    (r"link id", {Fault.LINK_ID_RANGE}),
    (r"version", {Fault.VERSION_UNSUPPORTED}),
    (r"endpoint", {Fault.ENDPOINT_UNKNOWN}),
)
"""Expression that finds an error's text -> the faults it stands for; the first that fits counts."""


def run(vector: Any) -> None:
    """Hold one vector, with the scanner as it stands and compiled."""
    keys("vector", vector, {"hex", "fields", "expect"}, LABELS | {"ctx"})
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
    packet = decode(data, stage=stage, sender_id_size=size, receiver_id_size=size)
    found = described(packet)
    keys("fields", fields, set(found))
    assert same(found, expected(fields))
    again = encode(packet)
    assert decode(again, stage=stage, sender_id_size=size, receiver_id_size=size) == packet
    if not has_odd_bits(data, stage, size):
        assert again == data
    limits = DEFAULT_LIMITS.for_scan(stage, size, size)
    for cut in range(1, len(data)):
        one = buffer(DEFAULT_LIMITS, limits)
        heard = [
            message(whole, row, parts) for piece in (data[:cut], data[cut:]) for whole, rows, parts in one.feed(piece) for row in rows[:1]
        ]
        assert heard[0] == packet


def has_odd_bits(data: bytes, stage: Stage, size: int) -> bool:
    from wirelake.protocols.relink.scanner import ODD_BITS, ODDITIES, PART_COLUMNS, ROW_COLUMNS, scan

    row = [0] * ROW_COLUMNS
    scan(data, 0, len(data), row, [0] * (1024 * PART_COLUMNS), DEFAULT_LIMITS.for_scan(stage, size, size))
    return bool(row[ODDITIES] & ODD_BITS)


def described(packet: m.AnyMessage) -> dict[str, Any]:
    """A message in the words of the vectors."""
    match packet:
        case m.Version(version):
            return {"kind": "version", "version": version}
        case m.Request(endpoint, connector, listener, flags, epoch, link_id):
            sizes = {"connector_id_size": connector, "listener_id_size": listener}
            return {"kind": "request", "endpoint": endpoint, **sizes, "flags": flags, "epoch": epoch, "link_id": link_id}
        case m.Reply(epoch, link_id):
            return {"kind": "reply", "epoch": epoch, "link_id": link_id}
        case m.Message():
            forms = {"multicast": packet.multicast, "long": packet.long, "large": packet.large}
            return {"kind": "message", **forms, "ids": [one.hex() for one in packet.ids], "parts": [one.hex() for one in packet.parts]}
        case m.Nop() | m.Ping() | m.Pong() | m.Resume() | m.Shutdown():
            return {"kind": "general", "type": m.name_of(type(packet))}
    sequence = getattr(packet, "sequence", None)
    group = "ack" if isinstance(packet, m.Acknowledgement | m.Closed) else "op"
    parsed = {"type": m.name_of(type(packet)), "multicast": packet.multicast, "ids": [one.hex() for one in packet.ids]}
    return {"kind": f"{'channel' if sequence is None else 'sequence'}_{group}", **parsed} | (
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
    check_reason(data, stage, fields, faults)


def check_reason(data: bytes, stage: Stage, fields: dict[str, Any], faults: list[Fault]) -> None:
    """§2: the kind and the numbers that the error names are those of the first byte; every fault is one that it stands for."""
    kind, text = fields["kind"], str(fields["error"]).lower()
    if stage is Stage.PACKETS:
        form = data[0] >> 2 & 7
        assert kind == ("general" if not data[0] & 1 else FORMATS[form] if form < len(FORMATS) else "unknown")
        for word, value in (("type", data[0] >> 5), ("format", form)):
            assert all(int(parsed) == value for parsed in re.findall(rf"{word} ([0-9]+)", text)), text
    wanted = next((faults for pattern, faults in REASONS if re.search(pattern, text)), None)
    if wanted is None:  # words of somebody else's: at least one must be ours, too
        words = set(re.findall("[a-z]{5,}", text))
        if not all(words & set(re.findall("[a-z]{5,}", f"{fault.name} {fault.rule.text}".lower())) for fault in faults):
            raise Unmapped(f"error {fields['error']!r}")
        return
    if wanted == set(UNKNOWN_TYPES.values()):
        wanted = {UNKNOWN_TYPES[kind]}
    assert set(faults) <= wanted, faults


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
        session = Session(Speaker.CONNECTOR, QUIET, link=LinkCore(Speaker.CONNECTOR, endpoint, QUIET))
        before = [m.Version(), m.Reply(EPOCH, LINK_ID)]
    session.start(0.0)
    for packet in before[: 2 if stage is Stage.PACKETS else 0 if stage is Stage.VERSION else 1]:
        session.receive(encode(packet), 0.0)
        assert session.ended is None, session.ended
    session.receive(data, 0.0)
    assert session.ended is not None, "the connection goes on"
    assert session.ended.here
    assert session.ended.fault is not None
    return session.ended.fault
