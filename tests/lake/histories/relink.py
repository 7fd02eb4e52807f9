"""Random links of Relink that break rules: connections that are cut and taken up again, transactions, multicast, reopened channels.

In `write`, a channel gets no more messages after its numbers were violated, until it is closed: what becomes of its messages is then a
matter of taste. `write_wild` sends anything at any time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from tests.protocols.relink.speech import GENERAL, control, message, reply, request

from wirelake.capture.record.recorder import Connection, Recorder, Role

START_NS = 1_700_000_000 * 10**9
EPOCH = 1_700_000_000_000_000
NOTHING = (1 << 32) - 1
CONNECTOR_TRANSACTIONS, LISTENER_TRANSACTIONS, REQUIRE = 1, 2, 4
ACKS = ("received", "consumed", "committed", "uncommitted")
MICROSECONDS = (0, 1, 10, 1000, 20_000, 400_000)

Step = tuple[str, bytes]
"""`client` or `server` and the bytes it sends; `late client`: on the connection before; or `connect`, `close`, `cut`, `wait`, …"""


class Channel(msgspec.Struct):
    """A channel as both of its ends know it; every cursor is the last number it covers."""

    sent: int = -1
    received: int = -1
    consumed: int = -1
    decided: int = -1
    result: int = -1
    is_closing: bool = False
    is_spoilt: bool = False
    """Its numbers were violated: no more messages until it is closed."""
    decisions: list[bool] = []


class Half:
    """The channels of one side, what it sends on them, and what the other side acknowledges."""

    def __init__(self, draw: random.Random, sender: str, size: int, *, transactional: bool) -> None:
        self.draw, self.sender, self.receiver = draw, sender, "server" if sender == "client" else "client"
        self.transactional = transactional
        self.ids = [bytes([97 + number]) * size for number in range(3 if size else 1)]
        self.strange = bytes([122]) * size
        """An id that no message is ever sent on, if ids have a size."""
        self.hasty = bytes([121]) * size
        """An id that messages are sent on before resume."""
        self.channels: dict[bytes, Channel] = {}
        self.is_shut = False

    def pick(self, condition: Callable[[Channel], bool]) -> tuple[bytes, Channel] | None:
        found = [(name, one) for name, one in self.channels.items() if condition(one)]
        return self.draw.choice(found) if found else None

    # What is allowed.

    def step(self) -> Iterator[Step]:
        """One thing that either end does."""
        acts = [self.send, self.send, self.send, self.multicast, self.acknowledge, self.acknowledge, self.receive, self.close]
        if self.transactional:
            acts += [self.decide, self.decide, self.settle, self.settle]
        yield from self.draw.choice(acts)()

    def send(self, name: bytes | None = None) -> Iterator[Step]:
        name = self.draw.choice(self.ids) if name is None else name
        channel = self.channels.get(name)
        if (channel is None and self.is_shut) or (channel is not None and (channel.is_closing or channel.is_spoilt)):
            return
        self.channels.setdefault(name, Channel()).sent += 1
        yield self.sender, message((name,), tuple(bytes(self.draw.randrange(12)) for _ in range(self.draw.randrange(3))))

    def multicast(self) -> Iterator[Step]:
        ids = tuple(self.draw.choices(self.ids, k=self.draw.randrange(2, 4)))
        channels = [self.channels.get(name) for name in ids]
        if any(self.is_shut if one is None else one.is_closing or one.is_spoilt for one in channels):
            return
        for name in ids:
            self.channels.setdefault(name, Channel()).sent += 1
        yield self.sender, message(ids, (b"many",), multicast=True)

    def acknowledge(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.consumed < one.sent and not one.is_spoilt)
        if found is None or self.transactional:
            return
        name, channel = found
        before, channel.consumed = channel.consumed, self.draw.randrange(channel.consumed + 1, channel.sent + 1)
        yield self._ack("consumed", name, channel.consumed, is_next=channel.consumed == before + 1)

    def receive(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.received < one.sent and not one.is_spoilt)
        if found is not None:
            name, channel = found
            channel.received = self.draw.randrange(max(channel.received, channel.consumed, channel.result, -1), channel.sent + 1)
            yield self._ack("received", name, channel.received, is_next=False)

    def decide(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.decided < one.sent and not one.is_closing and not one.is_spoilt)
        if found is None:
            return
        name, channel = found
        last, commits = self.draw.randrange(channel.decided + 1, channel.sent + 1), self.draw.random() < 0.6
        is_next = last == channel.decided + 1 and self.draw.random() < 0.5
        channel.decisions = [*channel.decisions, *[commits] * (last - channel.decided)]
        channel.decided = last
        yield self.sender, control(0 if is_next else 2, 0 if commits else 1, (name,), None if is_next else last)

    def settle(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.result < one.decided and not one.is_spoilt)
        if found is None:
            return
        name, channel = found
        last = self.draw.randrange(channel.result + 1, channel.decided + 1)
        if not channel.decisions[last]:
            return
        is_next = last == channel.result + 1 and self.draw.random() < 0.5
        channel.result = last
        yield self._ack(self.draw.choice(ACKS[2:]), name, last, is_next=is_next)

    def close(self) -> Iterator[Step]:
        name = self.draw.choice(self.ids)
        channel = self.channels.get(name)
        if self.draw.random() < 0.5 or channel is None:
            return
        if not channel.is_closing:
            channel.is_closing = True
            yield self.sender, control(0, 2, (name,))
        elif channel.is_spoilt or self.draw.random() < 0.5:
            if not channel.is_spoilt and not self.transactional and channel.consumed < channel.sent and self.draw.random() < 0.5:
                yield self._ack("consumed", name, channel.sent, is_next=False)
            del self.channels[name]
            yield self.receiver, control(1, 4, (name,))

    def finish(self) -> Iterator[Step]:
        """Close all channels, and shut down."""
        for name, channel in list(self.channels.items()):
            if name or channel.is_closing:
                if not channel.is_closing:
                    yield self.sender, control(0, 2, (name,))
                yield self.receiver, control(1, 4, (name,))
                del self.channels[name]
        self.is_shut = True
        yield self.sender, GENERAL["shutdown"]

    def _ack(self, kind: str, name: bytes, number: int, *, is_next: bool) -> Step:
        is_next = is_next and self.draw.random() < 0.5
        return self.receiver, control(1 if is_next else 3, ACKS.index(kind), (name,), None if is_next else number & NOTHING)

    # After a reconnection.

    def restate(self, *, forgets: bool) -> Iterator[Step]:
        """RELINK-20: the receiver says how far every channel is."""
        for name, channel in self.channels.items():
            done = channel.result if self.transactional else channel.consumed
            channel.received = self.draw.randrange(max(channel.received, channel.consumed, channel.result, -1), channel.sent + 1)
            if channel.is_spoilt:
                channel.received = channel.sent
            if channel.received < 0 or forgets:
                channel.is_spoilt |= forgets
                channel.received = -1
                continue
            yield self._ack("received", name, channel.received, is_next=False)
            yield self._ack("consumed", name, done, is_next=False) if not self.transactional else (self.receiver, GENERAL["nop"])

    def replay(self) -> Iterator[Step]:
        """RELINK-21: the sender sends again what did not arrive, then its decisions, then close."""
        for name, channel in self.channels.items():
            if channel.is_spoilt:
                continue
            for _ in range(channel.received, channel.sent):
                yield self.sender, message((name,), (b"again",))
            for number in range(channel.result + 1, channel.decided + 1):
                yield self.sender, control(2, 0 if channel.decisions[number] else 1, (name,), number)
            if channel.is_closing:
                yield self.sender, control(0, 2, (name,))

    # What is not.

    def breach(self) -> Iterator[Step]:
        """One thing that breaks a rule."""
        acts = [self.too_much, self.too_much, self.backwards, self.unasked, self.unknown, self.closing, self.after_shutdown]
        acts += [self.decided] if self.transactional else [self.off, self.off]
        yield from self.draw.choice(acts)()

    def too_much(self) -> Iterator[Step]:
        found = self.pick(lambda one: not one.is_spoilt)
        if found is not None:
            name, channel = found
            channel.is_spoilt = True
            kind = self.draw.choice(ACKS if self.transactional else ACKS[:2])
            yield self.receiver, control(3, ACKS.index(kind), (name,), channel.sent + self.draw.randrange(1, 4))

    def backwards(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.consumed > 0)
        if found is not None:
            name, channel = found
            channel.is_spoilt = True
            yield self.receiver, control(3, self.draw.randrange(2), (name,), self.draw.randrange(channel.consumed))

    def unasked(self) -> Iterator[Step]:
        found = self.pick(lambda one: not one.is_closing)
        if found is not None:
            found[1].is_spoilt = True
            yield self.receiver, control(1, 4, (found[0],))

    def unknown(self) -> Iterator[Step]:
        if self.strange not in self.ids:
            kind = self.draw.choice(ACKS if self.transactional else ACKS[:2])
            yield self.receiver, control(3, ACKS.index(kind), (self.strange,) * 2, self.draw.randrange(3), multicast=True)

    def closing(self) -> Iterator[Step]:
        found = self.pick(lambda one: one.is_closing)
        if found is not None:
            found[1].is_spoilt = True
            yield self.sender, control(0, 2, (found[0],))

    def after_shutdown(self) -> Iterator[Step]:
        self.is_shut = True
        yield self.sender, GENERAL["shutdown"]
        free = [name for name in self.ids if name not in self.channels]
        if free:
            self.channels[free[0]] = Channel(sent=0)
            yield self.sender, message((free[0],), (b"late",))

    def decided(self) -> Iterator[Step]:
        found = self.pick(lambda one: not one.is_closing)
        if found is not None:
            found[1].is_spoilt = True
            yield self.sender, control(2, self.draw.randrange(2), (found[0],), found[1].sent + self.draw.randrange(1, 3))

    def off(self) -> Iterator[Step]:
        """RELINK-13: on an id of its own, so that no message can be decided by it."""
        if self.strange not in self.ids:
            if self.draw.random() < 0.5:
                yield self.sender, control(0, self.draw.randrange(2), (self.strange,))
            else:
                yield self.receiver, control(1, 2 + self.draw.randrange(2), (self.strange,))


class Link:
    """A link over several connections."""

    def __init__(self, draw: random.Random, number: int) -> None:
        self.draw, self.number = draw, number
        self.sizes = draw.choice(((1, 1), (2, 1), (1, 0), (0, 4)))
        self.flags = draw.randrange(4)
        sides = zip(("client", "server"), self.sizes, (CONNECTOR_TRANSACTIONS, LISTENER_TRANSACTIONS), strict=True)
        self.halves = [Half(draw, sender, size, transactional=bool(self.flags & flag)) for sender, size, flag in sides]

    def steps(self) -> Iterator[Step]:
        """The whole link."""
        draw = self.draw
        for connection in range(draw.randrange(1, 5)):
            yield "connect", b""
            if connection:
                yield from self.hello(self.number)
                yield from self.resume()
            else:
                yield from self.hello(0)
            for _ in range(draw.randrange(5, 45)):
                if draw.random() < 0.06:
                    yield from draw.choice(self.halves).breach()
                elif draw.random() < 0.08:
                    yield from self.general()
                else:
                    yield from draw.choice(self.halves).step()
            yield from draw.choice((self.leave, self.leave, self.end))()
            if all(half.is_shut for half in self.halves):
                return

    def hello(self, old: int) -> Iterator[Step]:
        asked = request(b"demo", self.sizes, self.flags, EPOCH if old else 0, old)
        parts: list[Step] = [("client", bytes(8)), ("server", bytes(8)), ("client", asked), ("server", reply(EPOCH, self.number))]
        if self.draw.random() < 0.1:
            parts[1], parts[2] = parts[2], parts[1]  # RELINK-4: a listener tolerates it
        elif self.draw.random() < 0.02:
            parts[0], parts[1] = parts[1], parts[0]
        if self.draw.random() < 0.08:
            parts.insert(self.draw.randrange(1, 4), ("wait", b""))
        yield from parts

    def resume(self) -> Iterator[Step]:
        draw = self.draw
        for half in self.halves:
            if draw.random() < 0.05 and half.strange not in half.ids:
                yield half.sender, message((half.hasty,), (b"early",))
                yield half.sender, control(0, 2, (half.hasty,))
            yield from half.restate(forgets=draw.random() < 0.05)
            yield half.receiver, GENERAL["resume"]
        if draw.random() < 0.1:
            yield draw.choice(("client", "server")), GENERAL["resume"]
        for half in self.halves:
            yield from half.replay()

    def general(self) -> Iterator[Step]:
        """Packets about no channel, and odd ones."""
        draw = self.draw
        half, who = draw.choice(self.halves), draw.choice(("client", "server"))
        other = "server" if who == "client" else "client"
        odd = [(who, bytes((0, 0, 7, 0, 0, 0, 0, 0))), (half.sender, message((), (b"x",), multicast=True))]
        ping = [(who, GENERAL["ping"]), (other, GENERAL["pong"])]
        yield from draw.choice((ping, ping, ping[1:], [(who, GENERAL["nop"])], odd[:1], odd[1:], [(who, GENERAL["resume"])]))

    def leave(self) -> Iterator[Step]:
        """RELINK-14: the connection is cut, now or inside a packet."""
        draw = self.draw
        if draw.random() < 0.15:
            yield draw.choice(("client", "server")), message((self.halves[0].ids[0],), (bytes(40),))[:20]
        yield draw.choice(("cut", "cut", "reset", "close", "gone")), b""

    def end(self) -> Iterator[Step]:
        """§3.6: both shut down, or one of them."""
        for half in self.halves if self.draw.random() < 0.8 else self.halves[:1]:
            yield from half.finish()
        yield "close", b""


def _alone(draw: random.Random, number: int) -> Iterator[Step]:
    """Connections for themselves: handshakes that fail, and bytes that cannot be read."""
    yield "connect", b""
    hello: list[Step] = [("client", bytes(8)), ("server", bytes(8))]
    given = ("server", reply(EPOCH, number))

    def asked(flags: int = 0, epoch: int = 0, link: int = 0, name: bytes = b"demo") -> Step:
        return "client", request(name, (1, 1), flags, epoch, link)

    opened = [*hello, asked(), given]
    strange = (b"\xa0", b"\x61", b"\xa5", b"\x49", b"\x8d", b"\x15")
    kinds: list[list[Step]] = [
        [*hello, asked(0, EPOCH, 1), ("server", reply(EPOCH, 0))],
        [*hello, asked(REQUIRE, EPOCH, 1), ("server", reply(EPOCH, 0))],
        [*hello, asked(REQUIRE, EPOCH, 1), given],
        [*hello, asked(0, EPOCH, 1), given],
        [*hello, asked(0, 0, 1), given],
        [*hello, asked(0, EPOCH, 1 << 63), given],
        [*hello, asked(), ("server", reply(0, number))],
        [*hello, asked(), ("server", reply(EPOCH, 1 << 63 | number))],
        [*hello, asked(name=b"\xff"), given],
        [hello[0], ("server", b"\x01" + bytes(7)), asked(), given],
        [("client", b"\x02" + bytes(7)), hello[1], asked(), given, ("client", GENERAL["ping"])],
        [*hello, asked(), ("client", GENERAL["ping"]), given],
        [*hello, given, ("server", GENERAL["ping"]), asked(), ("client", GENERAL["ping"])],
        [*hello, ("wait", b"")],
        [*hello, asked(), ("wait", b"")],
        [hello[0], ("wait", b"")],
        [("wait", b"")],
        [*hello, asked(), ("wait", b""), given],
        *([*opened, ("client", one + bytes(7)), ("client", GENERAL["ping"])] for one in strange),
        [*opened, ("client", control(0, 0, (), multicast=True)[:4] + (70_000).to_bytes(4, "little"))],
        [*opened, ("client", message((b"a",), (), long=True, length=2000))],
        [*opened, ("client", message((b"a",), (b"",), large=True, sizes=[1 << 40]))],
        [*opened, ("client", message((b"a",), (b"",), large=True, sizes=[16 << 20] * 5, length=5))],
        [*opened, ("client", message((b"a",), (b"x",), long=True)), ("client", message((b"a",), (b"x",), multicast=True))],
    ]
    yield from draw.choice(kinds)
    yield draw.choice(("close", "cut", "reset", "gone")), b""


def _wild(draw: random.Random, number: int) -> Iterator[Step]:
    """Anything at any time."""
    flags, is_old, is_taken_over = draw.randrange(4), draw.random() < 0.1, False
    for connection in range(draw.randrange(1, 5)):
        yield "connect", b""
        old = number if connection or is_old else 0
        yield from (("client", bytes(8)), ("server", bytes(8)))
        yield "client", request(b"demo", (1, 1), flags, EPOCH if old else 0, old)
        yield "server", reply(EPOCH, number)
        for _ in range(draw.randrange(3, 50)):
            who, data = _anything(draw)
            yield f"late {who}" if is_taken_over and draw.random() < 0.1 else who, data
        is_taken_over = draw.random() < 0.2
        yield "takeover" if is_taken_over else draw.choice(("close", "cut", "reset", "gone")), b""


def _anything(draw: random.Random) -> Step:
    who = draw.choice(("client", "server"))
    ids = (draw.choice((b"a", b"a", b"b", b"c")),) if draw.random() < 0.9 else tuple(draw.choices((b"a", b"b"), k=draw.randrange(4)))
    is_many = len(ids) != 1
    number = draw.choice((None, None, 0, 0, 1, 2, 3, 4, NOTHING))
    choice = draw.random()
    if choice < 0.35:
        return who, message(ids, (b"x",), multicast=is_many)
    if choice < 0.45:
        return who, control(0 if number is None else 2, draw.randrange(2), ids, number, multicast=is_many)
    if choice < 0.8:
        return who, control(1 if number is None else 3, draw.randrange(4), ids, number, multicast=is_many)
    if choice < 0.86:
        return who, control(0, 2, ids, multicast=is_many)
    if choice < 0.92:
        return who, control(1, 4, ids, multicast=is_many)
    return who, GENERAL[draw.choice(("ping", "pong", "resume", "resume", "resume", "shutdown"))]


class _Tape:
    """Records the steps of one link."""

    def __init__(self, recorders: list[Recorder], draw: random.Random, port: int, steps: Iterator[Step]) -> None:
        self._recorders, self._draw, self._port, self.steps = recorders, draw, port, steps
        self._connection: Connection | None = None
        self._role: Role = "client"
        self._old: tuple[Connection, str] | None = None
        """The connection whose link another took over."""

    def play(self) -> int | None:
        """The next step; returns how many microseconds pass, None at the end."""
        who, data = next(self.steps, ("end", b""))
        one = self._connection
        if who == "end":
            return None
        if who == "connect":
            recorder = self._draw.choice(self._recorders)
            ends = (("127.0.0.1", self._port), ("127.0.0.1", 7000))
            self._role = self._draw.choice(("client", "server"))
            local, remote = ends if self._role == "client" else ends[::-1]
            self._port += 1
            name = self._draw.randbytes(8)
            self._connection = recorder.connection(role=self._role, local=local, remote=remote, connection_id=name)
        elif one is not None and who in ("client", "server"):
            (one.sent if who == self._role else one.received)(data)
        elif self._old is not None and who.startswith("late "):
            (self._old[0].sent if who.endswith(self._old[1]) else self._old[0].received)(data)
        elif one is not None and who == "takeover":
            self._old = one, self._role
        elif one is not None and who in ("close", "cut", "reset"):
            if self._draw.random() < 0.3:
                one.finished(self._draw.choice(("client", "server")))
            one.closed({"close": "bye", "cut": "eof", "reset": "reset"}[who])
        return 11_000_000 if who == "wait" else self._draw.choice(MICROSECONDS)


def _record(folder: Path, name: str, draw: random.Random, links: list[Iterator[Step]]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    now = [START_NS]
    paths = [folder / f"{name}-{index}.pcapng" for index in range(2)]
    for path in paths:
        path.unlink(missing_ok=True)
    recorders = [Recorder(path, protocol="relink", clock=lambda: now[0], observer="") for path in paths]
    tapes = [_Tape(recorders, draw, 10_000 + 20 * index, link) for index, link in enumerate(links)]
    while tapes:
        tape = draw.choice(tapes)
        passed = tape.play()
        if passed is None:
            tapes.remove(tape)
        else:
            now[0] += passed * 1000
    for recorder in recorders:
        recorder.close()
    return paths


def links(draw: random.Random, seed: int) -> list[Iterator[Step]]:
    """Links and connections of one history."""
    whole = [Link(draw, 1000 * (seed + 1) + index).steps() for index in range(6)]
    return whole + [_alone(draw, 1000 * (seed + 1) + 500 + index) for index in range(6)]


def wild_links(draw: random.Random, seed: int) -> list[Iterator[Step]]:
    """Links on which anything is sent at any time."""
    return [_wild(draw, 1_000_000 + 1000 * seed + index) for index in range(8)]


def write(folder: Path, seed: int) -> list[Path]:
    """Two recordings of about 400 messages."""
    draw = random.Random(seed)
    return _record(folder, f"relink-{seed}", draw, links(draw, seed))


def write_wild(folder: Path, seed: int) -> list[Path]:
    """Two recordings in which anything is sent at any time."""
    draw = random.Random(seed)
    return _record(folder, f"wild-{seed}", draw, wild_links(draw, seed))
