"""One scenario of relink-scenarios.json, played to a session of ours: acknowledgements, what is replayed after a reconnection, flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.conformance.reading import LABELS, Unmapped, keys, number, octets, same
from tests.conformance.relink import EPOCH, LINK_ID, QUIET
from tests.conformance.relink_states import check, cursor, is_waiting

from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import ChannelClosed, LinkLost, MessagesResolved, Outcome, SessionEvent
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, Stage
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import buffer, encode, message


def run(scenario: Any) -> None:
    """Hold one scenario, with our side as connector and as listener."""
    play = {"cumulative_ack": acknowledge, "resume": resume, "flow": flow}.get(scenario.get("kind") if isinstance(scenario, dict) else None)
    if play is None:
        raise Unmapped(f"kind of {scenario!r}")
    for speaker in Speaker:
        play(scenario, speaker)


class OnStage:
    """A session of ours, and the peer's part said by hand."""

    def __init__(self, speaker: Speaker, id_size: int, *, transactional: bool = False) -> None:
        self.speaker, self.id_size = speaker, id_size
        self.endpoint = Endpoint("demo", id_size, id_size, transactional, transactional)
        self.registry = Registry([self.endpoint], EPOCH, lambda: LINK_ID, QUIET)
        self.link = LinkCore(speaker, self.endpoint, QUIET)
        self.heard: list[SessionEvent] = []
        self.connect(m.Request("demo", id_size, id_size, self.endpoint.flags))

    def connect(self, request: m.Request) -> None:
        if self.speaker is Speaker.CONNECTOR:
            self.session = Session(self.speaker, QUIET, link=self.link)
            parts: list[m.AnyMessage] = [m.Version(), m.Reply(EPOCH, LINK_ID)]
        else:
            self.session = Session(self.speaker, QUIET, registry=self.registry)
            parts = [m.Version(), request]
        self.session.start(0.0)
        self.session.output()
        for part in parts:
            self.handshake = self.session.output()
            self.session.receive(encode(part), 0.0)
        assert self.session.ended is None, self.session.ended
        self.link = self.session.link

    def reconnect(self, waiting: Sequence[tuple[bytes, tuple[bytes, ...]]] = ()) -> None:
        """Lose the connection, take messages meanwhile, and connect again."""
        self.session.receive_eof(1.0)
        self.drain()
        for channel, parts in waiting:
            self.link.send(channel, parts)
        self.connect(m.Request("demo", self.id_size, self.id_size, self.endpoint.flags, EPOCH, LINK_ID))

    def hear(self, data: bytes) -> None:
        self.session.receive(data, 2.0)
        self.drain()

    def drain(self) -> None:
        self.heard += self.session.events()

    def said(self) -> list[m.AnyMessage]:
        """What we said since the last call, but for the handshake."""
        data = self.session.output()
        if self.speaker is Speaker.LISTENER and data[:16] == encode(m.Reply(EPOCH, LINK_ID)):
            data = data[16:]
        if self.speaker is Speaker.CONNECTOR and b"demo" in data[:8]:
            data = data[8 + 16 :]
        one = buffer(DEFAULT_LIMITS, DEFAULT_LIMITS.for_scan(Stage.PACKETS, self.id_size, self.id_size))
        found = [message(whole, row, parts) for whole, rows, parts in one.feed(data) for row in rows]
        assert one.rest == b""
        return found


def acknowledge(scenario: Any, speaker: Speaker) -> None:
    required = {"kind", "cursor", "outstanding", "sequence", "expect", "newly_acknowledged", "new_cursor"}
    keys("scenario", scenario, required, LABELS | {"pending"})
    before = cursor(scenario["cursor"])
    for said, name in ((m.Received, "received"), (m.Consumed, "consumed")):
        stage = OnStage(speaker, 0)
        stage.link.outbox.channels[b""] = outgoing = OutgoingChannel(b"", first=before + 1)
        for _ in range(scenario["outstanding"]):
            outgoing.put((b"x",))
        outgoing.sent = outgoing.last
        stage.hear(encode(said((b"",), number("sequence", scenario["sequence"]))))
        if scenario["expect"] == "terminate":
            assert stage.session.ended is not None, name
            assert stage.session.ended.fault is Fault.ACKNOWLEDGED_TOO_MUCH
            assert (scenario["newly_acknowledged"], scenario["new_cursor"]) == (None, None)
        elif scenario["expect"] == "ok":
            assert stage.session.ended is None, name
            after = getattr(outgoing, name)
            assert same([after - before, after & m.LAST_SEQUENCE], [scenario["newly_acknowledged"], scenario["new_cursor"]])
            resolved = sum(one.last - one.first + 1 for one in stage.heard if isinstance(one, MessagesResolved))
            assert resolved == (after - before if said is m.Consumed else 0)
        else:
            raise Unmapped(f"expect {scenario['expect']!r}")
        if "pending" in scenario and said is m.Consumed:
            assert is_waiting(outgoing, scenario["pending"]), "pending"


