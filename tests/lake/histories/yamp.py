"""Random conversations of YAMP that break every rule that history can show, somewhere in 24 seeds.

A seed gives about 500 messages of a dozen connections, tcp and udp, in several files. Connections change file, are cut, reset or left
open. Two of them were not captured from the beginning.

`AsSql` does what the SQL of `lake/gold` does where the analyzer does better on purpose: with it, both give the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.protocols.yamp import speech

from wirelake.capture.record.connection import Connection
from wirelake.capture.record.exported_pdu import SENT
from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.analyzer import Exchange
from wirelake.protocols.yamp.analyzer import KILLED, Analyzer, Seen, WaitingPings
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import ResponseType
from wirelake.protocols.yamp.serializers.registry import STANDARD

SEEDS = range(24)
START_NS = 1_700_000_000 * 10**9
CONNECTIONS = 12
STEPS = 560
"""Steps of a seed: most are messages."""

_PAUSES = (0, 0, 1_000, 10_000, 1_000_000, 20_000_000, 100_000_000)
_LONG_PAUSES = (4, 6, 9, 11, 31)
_URLS = (b"tcp://host:1", b"wss://[::1]:443/path?q", b"http://host:1", b"tcp://host", b"ws://user@host:1", b"", b"tcp://host:1/path")
_REASONS = (
    b"",
    b"enough",
    b"\xff\xfe",
    b"Serializer json not supported. Use xml",
    b"Serializer xml not supported. Use json",
    b"Serializer ",
)
_BODIES = (b"", b"{}", b"[1,2]", b"{", b"\xc1", STANDARD["msgpack"].serialize({"a": [1, None]}))
_URIS = (b"a", b"a", b"sum", b"")
_PAYLOADS = (b"", b"1", b"2")


class Speaker:
    """Both sides of one connection: what they say next depends on nothing but the dice."""

    def __init__(self, dice: random.Random, transport: str, orderly: bool) -> None:
        self.dice = dice
        self.transport = transport
        self.uids = [dice.randbytes(16) for _ in range(4)]
        self.script: list[tuple[bool, bytes]] = []
        """(by the client, bytes) that is sent before anything else."""
        if orderly:
            name = dice.choice((b"json", b"json", b"msgpack"))
            self.script = [(True, speech.handshake(1, name)), (False, speech.handshake(1, name))]
        elif dice.random() < 0.4:
            self.script = [(True, speech.handshake(1, b"xml")), (False, speech.close(b"Serializer xml not supported. Use json"))]

    def next(self) -> tuple[bool, bytes]:
        """(by the client, bytes)."""
        if self.script:
            return self.script.pop(0)
        return self.dice.random() < 0.5, self.dice.choices(_KINDS, _WEIGHTS)[0](self)

    # The messages.

    def handshake(self) -> bytes:
        return speech.handshake(self.dice.choice((1, 1, 1, 2, 40_000)), self.dice.choice((b"json", b"json", b"msgpack", b"xml", b"")))

    def ping(self) -> bytes:
        return speech.ping(self.dice.choice(_PAYLOADS))

    def pong(self) -> bytes:
        return speech.pong(self.dice.choice(_PAYLOADS))

    def close(self) -> bytes:
        return speech.close(self.dice.choice(_REASONS))

    def redirect(self) -> bytes:
        return speech.redirect(self.dice.choice(_URLS))

    def event(self) -> bytes:
        return speech.event(self.dice.choice(_URIS), self.dice.choice(_BODIES), uid=self.dice.randbytes(16))

    def large(self) -> bytes:
        return speech.event(b"large", b'"%s"' % (b"x" * self.dice.choice((900, 1_000, 5_000, 20_000))), uid=self.dice.randbytes(16))

    def request(self) -> bytes:
        progressive = self.dice.choice((0, 0, 1, 1, 1, 7))
        return speech.request(self.dice.choice(_URIS), self.dice.choice(_BODIES), uid=self.dice.choice(self.uids), progressive=progressive)

    def cancel(self) -> bytes:
        kill = self.dice.choice((0, 0, 0, 1, 9))
        return speech.cancel(self.dice.choice(self.uids), uri=self.dice.choice(_URIS), uid=self.dice.randbytes(16), kill=kill)

    def response(self) -> bytes:
        kind = self.dice.choice((0, 0, 0, 1, 2, 2, 2, 3, 3))
        uid = self.dice.choice(self.uids)
        return speech.response(uid, kind, self.dice.choice(_BODIES), uri=self.dice.choice(_URIS), uid=self.dice.randbytes(16))

    def odd_response(self) -> bytes:
        return speech.response(self.dice.choice(self.uids), self.dice.choice((4, 9)), uid=self.dice.randbytes(16))

    def unreadable(self) -> bytes:
        broken = (
            speech.handshake(1, b"\xff"),
            speech.redirect(b"tcp://\xff:1"),
            speech.event(b"\xff\xff", b"1"),
            b"\x63 what",
            speech.event(b"e", b"1", size=2**24 + 1),
        )
        return self.dice.choice(broken)


_CHOICES: dict[Callable[[Speaker], bytes], float] = {
    Speaker.handshake: 3,
    Speaker.ping: 7,
    Speaker.pong: 5,
    Speaker.close: 0.7,
    Speaker.redirect: 0.5,
    Speaker.event: 12,
    Speaker.large: 1,
    Speaker.request: 27,
    Speaker.cancel: 8,
    Speaker.response: 34,
    Speaker.odd_response: 0.4,
    Speaker.unreadable: 0.4,
}
_KINDS, _WEIGHTS = [*_CHOICES], [*_CHOICES.values()]


class Recorded:
    """One connection, and the file that it is recorded in now."""

    def __init__(self, recorder: Recorder, dice: random.Random, port: int, recorders: list[Recorder]) -> None:
        self.dice = dice
        self.recorders = recorders
        self.transport = dice.choice(("tcp", "tcp", "tcp", "udp"))
        self.role = dice.choice(("client", "server"))
        self.name = dice.randbytes(8)
        ends = ("127.0.0.1", port), ("127.0.0.1", 8888)
        self.local, self.remote = ends if self.role == "client" else ends[::-1]
        self.speaker = Speaker(dice, self.transport, orderly=dice.random() < 0.7)
        self.connection = self.begin(recorder)
        self.is_open = True

    def begin(self, recorder: Recorder) -> Connection:
        return recorder.connection(role=self.role, transport=self.transport, local=self.local, remote=self.remote, connection_id=self.name)

    def step(self) -> None:
        """Say something, or end, or go on in another file."""
        chance = self.dice.random()
        if chance < 0.012:
            self.end()
        elif chance < 0.03 and self.recorders:
            self.connection = self.begin(self.dice.choice(self.recorders))
        else:
            by_client, said = self.speaker.next()
            if chance > 0.997 or (self.transport == "udp" and chance > 0.96):
                said = said[: self.dice.randrange(1, len(said))]
            (self.connection.sent if by_client == (self.role == "client") else self.connection.received)(said)

    def end(self) -> None:
        self.is_open = False
        match self.dice.randrange(5):
            case 0:
                self.connection.finished(self.dice.choice(("client", "server")))
            case 1:
                self.connection._event(SENT, event="reset", by=self.dice.choice(("client", "server")))
            case 2:
                self.connection.sent(self.speaker.request()[:9])
            case 3:
                self.connection.received(speech.event()[:9])
                self.connection.finished(self.dice.choice(("client", "server")))
            case _:
                self.connection.sent(speech.close(b"enough"))
        if self.dice.random() < 0.8:
            self.connection.closed(self.dice.choice(("close", "eof")))


def write(folder: Path, seed: int) -> list[Path]:
    """Record one random history; returns its files."""
    dice = random.Random(f"yamp {seed}")
    now = [START_NS + seed * 10**14]

    def recorder(name: str, max_bytes: int | None = None) -> Recorder:
        return Recorder(
            folder / f"yamp-{seed}-{name}.pcapng", protocol="yamp", clock=lambda: now[0], flush_seconds=60, max_bytes=max_bytes, observer=""
        )

    folder.mkdir(parents=True, exist_ok=True)
    whole = [recorder("a"), recorder("b")]
    late = recorder("late", max_bytes=6_000)
    first_port = 10_000 + seed * 100
    open_now = [Recorded(late, dice, first_port + CONNECTIONS + number, []) for number in range(2)]
    ports = iter(range(first_port, first_port + CONNECTIONS))
    for _ in range(STEPS):
        now[0] += dice.choice(_PAUSES) + (dice.random() < 0.02) * dice.choice(_LONG_PAUSES) * 10**9
        if len(open_now) < 6 and (port := next(ports, None)) is not None:
            open_now.append(Recorded(dice.choice(whole), dice, port, whole))
        dice.choice(open_now).step()
        open_now = [one for one in open_now if one.is_open]
        if not open_now:
            break
    for one in (*whole, late):
        one.close()
    lost, *rest = late.paths
    lost.unlink()  # what was said first on two connections was not captured
    return [path for one in whole for path in one.paths] + rest


class AsSql(Analyzer):
    """The analyzer with the defects of the SQL, to hold the two together.

    - YAMP-29: progress is judged by every request that ever had its uid, not by the one that is in flight.
    - YAMP-34: a kill is about every request with its uid, sent at the same time or before, that was not answered before.
    - YAMP-18: a pong that was missed is forgiven if enough is carried later; until the end, nothing is certain.
    """

    silent: dict[bool, dict[bytes, int]] = msgspec.field(default_factory=lambda: {True: {}, False: {}})
    """Side that asked -> uid -> time of its first request without progress."""
    steps: list[Seen] = msgspec.field(default_factory=list)
    kills: dict[bool, dict[str, list[int]]] = msgspec.field(default_factory=lambda: {True: {}, False: {}})
    held: list[Exchange] = msgspec.field(default_factory=list)

    def _asks(self, message: Seen) -> None:
        if not message.progressive:
            self.silent[message.to_server].setdefault(message.uid, message.ts)
        super()._asks(message)

    def _answers(self, message: Seen) -> None:
        before = len(self.findings)
        super()._answers(message)
        if message.response_type == ResponseType.PROGRESS:
            del self.findings[before:]
            self.steps.append(message)

    def _cancels(self, message: Seen) -> None:
        if message.kill:
            self.kills[message.to_server].setdefault(message.request_uid.hex(), []).append(message.ts)
            message = msgspec.structs.replace(message, kill=False)
        super()._cancels(message)

    def _expire(self, pings: WaitingPings, now: int) -> None:
        pass

    def _exchanged(self, exchange: Exchange) -> None:
        self.held.append(exchange)

    def end(self) -> None:
        super().end()
        for step in self.steps:
            if self.silent[not step.to_server].get(step.request_uid, step.ts + 1) <= step.ts:
                self._found(Fault.PROGRESS_UNASKED.name, step, needs_whole=False)
        for exchange in self.held:
            kills = self.kills[exchange.by_client].get(exchange.correlation_id, ())
            last = exchange.answer.ts if exchange.answer else max(kills, default=0)
            if exchange.sent is not None and any(exchange.sent.ts <= kill <= last for kill in kills):
                exchange.outcome = KILLED
            super()._exchanged(exchange)
