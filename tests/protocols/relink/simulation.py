"""Two links over a network that cuts, delays and stalls, and a listener that restarts: all of it from one seed, in simulated time.

The network also aims: it loses what one end says, such as confirmations, and then connection after connection in its first round trip.

Held after every step: the invariants of both links. Held at the end: within one link every message is delivered exactly once and in order
on its channel, every message has exactly one outcome, and both sides agree on it.

`python -m tests.protocols.relink.simulation SEED` prints what happens with one seed; `--seeds N` runs many.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict

import msgspec
from tests.protocols.relink import invariants
from tests.protocols.relink.network import Clock, Connection

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import (
    Ended,
    Ending,
    LinkLost,
    LinkShutdown,
    MessageReceived,
    MessagesResolved,
    Opened,
    Outcome,
    Ponged,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker

C, L = Speaker.CONNECTOR, Speaker.LISTENER
ALLOWED_ENDS = {None, Fault.CLOSED_WITHOUT_PARTING, Fault.CLOSED_INSIDE_MESSAGE, Fault.PONG_TIMEOUT, Fault.HANDSHAKE_TIMEOUT}
ALLOWED_ENDS |= {Fault.PACKET_TIMEOUT, Fault.LINK_LOST}


HANDSHAKE = 4
"""Arrivals before the links speak: both versions, the request and the reply."""


class Sent(msgspec.Struct):
    """A message as its sender sees it."""

    token: int
    life: tuple[Speaker, int]
    """Who sent it, and in which of their links."""
    channel: bytes
    number: int
    decision: bool | None = None
    """Committed, rolled back, or neither."""
    outcome: Outcome | None = None


class Side:
    """One application: sends, decides, closes; consumes what arrives, sooner or later."""

    def __init__(self, world: World, speaker: Speaker, link: LinkCore) -> None:
        self.world, self.speaker, self.link = world, speaker, link
        self.life = (speaker, next(world.lives))
        self.sent: dict[tuple[bytes, int], Sent] = {}
        """Unresolved messages of this life, by channel and number."""
        self.held: list[MessageReceived] = []
        self.is_shutting = False
        self.is_gone = False

    def handle(self, event: object) -> None:
        if isinstance(event, MessageReceived):
            self.world.deliver(self, event)
            if self.world.draw.random() < self.world.eagerness:
                self.finish(event)
            else:
                self.held.append(event)
        elif isinstance(event, MessagesResolved):
            for number in range(event.first, event.last + 1):
                one = self.sent.pop((event.channel, number))
                one.outcome = event.outcome
        elif isinstance(event, LinkLost):
            parsed = {(one.channel, one.sequence): one for one in event.unresolved}
            assert set(parsed) == set(self.sent), "RELINK-32: every unresolved message is told, and no other"
            for key, one in self.sent.items():
                one.outcome = parsed[key].outcome
                assert parsed[key].parts in (None, (one.token.to_bytes(4, "big"),))
            self.renew()
        elif isinstance(event, LinkShutdown):
            assert not self.sent, f"shut down with {len(self.sent)} unresolved"
            self.is_gone = True

    def renew(self) -> None:
        self.sent = {}
        self.life = (self.speaker, next(self.world.lives))  # what is held of the link before may still be consumed: nobody hears of it

    def finish(self, message: MessageReceived) -> None:
        """Consume or settle a message; how a transaction ends is a matter of its token."""
        token = int.from_bytes(message.parts[0], "big")
        self.world.finished[token] = token % 3 != 0
        self.link.settle(message, self.world.clock.now, success=token % 3 != 0)

    def act(self) -> None:
        """One thing an application does."""
        draw = self.world.draw
        size = self.link.endpoint.id_sizes[self.speaker]
        channel = bytes([draw.randrange(self.world.channels)]) * size
        choice = draw.random()
        outgoing = self.link.outbox.channels.get(channel)
        try:
            if choice < 0.45 and not self.is_shutting:
                self._send([channel])
            elif choice < 0.55 and not self.is_shutting:
                self._send([bytes([draw.randrange(self.world.channels)]) * size for _ in range(draw.randrange(1, 4))])
            elif choice < 0.72 and outgoing is not None and outgoing.decided < outgoing.last and outgoing.transactional:
                self._decide(outgoing, draw.random() < 0.6, draw.randrange(outgoing.decided + 1, outgoing.last + 1))
            elif choice < 0.78 and outgoing is not None and not outgoing.closing:
                if outgoing.transactional and outgoing.decided < outgoing.last:  # RELINK-29
                    self._note_decision(outgoing, False, outgoing.last)
                self.link.close(channel)
                self.world.note(f"{self.speaker.name} closes {channel.hex()}")
            elif self.held:
                for message in draw.sample(self.held, draw.randrange(1, len(self.held) + 1)):
                    self.held.remove(message)
                    self.finish(message)
        except LocalProtocolError as reason:
            if reason.fault not in (Fault.WINDOW_FULL, Fault.CHANNEL_CLOSING, Fault.UNDECIDABLE, Fault.SHUTTING_DOWN):
                raise

    def _send(self, ids: list[bytes]) -> None:
        token = next(self.world.tokens)
        parts = (token.to_bytes(4, "big"),)
        numbers = [self.link.send(ids[0], parts)] if len(ids) == 1 else self.link.multicast(ids, parts)
        for channel, number in zip(ids, numbers, strict=True):
            one = Sent(token, self.life, channel, number)
            self.sent[channel, number] = one
            self.world.sent[self.life, channel].append(one)
        self.world.note(f"{self.speaker.name} sends {token} as {[(i.hex(), n) for i, n in zip(ids, numbers, strict=True)]}")

    def _decide(self, outgoing, commit: bool, last: int) -> None:
        self._note_decision(outgoing, commit, last)
        (self.link.commit if commit else self.link.rollback)(outgoing.channel, last)

    def _note_decision(self, outgoing, commit: bool, last: int) -> None:
        self.world.note(f"{self.speaker.name} {'commits' if commit else 'rolls back'} {outgoing.channel.hex()} up to {last}")
        for number in range(outgoing.decided + 1, last + 1):
            self.sent[outgoing.channel, number].decision = commit

    def settle_all(self) -> None:
        """The end: decide and consume everything."""
        for outgoing in list(self.link.outbox.channels.values()):
            if outgoing.transactional and outgoing.decided < outgoing.last and not outgoing.closing:
                self._decide(outgoing, True, outgoing.last)
        for message in self.held:
            self.finish(message)
        self.held.clear()


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.draw = draw = random.Random(seed)
        self.clock = Clock()
        self.trace: list[str] | None = [] if keep_trace else None
        self.tokens, self.lives = iter(range(1, 1 << 30)), iter(range(1 << 30))
        self.channels = draw.choice((1, 2, 4))
        self.eagerness = draw.choice((0.2, 0.8, 1.0))
        self.sent: dict[tuple[tuple[Speaker, int], bytes], list[Sent]] = defaultdict(list)
        self.delivered: dict[tuple[Speaker, int, int, bytes], list[tuple[int, int]]] = defaultdict(list)
        """By receiver, link and channel: tokens and their numbers, in their order."""
        self.finished: dict[int, bool] = {}
        self.options = Options(
            ping_interval=draw.choice((0.5, 2.0, 11.0)),
            pong_timeout=draw.choice((0.5, 3.0)),
            handshake_timeout=2.0,
            packet_timeout=3.0,
            random=draw.random,
            window=draw.choice((2, 8, 64)),
            ack_delay=draw.choice((0.0, 0.02, 0.1)),
            ack_every=draw.choice((1, 3, 100)),
            barrier_delay=draw.choice((0.01, 0.1, 1.0)),
            max_result_runs=draw.choice((2, 8, 4096)),
            max_tombstones=draw.choice((1, 3, 65_536)),
            require_old_link=draw.random() < 0.2,
        )
        self.endpoint = Endpoint("demo", draw.choice((0, 1, 2, 7)), draw.choice((0, 1, 4)), draw.random() < 0.5, draw.random() < 0.5)
        self.epoch = 1_700_000_000_000_000
        self.connections: list[Connection] = []
        self.sides: dict[LinkCore, Side] = {}
        self.connector = LinkCore(C, self.endpoint, self.options)
        self.sides[self.connector] = Side(self, C, self.connector)
        self.is_healed = False
        self.reconnect_planned = False
        self.deaths = 0
        """How many of the next connections die in their first round trip."""
        self.restart(first=True)
        self.connect()

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.clock.now:8.3f}  {text}")

    # The machinery.

    def restart(self, *, first: bool = False) -> None:
        """The listener's process ends, and another begins: it knows nothing of the links before."""
        if not first:
            self.note("the listener restarts")
            for side in list(self.sides.values()):
                if side.speaker is L:
                    side.is_gone = True
                    del self.sides[side.link]
            for connection in self.connections:
                connection.cut()
                connection.ends[1].bye("restart")
        self.epoch += 1_000_000
        ids = random.Random(self.epoch)
        self.registry = Registry([self.endpoint], self.epoch, lambda: ids.getrandbits(63), self.options)

    def connect(self) -> None:
        self.reconnect_planned = False
        if self.connector.is_over:
            return
        self.connections = [one for one in self.connections if not all(end.ended for end in one.ends)]
        ends = Session(C, self.options, link=self.connector), Session(L, self.options, registry=self.registry)
        self.note("the connector connects")
        self.connections.append(Connection(self.clock, self.draw, *ends, self.settle))
        if self.deaths and not self.is_healed:
            self.deaths -= 1
            self.connections[-1].arrivals_left = self.draw.randrange(HANDSHAKE, HANDSHAKE + 4)

    def settle(self, session: Session) -> None:
        """What a session tells goes to the application of its link."""
        events = session.events()
        link = session.link
        for event in events:
            if not isinstance(event, Ponged):
                self.note(f"{session.speaker.name}: {event}")
            side = self.side_of(link)
            if isinstance(event, Ended):
                self.ended(session, event)
            elif side is not None and not isinstance(event, Opened):
                side.handle(event)
        if link is not None and session.events():
            raise AssertionError("handling events made events")
        if link is not None:
            invariants.check(link)

    def side_of(self, link: LinkCore | None) -> Side | None:
        if link is None:
            return None
        if link not in self.sides and link in self.registry.links.values():
            self.sides[link] = Side(self, L, link)
        return self.sides.get(link)

    def ended(self, session: Session, event: Ended) -> None:
        assert event.fault in ALLOWED_ENDS, f"{session.speaker.name} ended with {event.fault!r}: {event.detail}"
        if event.how is Ending.CLOSED and not event.here and session.link is not None:
            session.link.refuse()
        if session.speaker is C and not self.connector.is_over and not self.reconnect_planned:
            self.reconnect_planned = True
            self.clock.after(0.01 if self.is_healed else self.draw.choice((0.0, 0.01, 0.3, 2.0)), self.connect)

    # The story.

    def deliver(self, side: Side, event: MessageReceived) -> None:
        token = int.from_bytes(event.parts[0], "big")
        self.delivered[side.speaker, side.link.epoch, side.link.id, event.channel].append((token, event.sequence))

    def step(self) -> None:
        choice = self.draw.random()
        if choice < 0.06:
            self.note("cut")
            for connection in self.connections:
                connection.cut()
        elif choice < 0.068:
            self.restart()
        elif choice < 0.1 and self.connections:
            for pipe in self.draw.choice(self.connections).pipes:
                pipe.latency = self.draw.choice((0.0, 0.02, 0.4, 5.0))
        elif choice < 0.12:
            session = self.draw.choice([end for one in self.connections for end in one.ends] or [None])
            if session is not None and session.ended is None and session.link is not None and session.link.owner is session:
                session.ping(self.clock.now)
        elif choice < 0.16 and self.connections:
            self.deaths = self.draw.randrange(7)
            speaker = self.draw.choice((C, L))
            self.note(f"mutes the {speaker.name.lower()}, and {self.deaths} connections will die early")
            self.connections[-1].mute(speaker)
        else:
            side = self.draw.choice(list(self.sides.values()))
            if not side.is_gone:
                for _ in range(self.draw.randrange(1, 6)):
                    side.act()
        self.pump()
        self.clock.run(self.clock.now + self.draw.choice((0.0, 0.001, 0.02, 0.2, 2.0)))

    def pump(self) -> None:
        for connection in list(self.connections):
            connection.pump()

    def heal(self) -> None:
        """No more faults: everything that can be resolved is."""
        self.note("healed")
        self.is_healed = True
        for connection in self.connections:
            for pipe in connection.pipes:
                pipe.latency = min(pipe.latency, 0.02)
        shuts = self.draw.random() < 0.5
        self.eagerness = 1.0
        for _ in range(12):
            for side in list(self.sides.values()):
                if not side.is_gone:
                    side.settle_all()
            self.pump()
            self.clock.run(self.clock.now + 5.0)
        if shuts:
            for side in list(self.sides.values()):
                if not side.is_gone and side.link.owner is not None:
                    side.is_shutting = True
                    side.link.shutdown()
            self.pump()
            self.clock.run(self.clock.now + 60.0)
            if not self.connector.options.require_old_link:
                assert self.connector.is_over, "shutdown does not end"

    def run(self) -> None:
        """The whole story; raises AssertionError if something does not hold."""
        for _ in range(self.draw.randrange(20, 90)):
            self.step()
        self.heal()
        self.judge()

    # The judgement.

    def judge(self) -> None:
        self.judge_order()
        current = {side.life for side in self.sides.values() if side.link.owner is not None or side.link.is_over}
        for (life, channel), messages in self.sent.items():
            transactional = self.endpoint.transactional(life[0])
            for one in messages:
                self.judge_outcome(one, is_current=life in current, transactional=transactional)
            assert channel is not None

    def judge_order(self) -> None:
        """RELINK-32: within a link, exactly once and in order."""
        lives = {one.token: life for (life, _), messages in self.sent.items() for one in messages}
        times: Counter[tuple[int, bytes, int]] = Counter()
        for (receiver, _, _, channel), tokens in self.delivered.items():
            (life,) = {lives[token] for token, _ in tokens}  # messages of two links in one would be two
            assert life[0] is receiver.other
            sent = self.sent[life, channel]
            expected = [(one.token, one.number) for one in sent if not self.endpoint.transactional(life[0]) or one.decision]
            assert tokens == expected[: len(tokens)], f"delivered {tokens} of {expected}"
            times.update((token, channel, number) for token, number in tokens)
        assert max(times.values(), default=1) == 1, f"delivered twice: {times.most_common(3)}"

    def judge_outcome(self, one: Sent, *, is_current: bool, transactional: bool) -> None:
        delivered = any(
            (one.token, one.number) in tokens
            for (receiver, _, _, channel), tokens in self.delivered.items()
            if receiver is one.life[0].other and channel == one.channel
        )
        if is_current:
            assert one.outcome is not None, f"{one} was never resolved"
            if not transactional:
                assert one.outcome is Outcome.CONSUMED
            assert one.outcome is not Outcome.UNKNOWN, f"{one} within a link"
        match one.outcome:
            case Outcome.CONSUMED:
                assert delivered
                assert one.token in self.finished
            case Outcome.COMMITTED | Outcome.UNCOMMITTED:
                assert one.decision is True
                assert delivered
                assert self.finished[one.token] == (one.outcome is Outcome.COMMITTED), f"{one} went differently on both sides"
            case Outcome.ROLLED_BACK:
                assert one.decision is False
                assert not delivered
            case Outcome.FAILED:
                assert not delivered, f"{one} failed, and was delivered"
            case None:  # its sender's process ended, or it is of a link that the other side has lost and this one not noticed
                assert one.life[0] is L


def play(seed: int) -> None:
    """One seed; a failure says what happened, and how to see it again."""
    world = World(seed)
    try:
        world.run()
    except Exception:
        again = World(seed, keep_trace=True)
        try:
            again.run()
        except Exception as same:
            reason = same
        trace = "\n".join(again.trace or [])
        raise AssertionError(f"seed {seed}: {reason!r}\n{trace}\nseed {seed}: {reason!r}\nagain: {COMMAND} {seed}") from reason


COMMAND = "python -m tests.protocols.relink.simulation"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("seed", type=int, nargs="?", default=0, help="the first seed")
    options.add_argument("--seeds", type=int, default=1, help="how many to run; one prints its story")
    chosen = options.parse_args()
    if chosen.seeds == 1:
        world = World(chosen.seed, keep_trace=True)
        try:
            world.run()
        finally:
            print("\n".join(world.trace or []))
        return
    began = time.monotonic()
    for number in range(chosen.seeds):
        play(chosen.seed + number)
        if number % 1000 == 999:
            print(f"{number + 1} seeds, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"{chosen.seeds} seeds from {chosen.seed} on: all hold, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