def resume(scenario: Any, speaker: Speaker) -> None:
    """RELINK-21: after a reconnection exactly these messages are sent again; then the channel is closed, or what else is said of it."""
    keys("scenario", scenario, {"kind", "channel", "peer_says", "id_size"}, LABELS | {"replay_sequences", "then", "outcome", "pending"})
    keys("channel", scenario["channel"], {"consumed", "sent_up_to"}, {"close_sent", "received", "pending"})
    if "replay_sequences" not in scenario and "outcome" not in scenario:
        raise Unmapped("neither replay_sequences nor an outcome")
    state, says = scenario["channel"], [octets("peer_says", one) for one in scenario["peer_says"]]
    channel = channel_of(says, scenario["id_size"])
    stage = begun(scenario, speaker, channel)
    before = len(stage.heard)
    stage.reconnect(waiting=[(channel, numbered(state, index)) for index in range(1, 1 + number("pending", state.get("pending", 0)))])
    assert not any(isinstance(one, m.Message | m.Close) for one in stage.said()), "RELINK-21: said before resume"
    for one in says:
        stage.hear(one)
    said = stage.said()
    replayed = [int.from_bytes(one.parts[0], "big") for one in said if isinstance(one, m.Message)]
    given = scenario.get("replay_sequences")
    if given is None and "replay_sequences" in scenario and stage.session.ended is None:
        raise Unmapped("replay_sequences is null, and the connection goes on")
    assert same(replayed, [] if given is None else sequences(given))
    if scenario.get("then") not in (None, "close"):
        raise Unmapped(f"then {scenario['then']!r}")
    closes = [one for one in said if isinstance(one, m.Close)]
    assert bool(closes) == (scenario.get("then") == "close")
    assert not closes or said[-1] == closes[-1], "close comes last"
    check_outcome(stage, channel, scenario, before)
    if "pending" in scenario:
        assert is_waiting(stage.link.outbox.channels.get(channel), scenario["pending"]), "pending"


def begun(scenario: Any, speaker: Speaker, channel: bytes) -> OnStage:
    """A link on which this channel has come so far: its messages carry their own numbers."""
    state, stage = scenario["channel"], OnStage(speaker, scenario["id_size"])
    consumed, last = cursor(state["consumed"]), cursor(state["sent_up_to"])
    first = 0
    if last < consumed:  # the numbers have wrapped (RELINK-15)
        last += m.LAST_SEQUENCE + 1
        first = consumed + 1
        stage.link.outbox.channels[channel] = OutgoingChannel(channel, first=first)
    for index in range(first, last + 1):
        assert stage.link.send(channel, ((index & m.LAST_SEQUENCE).to_bytes(4, "big"),)) == index
    for kind, name in ((m.Received, "received"), (m.Consumed, "consumed")):
        if name in state and cursor(state[name]) != first - 1:
            stage.hear(encode(kind((channel,), cursor(state[name]))))
    if state.get("close_sent"):
        stage.link.close(channel)
        assert stage.said()[-1] == m.Close((channel,))
    return stage


def numbered(state: Any, index: int) -> tuple[bytes]:
    """The payload of a message so many after the last one sent."""
    return (((cursor(state["sent_up_to"]) + index) & m.LAST_SEQUENCE).to_bytes(4, "big"),)


def sequences(given: Any) -> list[int]:
    """Sequence numbers as a list, or as ranges in a text: `4..5`, `4-5`, `4, 5`; `none` is no number."""
    if given == "none":
        return []
    if isinstance(given, list):
        return [number("replay_sequences", one) for one in given]
    found = []
    for piece in str(given).split(","):
        ends = re.fullmatch(r" *([0-9]+)(?: *(?:\.\.|-|to) *([0-9]+))? *", piece)
        if ends is None:
            raise Unmapped(f"replay_sequences {given!r}")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found


