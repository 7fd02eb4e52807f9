"""Random conversations that break no rule, as TCP packets; and what a capture may miss of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.capture.build import ACK, PSH, Talk
from tests.lake.wolpertinger_sessions import BROKEN, CASES, answered, asked, line, result
from tests.protocols.relink.pair import C, L, Pair
from tests.protocols.yamp import speech

from wirelake.protocols.emp.messages import Bye, Data, Hello, Ping, Pong, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.state_machine import Speaker

Said = list[tuple[float, int, bytes]]
"""Seconds, side (0: the client), what it says."""
Packets = list[tuple[int, int, bytes]]
"""Microseconds, side, packet."""

PORTS = {"emp": 5040, "relink": 5047, "wolpertinger": 8844, "yamp": 8888}
START = 1_700_000_000_000_000


def emp(dice: random.Random) -> list[Said]:
    """Requests both ways, some never answered, and pings."""
    said: Said = [(0, 0, encode(Hello())), (0.01, 1, encode(Hello()))]
    now, numbers = 0.1, count(1)
    for _ in range(dice.randrange(5, 30)):
        side, number = dice.randrange(2), next(numbers)
        said.append((now, side, encode(Data(dice.randbytes(20), (RequestResponse(True, number),)))))
        if dice.random() < 0.9:
            said.append((now + dice.random() * 5, 1 - side, encode(Data(dice.randbytes(20), (RequestResponse(False, number),)))))
        if dice.random() < 0.3:
            said += [(now + 0.1, side, encode(Ping())), (now + 0.2, 1 - side, encode(Pong()))]
        now += dice.choice((0.3, 5))
    return [[*sorted(said, key=lambda one: one[0]), (now + 100, 0, encode(Bye())), (now + 101, 1, encode(Bye()))]]


def yamp(dice: random.Random) -> list[Said]:
    """Requests both ways, with progress and cancels, some killed; pings and events."""
    said: Said = [(0, 0, speech.handshake()), (0.01, 1, speech.handshake())]
    now = 0.1
    for _ in range(dice.randrange(5, 30)):
        side, uid, progressive = dice.randrange(2), dice.randbytes(16), dice.randrange(2)
        said.append((now, side, speech.request(uid=uid, progressive=progressive)))
        steps = [speech.response(uid, speech.PROGRESS, uid=dice.randbytes(16)) for _ in range(2 * progressive)]
        steps += [speech.response(uid, dice.choice((speech.DONE, speech.ERROR)), uid=dice.randbytes(16))] * (dice.random() < 0.9)
        at = now
        for step in steps:
            at += dice.random()
            said.append((at, 1 - side, step))
        if dice.random() < 0.2:
            said.append((now + 0.5, side, speech.cancel(uid, uid=dice.randbytes(16))))
        if dice.random() < 0.3:
            payload = dice.randbytes(3)
            said += [(now + 0.1, side, speech.ping(payload)), (now + 0.2, 1 - side, speech.pong(payload))]
        if dice.random() < 0.3:
            said.append((now + 0.1, side, speech.event(uid=dice.randbytes(16))))
        now += dice.choice((0.3, 5))
    return [[*sorted(said, key=lambda one: one[0]), (now + 100, 1, speech.close(b"enough"))]]


class Overheard(Pair):
    """A pair whose bytes are noted as they arrive, connection by connection."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.connections: list[Said] = []
        self.numbers = count(1)
        super().__init__(*given, **more)

    def connect(self, *, run: bool = False) -> None:
        self.connections.append([])
        super().connect(run=run)

    def give(self, speaker: Speaker, data: bytes) -> None:
        self.connections[-1].append((next(self.numbers) / 50, int(speaker is C), data))
        super().give(speaker, data)


