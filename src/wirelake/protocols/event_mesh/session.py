"""One node of Event Mesh: datagrams and time in; datagrams, events and a deadline out.

After every call: drain `output()`, drain `events()`, read `deadline` again. `receive_all` never raises for an error of others, and never
answers a packet that it drops (EMM-30). `publish` may raise LocalProtocolError, for an error of the caller. Time comes in with every call;
random bytes come from `draw`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from wirelake.errors import DecodeError, LocalProtocolError, UsageError
from wirelake.protocols import topics
from wirelake.protocols.event_mesh.events import Delivered, Dropped, Metrics, Peer, PeerChanged, QueueFull, SessionEvent
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import Event, EventType, Field, FieldType, Flag, Hello, Message, Other
from wirelake.protocols.event_mesh.options import DEFAULT_OPTIONS, Address, Options, RelayRule
from wirelake.protocols.event_mesh.packet.builder import Credentials, build
from wirelake.protocols.event_mesh.packet.required_fields import HIDING
from wirelake.protocols.event_mesh.packet.values import binary, event_name, event_type, first, text
from wirelake.protocols.event_mesh.peer_table import PeerTable
from wirelake.protocols.event_mesh.scanner import FLAGS, NODE_ID
from wirelake.protocols.event_mesh.security.encryption import NONCE_SIZE, Sealer, compress, is_broken, unseal
from wirelake.protocols.event_mesh.security.replay import RecentIds, ReplayCache
from wirelake.protocols.event_mesh.security.trust import NODE_ID_SIZE, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected, Scanned, Verified, freshness, node_id_of, signed_at
from wirelake.protocols.event_mesh.send_queue import Outgoing, SendQueue
from wirelake.protocols.event_mesh.state_machine import State
from wirelake.protocols.event_mesh.wire import message as read
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, START
from wirelake.protocols.rates import Buckets

__all__ = ["Now", "Options", "RelayRule", "Session"]

REDRAWS: Final = 100
"""EMM-22: draws of used ids in a row after which `draw` counts as not random."""
URGENT: Final = int(Flag.URGENT)
UNKNOWN_KEYS: Final = frozenset({Fault.UNKNOWN_KEY, Fault.UNTRUSTED_KEY})
"""EMM-29: faults of packets whose keys are unknown here; other nodes may have them."""


class Now(NamedTuple):
    """The time on two clocks: setting the wall clock must not move timers, and must move timestamps."""

    steady: float
    """Seconds that never go back: for timers, rates and signs of life."""
    wall: float
    """Seconds since 1970: for timestamps, freshness and replays."""


class Session:
    """One node."""

    def __init__(
        self,
        credentials: Credentials,
        options: Options = DEFAULT_OPTIONS,
        *,
        draw: Callable[[int], bytes],
        store: TrustStore | None = None,
        peers: Iterable[Address] = (),
        groups: Iterable[Address] = (),
    ) -> None:
        """`draw` gives so many cryptographically random bytes.

        `peers` are sent to from the start, `groups` are multicast addresses.
        """
        if options.limits.minimum_profile and (
            credentials.auth_key_id is None or (credentials.secret is None and credentials.seed is None)
        ):
            raise LocalProtocolError(Fault.PROFILE_FIELD_MISSING, "credentials need a key id, and a secret or a seed")  # EMM-31
        self.credentials = credentials
        self.options = options
        self._draw = draw
        self._named = tuple(dict.fromkeys(peers))
        self._groups = tuple(dict.fromkeys(groups))
        store = TrustStore() if store is None else store
        self._opening_keys = {**store.encryption, **options.opening_keys}
        self._receiver = Receiver(
            store,
            options.policy,
            options.limits,
            ReplayCache(options.replay_capacity, fail_closed=options.replay_fail_closed),
            ReplayCache(options.unproven_capacity, fail_closed=options.replay_fail_closed),
        )
        self._buckets = None if options.rate_limit is None else Buckets(options.rate_limit, options.rate_burst, options.max_sources)
        self._neighbours = PeerTable(options)
        self._ids = RecentIds(capacity=options.max_recent_ids)
        self._outbox = SendQueue(options.max_queued, options.max_urgent)
        self._events: list[SessionEvent] = []
        self._metrics = Metrics()
        self._next_hello: float | None = None
        self._next_heartbeat: float | None = None

    # Output.

    def output(self, most: int = 1 << 30) -> list[Outgoing]:
        """The datagrams to send now, urgent ones first, at most so many; they are gone from here."""
        taken = self._outbox.take(most)
        self._metrics.sent += len(taken)
        return taken

    @property
    def waiting(self) -> int:
        """Datagrams that wait to be sent."""
        return len(self._outbox)

    def capacity(self, urgent: bool, *, empty: bool = False) -> int:
        """The number of datagrams that still fit into the send queue, or into an empty one."""
        if empty:
            return self.options.max_urgent if urgent else self.options.max_queued
        return self._outbox.capacity(urgent)

    def events(self) -> list[SessionEvent]:
        """Take the events since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def deadline(self) -> float | None:
        """The steady time when `tick` wants to be called next, whatever else happens."""
        timers = (self._next_hello, self._next_heartbeat, self._neighbours.deadline)
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def metrics(self) -> Metrics:
        """The counters so far."""
        self._metrics.replays_evicted = self._receiver.replays.evicted + self._receiver.unproven.evicted
        self._metrics.ids_forgotten = self._ids.forgotten
        self._metrics.peers_refused = self._neighbours.refused
        return self._metrics

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The nodes that sent a packet recently."""
        return tuple(self._neighbours)

    @property
    def places(self) -> tuple[Address, ...]:
        """Where events are published to: named peers, groups, and, without groups, nodes that sent a hello."""
        learned = () if self._groups else self._neighbours.places
        return tuple(dict.fromkeys((*self._named, *self._groups, *learned)))

    def export_replays(self) -> bytes:
        """EMM-23: the proven packets that are remembered, so that a restart does not let them in again."""
        return self._receiver.replays.export()

    def restore_replays(self, state: bytes) -> None:
        """Remember what an exported cache did, too; raises UsageError for anything else."""
        self._receiver.replays.restore(state)

    # Commands of the owner.

    def start(self, now: Now) -> None:
        """§3.1: say hello, and begin to say it again and again."""
        self._next_hello = self._next_heartbeat = now.steady
        if self.options.heartbeat_interval is not None:
            self._next_heartbeat += self.options.heartbeat_interval  # the first hello is a sign of life, too
        self.tick(now)

    def tick(self, now: Now) -> None:
        """Do what is due by now."""
        if self._next_hello is not None and now.steady >= self._next_hello:
            self._next_hello = None if self.options.hello_interval is None else now.steady + self.options.hello_interval
            self._say_hello(self.places, now)
        if self._next_heartbeat is not None and now.steady >= self._next_heartbeat:
            interval = self.options.heartbeat_interval
            self._next_heartbeat = None if interval is None else now.steady + interval
            if interval is not None:
                self._say(EventType.HEARTBEAT, (Field(FieldType.TIMESTAMP, int(now.wall).to_bytes(8)),), self.places, now)
        if self._neighbours.deadline is not None and now.steady >= self._neighbours.deadline:
            self._events += self._neighbours.sweep(now.steady)

    def publish(
        self,
        name: str,
        fields: Iterable[Field] = (),
        *,
        now: Now,
        urgent: bool = False,
        compressed: bool = False,
        sealer: Sealer | None = None,
        to: Sequence[Address] | None = None,
        created: float | None = None,
    ) -> int:
        """§3.3: publish an event of this name to all nodes, or `to` some; returns its message id.

        An event that was `created` before, in seconds since 1970, also says when it is signed: now (0x15).
        Compressed or sealed, its name and fields are hidden in a binary value (EMM-13, EMM-14). Raises LocalProtocolError for what cannot
        be content in one packet, and QUEUE_FULL when it cannot wait to be sent: then nothing was sent.
        """
        places = self.places if to is None else to
        if self._outbox.capacity(urgent) < len(places):
            self._metrics.queue_full += len(places)
            raise LocalProtocolError(Fault.QUEUE_FULL, f"{self.waiting} datagrams wait")
        content: Sequence[Field] = (text(name), *fields)
        timestamp = _header_time(now.wall if created is None else created)
        message_id, flags = self._message_id(now), URGENT if urgent else 0
        if sealer is not None:
            sealed = sealer.seal(
                content,
                self._draw(NONCE_SIZE),
                event_type=EventType.EVENT,
                message_id=message_id,
                timestamp=timestamp,
                flags=flags,
                compressed=compressed,
            )
            content, flags = sealed.fields, sealed.flags
        elif compressed:
            packed = compress(content, flags)
            content, flags = packed.fields, packed.flags
        if timestamp != int(now.wall):  # §6.1
            content = (*content, Field(FieldType.TIMESTAMP, int(now.wall).to_bytes(8)))
        data = self._build(EventType.EVENT, content, message_id, timestamp, flags)
        self._metrics.published += 1
        for place in places:
            self._outbox.put(data, place, urgent)
        return message_id

    def receive(self, data: bytes, source: Address, now: Now) -> None:
        """Take one datagram."""
        self.receive_all(((data, source),), now)

    def compile(self) -> None:
        """Compile the scanner of what is received: see `Receiver.compile`."""
        self._receiver.compile()

    def receive_all(self, datagrams: Sequence[tuple[bytes, Address]], now: Now) -> None:
        """Take datagrams, each with the place it came from, in the order they came."""
        self._metrics.received += len(datagrams)
        if self._buckets is not None:  # before anything that costs
            steady, take = now.steady, self._buckets.take
            admitted = [one for one in datagrams if take(one[1][0], steady)]
            self._metrics.rate_limited += len(datagrams) - len(admitted)
            datagrams = admitted
        own = self.credentials.node_id
        for (_, source), scanned in zip(datagrams, self._receiver.scanned([data for data, _ in datagrams]), strict=True):
            block, row, _ = scanned
            at = row[NODE_ID]
            if at >= 0 and block[at : at + NODE_ID_SIZE] == own and not row[FAULT]:
                self._metrics.own += 1
                continue
            judgement = self._receiver.judge(scanned, now.wall, partial(_name, source))
            if isinstance(judgement, Verified):
                self._accept(judgement, scanned, source, now)
            else:
                self._drop(judgement, source)
                if judgement.fault in UNKNOWN_KEYS and any(rule.unverified for rule in self.options.relay):
                    self._relay_unverified(scanned, source, now)

    # Inside: receiving.

    def _drop(self, rejection: Rejected, source: Address) -> None:
        rejected = self._metrics.rejected
        rejected[rejection.fault] = rejected.get(rejection.fault, 0) + 1
        self._events.append(Dropped(rejection.fault, source, rejection.node_id, rejection.offset))

    def _accept(self, verified: Verified, scanned: Scanned, source: Address, now: Now) -> None:
        message, identity = verified.message, verified.identity
        kind, fields, name = type(message), message.fields, None
        is_hidden, unopened = bool(message.flags & HIDING) and kind in (Event, Hello), None
        if is_hidden and self.options.opens_sealed:
            try:
                fields, is_hidden = unseal(message, self._opening_keys, self.options.limits), False
            except DecodeError as reason:
                unopened = cast(Fault, reason.fault)
                if self.options.drops_sealed or is_broken(unopened, message):
                    self._drop(Rejected(unopened, 0, identity.node_id), source)
                    self._relay(verified, scanned, _clear_name(message), source, now)  # EMM-29: relaying does not need the key
                    return
        if kind is Event:
            name = event_name(fields)
        self._metrics.accepted += 1
        self._metrics.sealed += is_hidden
        if identity.node_id is not None:
            changed = self._neighbours.hear(identity.node_id, identity.authenticated, kind, now.steady)
            if kind is Hello:
                changed = self._take_hello(identity.node_id, identity.authenticated, () if is_hidden else fields, source, changed, now)
            if changed is not None:
                self._events.append(changed)
        if kind is Event or (isinstance(message, Other) and message.event_type in self.options.handled_types):
            self._metrics.delivered += 1
            self._events.append(Delivered(name, message, fields, identity, source, verified.time, is_hidden, unopened))
        elif isinstance(message, Other):
            self._metrics.ignored += 1
        if self.options.relay:
            self._relay(verified, scanned, name, source, now)

    def _take_hello(
        self, node_id: bytes, proven: bool, fields: tuple[Field, ...], source: Address, changed: PeerChanged | None, now: Now
    ) -> PeerChanged | None:
        """§3.1: keep the fields of a hello, and answer with a hello if the node may not know this one."""
        self._neighbours.greet(node_id, proven, source, first(fields, FieldType.BINARY) or b"")
        if changed is None:
            return None
        known = self._neighbours.get(node_id)
        if known is None:
            return changed
        if known.state is State.GREETED and known.place is not None:
            self._say_hello((known.place,), now)
        return PeerChanged(known, changed.before)

    # Inside: relaying.

    def _relay(self, verified: Verified, scanned: Scanned, name: str | None, source: Address, now: Now) -> None:
        """EMM-29: relay an accepted packet; replay protection makes that once.

        A packet without a node id is not relayed.
        """
        if verified.identity.node_id is not None:
            self._pass_on(scanned, event_type(verified.message), name, verified.identity.node_id, source, now, verified=True)

    def _relay_unverified(self, scanned: Scanned, source: Address, now: Now) -> None:
        row, node_id = scanned[1], node_id_of(scanned)
        if node_id is not None:
            self._pass_on(scanned, row[KIND], _clear_name(read(*scanned)), node_id, source, now, verified=False)

    def _pass_on(self, scanned: Scanned, kind: int, name: str | None, node_id: bytes, source: Address, now: Now, *, verified: bool) -> None:
        rule = next((rule for rule in self.options.relay if _matches(rule, kind, name, source, verified)), None)
        block, row, _ = scanned
        made = signed_at(block, row)
        if rule is None or freshness(made, now.wall) is not None:  # whatever a cache forgets, no packet goes round for ever
            return
        data = block[row[START] : row[START] + row[LENGTH]]
        if not verified and self._receiver.unproven.admit(b"r" + node_id + data[1:5], made, now.wall) is not None:
            return
        passed = rule.to or (*self._named, *self._neighbours.places)
        places = dict.fromkeys(place for place in passed if place not in (source, self._neighbours.place_of(node_id)))
        if places:
            self._metrics.relayed += 1
            self._send(data, places, bool(row[FLAGS] & URGENT))

    # Inside: sending.

    def _say_hello(self, places: Iterable[Address], now: Now) -> None:
        self._say(EventType.HELLO, (binary(self.options.capabilities),), places, now)

    def _say(self, kind: EventType, fields: Sequence[Field], places: Iterable[Address], now: Now) -> None:
        places = tuple(places)
        if places:
            self._send(self._build(kind, fields, self._message_id(now), int(now.wall), 0), places, urgent=False)

    def _send(self, data: bytes, places: Iterable[Address], urgent: bool) -> None:
        for place in places:
            if not self._outbox.put(data, place, urgent):
                self._metrics.queue_full += 1
                self._events.append(QueueFull(place, urgent))

    def _build(self, kind: EventType, fields: Sequence[Field], message_id: int, timestamp: int, flags: int) -> bytes:
        return build(
            kind,
            fields,
            self.credentials,
            message_id=message_id,
            timestamp=timestamp,
            flags=flags,
            limits=self.options.limits,
        )

    def _message_id(self, now: Now) -> int:
        """EMM-22: random, and not one that was used of late."""
        for _ in range(REDRAWS):
            message_id = int.from_bytes(self._draw(4))
            if self._ids.take(message_id, now.steady):
                return message_id
        raise UsageError(f"`draw` gave {REDRAWS} message ids in a row that were used already: these are no random bytes")


def _name(source: Address) -> bytes:
    return f"{source[0]} {source[1]}".encode()


def _header_time(seconds: float) -> int:
    """EMM-1: a time as a header has it, in whole seconds."""
    if not 0 <= seconds < 1 << 64:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"created={seconds}: give seconds since 1970")
    return int(seconds)


def _clear_name(message: Message) -> str | None:
    """The name of an event that is not hidden; None if there is none."""
    return event_name(message.fields) if isinstance(message, Event) else None


def _matches(rule: RelayRule, kind: int, name: str | None, source: Address, verified: bool) -> bool:
    if kind not in rule.types or (rule.sources and source not in rule.sources) or not (verified or rule.unverified):
        return False
    if kind != EventType.EVENT or rule.pattern == topics.REST:
        return True
    return name is not None and topics.matches(rule.pattern, name)
