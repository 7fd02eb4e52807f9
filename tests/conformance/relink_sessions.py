"""The recordings of relink-sessions.json: every packet decoded, each side of each session played to a link of ours in the other's place."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from tests.conformance.reading import LABELS, Unmapped, keys, octets, same
from tests.conformance.relink import QUIET

from wirelake.errors import DecodeError
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import (
    LinkLost,
    LinkShutdown,
    MessageReceived,
    MessagesResolved,
    Noticed,
    Opened,
    Outcome,
    SessionEvent,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import INITIAL, TRANSITIONS, Speaker
from wirelake.protocols.relink.wire import buffer, decode, encode, message

SPEAKERS = {"connector": Speaker.CONNECTOR, "listener": Speaker.LISTENER}


class Step(msgspec.Struct):
    """Something one side said on one connection, or (speaker None) something that happened."""

    speaker: Speaker | None
    connection: int
    data: bytes = b""
    packets: list[m.AnyMessage] = []


def run(recording: Any) -> None:
    """Hold everything in the file."""
    if not isinstance(recording, dict):
        raise Unmapped(f"no object: {recording!r}")
    found = 0
    for key, value in recording.items():
        if key == "encoder_dump":
            for one in value:
                check_packet(one)
        elif key.startswith("session"):
            found += 1
            check_session(value)
        elif key not in LABELS:
            raise Unmapped(key)
    if not found:
        raise Unmapped("no session")


def check_packet(one: Any) -> None:
    """A packet whose id size nobody says: it is whole for at least one, and then encoding it gives the same bytes."""
    if "hex_prefix_128" in one:
        keys("packet", one, {"hex_prefix_128", "total_bytes"}, {"name"})
        prefix = octets("hex_prefix_128", one["hex_prefix_128"])
        needs = [
            scan(prefix, 0, len(prefix), [0] * ROW_COLUMNS, [0] * 4096, DEFAULT_LIMITS.for_scan(0, size, size))[3] for size in range(32)
        ]
        assert any(same(need, one["total_bytes"]) for need in needs)
        return
    keys("packet", one, {"hex"}, {"name"})
    data = octets("hex", one["hex"])
    assert any(fits(data, size) for size in range(256)) or any(fits(mended(data, size), size) for size in range(1, 256, 2))


def fits(data: bytes, size: int) -> bool:
    try:
        return encode(decode(data, sender_id_size=size, receiver_id_size=size)) == data
    except DecodeError:
        return False


def mended(data: bytes, size: int) -> bytes:
    """The one known defect of the recorded peer (section 1.3 of the rulings): after an odd id it leaves out the byte before the sizes."""
    body = -(-(2 + size + 2 * data[1]) // 8) * 8
    return data[: 2 + size] + b"\0" + data[2 + size : body - 1] + data[body:] if data[0] == 0x11 and len(data) > body else b""


def check_session(steps: Any) -> None:
    packet = read(steps)
    check_order(packet)
    AsListener(packet).check()
    AsConnector(packet).check()


def read(steps: Any) -> list[Step]:
    found: list[Step] = []
    prologues: dict[int, HandshakeReader] = {}
    for step in steps:
        keys("step", step, {"name", "hex"})
        who = re.fullmatch(r"(connector|listener)#(\d+)", step["name"])
        if who is None:
            if step["hex"]:
                raise Unmapped(f"who says {step!r}")
            found.append(Step(None, found[-1].connection if found else 0))
            continue
        speaker, connection, data = SPEAKERS[who[1]], int(who[2]), octets("hex", step["hex"])
        prologue = prologues.setdefault(connection, HandshakeReader())
        found.append(Step(speaker, connection, data, decoded(prologue, speaker, data)))
    return found


def decoded(prologue: HandshakeReader, speaker: Speaker, data: bytes) -> list[m.AnyMessage]:
    """Every message in whole packets, as the lake reads them: with the limits the handshake tells."""
    packet, at = [], 0
    while at < len(data):
        row, parts = [0] * ROW_COLUMNS, [0] * (1024 * PART_COLUMNS)
        count, _, at, _ = scan(data, at, len(data), row, parts, prologue.limits(speaker))
        assert count == 1, "a recorded step is whole packets"
        one = message(data, row, parts)
        packet.append(one)
        prologue.follow(speaker, data, row)
        assert encode(one) == data[at - row[1] : at]
    return packet


def check_order(steps: list[Step]) -> None:
    states: dict[int, Any] = {}
    for step in steps:
        for packet in step.packets:
            state = states.get(step.connection, INITIAL)
            states[step.connection] = TRANSITIONS[state, step.speaker, type(packet)]


def first(steps: list[Step], kind: type[m.AnyMessage]) -> Any:
    return next(packet for step in steps for packet in step.packets if isinstance(packet, kind))


class Play:
    """Our side in the place of one side of a recording."""

    speaker: Speaker

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        request, self.reply = first(steps, m.Request), first(steps, m.Reply)
        transactions = bool(request.flags & 1), bool(request.flags & 2)
        self.endpoint = Endpoint(request.endpoint, request.connector_id_size, request.listener_id_size, *transactions)
        self.heard: list[SessionEvent] = []
        self.said: list[m.AnyMessage] = []
        self.session: Session | None = None
        self.link: LinkCore | None = None
        self.connection = 0
        self.ours: dict[int, Any] = {}
        for step in steps:
            if step.connection != self.connection and step.speaker is not None:
                self.begin(step.connection)
            if step.speaker is self.speaker.other:
                self.session.receive(step.data, float(step.connection))
            elif step.speaker is not None:
                for one in step.packets:
                    self.act(one)
            self.drain()

    def begin(self, connection: int) -> None:
        if self.session is not None:
            self.session.receive_eof(float(connection))
            self.drain()
        self.connection = connection
        self.session = self.make()
        self.session.start(float(connection))
        self.prologue = HandshakeReader(DEFAULT_LIMITS, self.endpoint.id_sizes)
        self.buffer = buffer(DEFAULT_LIMITS, self.prologue.limits(self.speaker))

    def drain(self) -> None:
        for whole, rows, parts in self.buffer.feed(self.session.output()):
            for row in rows:
                self.said.append(message(whole, row, parts))
                self.prologue.follow(self.speaker, whole, row)
                self.buffer.limits = self.prologue.limits(self.speaker)
        self.heard += self.session.events()
        self.link = self.session.link or self.link

    def act(self, packet: m.AnyMessage) -> None:
        """What the side we stand in for began, we begin as well."""
        match packet:
            case m.Message(ids, parts):
                for channel in ids:
                    self.link.send(channel, parts)
            case m.Consumed(ids, sequence):
                for event in self.heard:
                    if isinstance(event, MessageReceived) and event.channel in ids and event.sequence <= sequence:
                        self.link.consume(event, float(self.connection))
                self.link.inbox.acknowledge()
            case m.Close(ids):
                for channel in ids:
                    self.link.close(channel)
            case m.Shutdown():
                if not self.link.outbox.is_shutting:
                    self.link.shutdown()

    def payloads(self, speaker: Speaker) -> list[tuple[bytes, ...]]:
        return [one.parts for step in self.steps if step.speaker is speaker for one in step.packets if isinstance(one, m.Message)]

    def check(self) -> None:
        assert not any(isinstance(one, LinkLost) for one in self.heard)
        noticed = {one.fault for one in self.heard if isinstance(one, Noticed)}
        assert noticed <= {Fault.RESUME_UNEXPECTED, Fault.CHANNEL_UNKNOWN}
        resumed = [one.resumed for one in self.heard if isinstance(one, Opened)]
        assert resumed == [False] + [True] * (len(resumed) - 1)
        assert self.session.ended is None or self.session.ended.fault is None, self.session.ended
        delivered = [one.parts for one in self.heard if isinstance(one, MessageReceived)]
        assert delivered == self.payloads(self.speaker.other), "exactly once, in order"
        assert [one.parts for one in self.said if isinstance(one, m.Message)] == self.payloads(self.speaker), "nothing was sent twice"
        both_shut = {step.speaker for step in self.steps for one in step.packets if isinstance(one, m.Shutdown)} == set(Speaker)
        assert any(isinstance(one, LinkShutdown) for one in self.heard) == both_shut


class AsListener(Play):
    """We listen: the recorded connector connects, sends, loses the connection, comes back and shuts down."""

    speaker = Speaker.LISTENER

    def make(self) -> Session:
        if not hasattr(self, "registry"):
            self.registry = Registry([self.endpoint], self.reply.epoch, lambda: self.reply.link_id, QUIET)
        return Session(Speaker.LISTENER, QUIET, registry=self.registry)

    def check(self) -> None:
        super().check()
        assert [one for one in self.said if isinstance(one, m.Reply)] == [self.reply] * self.connection


class AsConnector(Play):
    """We connect: the recorded listener acknowledges what we send."""

    speaker = Speaker.CONNECTOR

    def make(self) -> Session:
        if self.link is None:
            self.link = LinkCore(Speaker.CONNECTOR, self.endpoint, QUIET)
        return Session(Speaker.CONNECTOR, QUIET, link=self.link)

    def check(self) -> None:
        super().check()
        recorded = [packet for step in self.steps if step.speaker is Speaker.CONNECTOR for packet in step.packets]
        kinds = (m.Version, m.Request, m.Resume, m.Message, m.Close)
        assert [one for one in self.said if isinstance(one, kinds)] == [one for one in recorded if isinstance(one, kinds)]
        resolved = [one for one in self.heard if isinstance(one, MessagesResolved)]
        assert {one.outcome for one in resolved} == {Outcome.CONSUMED}
        assert sum(one.last - one.first + 1 for one in resolved) == len(self.payloads(Speaker.CONNECTOR))