def relink(dice: random.Random) -> list[Said]:
    """Live links that lose connections, with transactions and closed channels; the last connection is parted from."""
    pair = Overheard(Endpoint("demo", 1, 1, connector_transactions=dice.random() < 0.5), connect=False)
    for _ in range(dice.randrange(1, 4)):
        pair.connect(run=True)
        for _ in range(dice.randrange(3, 30)):
            speaker, channel = dice.choice((C, L)), bytes([dice.randrange(3)])
            link = pair.link(speaker)
            outgoing = link.outbox.channels.get(channel)
            choice = dice.random()
            if choice < 0.6 and not (outgoing is not None and outgoing.closing):
                link.send(channel, (dice.randbytes(5),))
            elif choice < 0.7 and outgoing is not None and outgoing.transactional and outgoing.decided < outgoing.last:
                (link.commit if dice.random() < 0.6 else link.rollback)(channel, outgoing.last)
            elif choice < 0.8 and outgoing is not None and not outgoing.closing:
                link.close(channel)
            else:
                pair.consume_all(speaker)
            if dice.random() < 0.7:
                pair.run()
        pair.run()
        pair.lose()
    return pair.connections


def wolpertinger(dice: random.Random) -> list[Said]:
    """Calls both ways with results and answers; or one of the conversations that a test has by hand."""
    if dice.random() < 0.4:
        clean = dice.choice(sorted({*CASES} - {*BROKEN}))
        steps = [(at, int(who == "server"), what) for at, who, what in CASES[clean] if isinstance(what, bytes)]
        return [steps]
    said: Said = []
    now = 0.1
    for number in range(1, dice.randrange(5, 30)):
        side = dice.randrange(2)
        said += [(now, side, line(asked(number, "Echo", "x"), number)), (now + 0.1, 1 - side, result(number))]
        said += [(now + 0.2, 1 - side, line(answered(number, "x"), 1000 + number)), (now + 0.3, side, result(1000 + number))]
        now += dice.choice((0.05, 1, 70))
    return [sorted(said, key=lambda one: one[0])]


CONVERSATIONS: dict[str, Callable[[random.Random], list[Said]]] = {"emp": emp, "relink": relink, "wolpertinger": wolpertinger, "yamp": yamp}


def packets(protocol: str, dice: random.Random) -> Packets:
    """A conversation of a protocol, from the first SYN to the last FIN of all its connections, in segments of some size."""
    found: Packets = []
    begin, size = START, dice.choice((5, 50, 1400, 1400))
    for number, said in enumerate(CONVERSATIONS[protocol](dice)):
        talk = Talk(("10.0.0.1", 40_000 + number), ("10.0.0.2", PORTS[protocol]), ts=begin)
        sides: list[int] = [0, 1, 0]
        talk.open()
        for seconds, side, data in said:
            talk.ts = max(talk.ts, START + round(seconds * 1_000_000) + 10_000)
            for at in range(0, len(data), size):
                talk.segment(side, ACK | PSH, data[at : at + size])
                talk.ts -= 999
                sides.append(side)
        talk.close()
        sides += [0, 1, 0]
        found += [(ts, side, packet) for side, (ts, packet) in zip(sides, talk.packets, strict=True)]
        begin = talk.ts
    return found


def one_direction(dice: random.Random, every: Packets) -> Packets:
    """Only what one side sent."""
    side = dice.randrange(2)
    return [one for one in every if one[1] == side]


def no_beginning(dice: random.Random, every: Packets) -> Packets:
    """Nothing of the first packets."""
    return every[dice.randrange(len(every)) :]


def no_end(dice: random.Random, every: Packets) -> Packets:
    """Nothing of the last packets."""
    return every[: dice.randint(1, len(every))]


def hole(dice: random.Random, every: Packets) -> Packets:
    """Packets that follow each other are missing."""
    start = dice.randrange(len(every))
    return every[:start] + every[start + dice.choice((1, 3, 20)) :]


def half_hole(dice: random.Random, every: Packets) -> Packets:
    """From somewhere on, or for a while, one side is missing."""
    side, start = dice.randrange(2), dice.randrange(len(every))
    stop = dice.choice((start + 10, start + 50, len(every)))
    return [one for at, one in enumerate(every) if one[1] != side or not start <= at < stop]


def scattered(dice: random.Random, every: Packets) -> Packets:
    """One packet in so many is missing."""
    return [one for one in every if dice.random() > 0.1]


def loose_ends(dice: random.Random, every: Packets) -> Packets:
    """After the handshake of TCP, the first and the last packets are in another order."""
    first, last = every[3:8], every[-5:]
    dice.shuffle(first)
    dice.shuffle(last)
    return [*every[:3], *first, *every[8:-5], *last]


LOSSES = (one_direction, no_beginning, no_end, hole, half_hole, scattered, loose_ends)
