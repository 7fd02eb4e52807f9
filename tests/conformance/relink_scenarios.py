"""One scenario of relink-scenarios.json, played to a session of ours: acknowledgements, what is replayed after a reconnection, flows."""

from __future__ import annotations

from typing import Any

from tests.conformance.reading import Unmapped, keys, octets
from tests.conformance.relink import EPOCH, LINK_ID, QUIET

from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.conversation import Speaker
from wirelake.protocols.relink.events import ChannelClosed, Event, MessagesResolved, Outcome
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link import Link
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.outgoing import Outgoing
from wirelake.protocols.relink.registry import Registry
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, Stage
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.wire import buffer, encode, message

COMMON = {"name", "note", "source", "ruling", "spec"}


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
        self.link = Link(speaker, self.endpoint, QUIET)
        self.heard: list[Event] = []
        self.connect(m.Request("demo", id_size, id_size, self.endpoint.flags))

    def connect(self, request: m.Request) -> None:
        if self.speaker is Speaker.CONNECTOR:
            self.session = Session(self.speaker, QUIET, link=self.link)
            parts: list[m.Said] = [m.Version(), m.Reply(EPOCH, LINK_ID)]
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

    def reconnect(self) -> None:
        self.session.receive_eof(1.0)
        self.heard += self.session.events()
        self.connect(m.Request("demo", self.id_size, self.id_size, self.endpoint.flags, EPOCH, LINK_ID))

    def hear(self, data: bytes) -> None:
        self.session.receive(data, 2.0)
        self.heard += self.session.events()

    def said(self) -> list[m.Said]:
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
    keys("scenario", scenario, {"kind", "cursor", "outstanding", "sequence", "expect", "newly_acknowledged", "new_cursor"}, COMMON)
    cursor = -1 if scenario["cursor"] == m.LAST_SEQUENCE else scenario["cursor"]
    for said, name in ((m.Received, "received"), (m.Consumed, "consumed")):
        stage = OnStage(speaker, 0)
        stage.link.outbox.channels[b""] = outgoing = Outgoing(b"", first=cursor + 1)
        for _ in range(scenario["outstanding"]):
            outgoing.put((b"x",))
        outgoing.sent = outgoing.last
        stage.hear(encode(said((b"",), scenario["sequence"])))
        if scenario["expect"] == "terminate":
            assert stage.session.ended is not None, name
            assert stage.session.ended.fault is Fault.ACKNOWLEDGED_TOO_MUCH
            assert (scenario["newly_acknowledged"], scenario["new_cursor"]) == (None, None)
        elif scenario["expect"] == "ok":
            assert stage.session.ended is None, name
            after = getattr(outgoing, name)
            assert after - cursor == scenario["newly_acknowledged"]
            assert after & m.LAST_SEQUENCE == scenario["new_cursor"]
            resolved = sum(one.last - one.first + 1 for one in stage.heard if isinstance(one, MessagesResolved))
            assert resolved == (scenario["newly_acknowledged"] if said is m.Consumed else 0)
        else:
            raise Unmapped(f"expect {scenario['expect']!r}")


def resume(scenario: Any, speaker: Speaker) -> None:
    keys("scenario", scenario, {"kind", "channel", "peer_says", "id_size", "replay_sequences"}, COMMON | {"then", "outcome"})
    keys("channel", scenario["channel"], {"consumed", "sent_up_to"}, {"close_sent", "received"})
    state, size = scenario["channel"], scenario["id_size"]
    says = [octets("peer_says", one) for one in scenario["peer_says"]]
    stage = OnStage(speaker, size)
    channel = channel_of(says, size)
    for number in range(state["sent_up_to"] + 1):
        assert stage.link.send(channel, (number.to_bytes(4, "big"),)) == number
    for kind, name in ((m.Received, "received"), (m.Consumed, "consumed")):
        if state.get(name, "none") != "none":
            stage.hear(encode(kind((channel,), state[name])))
    if state.get("close_sent"):
        stage.link.close(channel)
        assert stage.said()[-1] == m.Close((channel,))
    before = len(stage.heard)
    stage.reconnect()
    assert not any(isinstance(one, m.Message | m.Close) for one in stage.said()), "RELINK-21: said before resume"
    for one in says:
        stage.hear(one)
    assert stage.session.ended is None, stage.session.ended
    said = stage.said()
    replayed = [int.from_bytes(one.parts[0], "big") for one in said if isinstance(one, m.Message)]
    assert replayed == scenario["replay_sequences"]
    closes = [one for one in said if isinstance(one, m.Close)]
    if scenario.get("then") not in (None, "close"):
        raise Unmapped(f"then {scenario['then']!r}")
    is_over = str(scenario.get("outcome", "")).startswith("closed")
    if "outcome" in scenario and not is_over:
        raise Unmapped(f"outcome {scenario['outcome']!r}")
    assert bool(closes) == (scenario.get("then") == "close")
    assert not closes or said[-1] == closes[-1], "close comes last"
    assert any(isinstance(one, ChannelClosed) for one in stage.heard) == is_over
    assert (channel in stage.link.outbox.channels) != is_over
    if is_over:
        resolved = {
            number for one in stage.heard[before:] if isinstance(one, MessagesResolved) for number in range(one.first, one.last + 1)
        }
        consumed = -1 if state["consumed"] == "none" else state["consumed"]
        assert resolved == set(range(consumed + 1, state["sent_up_to"] + 1))
        assert {one.outcome for one in stage.heard if isinstance(one, MessagesResolved)} <= {Outcome.CONSUMED}


def channel_of(says: list[bytes], size: int) -> bytes:
    """The channel the peer speaks of, or any."""
    one = buffer(DEFAULT_LIMITS, DEFAULT_LIMITS.for_scan(Stage.PACKETS, size, size))
    for whole, rows, parts in one.feed(b"".join(says)):
        for row in rows:
            ids = getattr(message(whole, row, parts), "ids", ())
            if ids:
                return ids[0]
    return b"chan".ljust(size, b"-")[:size]


def flow(scenario: Any, speaker: Speaker) -> None:
    """What we say, byte for byte, when we do what was done; and what we hear is no fault."""
    keys("scenario", scenario, {"kind", "id_size", "steps"}, COMMON | {"transactions"})
    stage = OnStage(speaker, scenario["id_size"], transactional=scenario.get("transactions", False))
    stage.said()
    for who, text, *_ in scenario["steps"]:
        if who == "state":
            continue
        data = octets("step", text)
        if who == "recv":
            stage.hear(data)
            assert stage.session.ended is None, stage.session.ended
        elif who == "send":
            do(stage, data, scenario["id_size"])
            assert stage.session.output() == data
        else:
            raise Unmapped(f"step {who!r}")


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