def check_outcome(stage: OnStage, channel: bytes, scenario: Any, before: int) -> None:
    """Every part of the outcome; without one, the channel goes on."""
    parts = {part.strip() for part in re.split(r"[,;:()]| and ", str(scenario.get("outcome", "")).lower())} - {""}
    unknown = parts - {"closed", "all consumed", "link lost", "lost", "inconsistent", "terminate", "terminated"}
    if unknown or (not parts and "outcome" in scenario):
        raise Unmapped(f"outcome {scenario['outcome']!r}")
    is_lost = bool(parts & {"link lost", "lost", "inconsistent"})
    is_ended = is_lost or bool(parts & {"terminate", "terminated"})
    assert (stage.session.ended is not None) == is_ended, stage.session.ended
    assert any(isinstance(one, LinkLost) for one in stage.heard) == is_lost
    is_over = "closed" in parts
    assert any(isinstance(one, ChannelClosed) for one in stage.heard) == is_over
    if not is_ended:
        assert (channel in stage.link.outbox.channels) != is_over
    if is_over or "all consumed" in parts:
        resolved = [one for one in stage.heard[before:] if isinstance(one, MessagesResolved)]
        numbers = {index & m.LAST_SEQUENCE for one in resolved for index in range(one.first, one.last + 1)}
        state = scenario["channel"]
        consumed, last = cursor(state["consumed"]), cursor(state["sent_up_to"])
        assert numbers == {(consumed + 1 + index) & m.LAST_SEQUENCE for index in range((last - consumed) & m.LAST_SEQUENCE)}
        assert {one.outcome for one in stage.heard if isinstance(one, MessagesResolved)} <= {Outcome.CONSUMED}


def channel_of(says: list[bytes], size: int, other: bytes | None = None) -> bytes:
    """The channel somebody speaks of, or another."""
    one = buffer(DEFAULT_LIMITS, DEFAULT_LIMITS.for_scan(Stage.PACKETS, size, size))
    for whole, rows, parts in one.feed(b"".join(says)):
        for row in rows:
            ids = getattr(message(whole, row, parts), "ids", ())
            if ids:
                return ids[0]
    return b"chan".ljust(size, b"-")[:size] if other is None else other


SAID = ("send", "lost", "send_lost")
"""Words for what we say. What is lost on its way changes nothing here: the peer's part is said by hand."""


def flow(scenario: Any, speaker: Speaker) -> None:
    """What we say, byte for byte, when we do what was done; what we hear is no fault; and states are as claimed."""
    keys("scenario", scenario, {"kind", "id_size", "steps"}, LABELS | {"transactions", "pending"})
    size = scenario["id_size"]
    stage = OnStage(speaker, size, transactional=scenario.get("transactions", False))
    stage.said()
    channel = bytes(size)
    for step in scenario["steps"]:
        if not isinstance(step, list) or not 2 <= len(step) <= 3:
            raise Unmapped(f"step {step!r}")
        if step[0] == "state":
            check_state(stage, channel, size, step)
            continue
        data = octets("step", step[1])
        channel = channel_of([data], size, channel)
        if step[0] == "recv":
            stage.hear(data)
            assert stage.session.ended is None, stage.session.ended
        elif step[0] in SAID:
            do(stage, data, size)
            assert stage.session.output() == data
        else:
            raise Unmapped(f"step {step[0]!r}")
    if "pending" in scenario:
        assert is_waiting(stage.link.outbox.channels.get(channel), scenario["pending"]), "pending"


def check_state(stage: OnStage, channel: bytes, size: int, step: list[Any]) -> None:
    """A claim about a channel: the one whose id the step has as hex, or else the one spoken of last.

    The claim is the explanation, or stands in place of the hex: then the explanation is a label.
    """
    stage.drain()
    claim = step[1]
    if claim in ("", None):
        check(stage, channel, step[2] if len(step) == 3 else None)
    elif isinstance(claim, str) and re.fullmatch(r"[0-9a-f]+", claim) and len(claim) == 2 * size:
        check(stage, bytes.fromhex(claim), step[2] if len(step) == 3 else None)
    else:
        check(stage, channel, claim)


def do(stage: OnStage, data: bytes, size: int) -> None:
    """Whatever makes us say this."""
    one = buffer(DEFAULT_LIMITS, DEFAULT_LIMITS.for_scan(Stage.PACKETS, size, size))
    ((whole, rows, parts),) = one.feed(data)
    for row in rows:
        said = message(whole, row, parts)
        match said:
            case m.Message(ids, payload):
                stage.link.send(ids[0], payload) if len(ids) == 1 else stage.link.multicast(ids, payload)
            case m.Commit(ids, sequence) | m.Rollback(ids, sequence):
                act = stage.link.commit if isinstance(said, m.Commit) else stage.link.rollback
                for channel in ids:
                    if channel not in stage.link.outbox.channels:  # a flow that begins with a decision: its messages came before
                        for _ in range(1 + (sequence or 0)):
                            stage.link.send(channel, (b"",))
                        stage.session.output()
                    decided = stage.link.outbox.channels[channel].decided
                    act(channel, decided + (1 if sequence is None else (sequence - decided) & m.LAST_SEQUENCE))
            case m.Close(ids):
                for channel in ids:
                    stage.link.close(channel)
            case m.Shutdown():
                stage.link.shutdown()
            case m.Ping():
                stage.session.ping(2.0)
            case _:
                raise Unmapped(f"nothing makes us say {said!r}")
