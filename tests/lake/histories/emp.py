"""Random EMP histories: connections that change files, break off, pause, and break every rule now and then."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tests.protocols.emp import speech
from tests.protocols.emp.test_faults import GREETED, HEARD

from wirelake.capture.record.recorder import Connection, Recorder
from wirelake.protocols.emp.faults import Fault

START = 1_700_000_000 * 10**9
CONNECTIONS = 14
MESSAGES = 500
SECOND = 10**9
PAUSES = (0, 0, 0, 1_000, 250_000, SECOND // 50, SECOND // 4, SECOND)
"""Nanoseconds between two messages, most of the time."""
LONG_PAUSES = (5, 6, 10, 11, 31)
"""Seconds: the handshake and a pong are due after 5 and 10."""
BROKEN = [data for fault, data in (HEARD | GREETED).items() if fault is not Fault.INFLATED_OVER_LIMIT]
Side = Literal["client", "server"]
SIDES: tuple[Side, Side] = ("client", "server")


class _Connection:
    """One connection: it goes on in another file under the same id, with or without a second opening."""

    def __init__(self, dice: random.Random, recorders: list[Recorder], lost: Recorder, number: int, is_lost: bool) -> None:
        self.dice = dice
        self.recorders = recorders
        self.words: dict = {
            "role": dice.choice(SIDES),
            "transport": dice.choice(["tcp", "tcp", "tls"]),
            "local": ("127.0.0.1", 20_000 + number),
            "remote": ("127.0.0.1", 5040),
            "connection_id": dice.randbytes(8),
        }
        if self.words["role"] == "server":
            self.words["local"], self.words["remote"] = self.words["remote"], self.words["local"]
        self.connection = (lost if is_lost else dice.choice(recorders)).connection(**self.words)
        self.is_over = False

    def move(self) -> None:
        """Go on in another file."""
        self.connection._recorder = self.dice.choice(self.recorders)

    def reopen(self) -> None:
        self.connection = self.dice.choice(self.recorders).connection(**self.words)

    def say(self, side: Side, data: bytes) -> None:
        _say(self.connection, self.words["role"], side, data)

    def end(self) -> None:
        dice = self.dice
        if dice.random() < 0.5:
            self.connection.finished(dice.choice(SIDES))
        if dice.random() < 0.3:
            self.connection._event(0, event="reset", by=dice.choice(["client", "server", ""]))
        elif dice.random() < 0.8:
            self.connection.closed(dice.choice(["bye", "eof", "timeout"]))
        self.is_over = dice.random() < 0.9


def _say(connection: Connection, role: str, side: Side, data: bytes) -> None:
    (connection.sent if side == role else connection.received)(data)


def _message(dice: random.Random, side: Side, asked: dict[Side, list[int]]) -> bytes:
    """One message of a side: mostly something it may say, sometimes not."""
    other: Side = "server" if side == "client" else "client"
    kind, number = dice.random(), dice.randrange(1, 7)
    if kind < 0.3:
        asked[side].append(number)
        return speech.request(number, b"why", kind=dice.choice([5, 5, 200]))
    if kind < 0.6:
        if asked[other] and dice.random() < 0.8:
            number = asked[other].pop(dice.randrange(len(asked[other])))
        return speech.response(number, b"so", kind=dice.choice([5, 5, 200]))
    if kind < 0.72:
        return speech.ping
    if kind < 0.82:
        return speech.pong
    if kind < 0.87:
        return speech.data(bytes(dice.choice([991, 992, 993, 2000, 12_345, 30_000])))  # EMP-32: from 1000 bytes on it is large
    if kind < 0.89:
        return speech.envelope(dice.choice([speech.PING, speech.PONG]), bytes(dice.choice([1, 992, 5000])))
    if kind < 0.90:
        return speech.hello(dice.choice([1, 1, 2, 255]))
    if kind < 0.905:
        return dice.choice([speech.bye, speech.error(dice.randrange(5), b"no"), speech.error(3, b"\xff")])
    if kind < 0.91:
        blocks = dice.choice([speech.rr(True, 7), speech.block(200), speech.rr(False, 0)])
        return speech.envelope(dice.choice(range(6)), bytes((1, 0, 0, 0)), blocks)
    if kind < 0.94:
        return dice.choice(BROKEN)
    return speech.data(b"{}")


def _say_next(dice: random.Random, one: _Connection, asked: dict[Side, list[int]], wait: Callable[[int], None]) -> None:
    side, chance = dice.choice(SIDES), dice.random()
    if chance < 0.04:  # a pong that is in time, just late, or behind a large message
        one.say(side, speech.ping)
        size = dice.choice([0, 0, 992, 1992, 4992])
        if size:
            one.say(dice.choice(SIDES), speech.data(bytes(size)))
        wait((10 + dice.choice([0, 0, 1, 2, 5])) * SECOND + dice.choice([-1000, 0, 1000]))
        one.say("server" if side == "client" else "client", dice.choice([speech.pong, speech.pong, speech.data()]))
    elif chance < 0.05:
        one.say(side, speech.ping[:-1] + speech.data(bytes(2000)))
    elif chance < 0.06:  # the last bytes of a side
        one.say(side, _message(dice, side, asked)[:-3])
        one.end()
    elif chance < 0.10:  # several messages in one record
        one.say(side, b"".join(_message(dice, side, asked) for _ in range(3)))
    else:
        one.say(side, _message(dice, side, asked))
    if dice.random() < 0.012:
        one.say(dice.choice(SIDES), dice.choice([speech.bye, speech.error(dice.randrange(5), b"no")]))
    if dice.random() < 0.015:
        one.end()
    elif dice.random() < 0.02:
        one.move()
    elif dice.random() < 0.005:
        one.reopen()


def write(folder: Path, seed: int) -> list[Path]:
    """Write a history in two files; another seed is another history."""
    dice, now = random.Random(f"emp {seed}"), START + seed * 10_000 * SECOND

    def wait(nanoseconds: int) -> None:
        nonlocal now
        now += nanoseconds

    paths = [folder / f"emp-{seed}-{part}.pcapng" for part in (1, 2)]
    lost_path = folder / f"emp-{seed}-lost.pcapng"
    recorders = [Recorder(path, protocol="emp", clock=lambda: now, observer="") for path in paths]
    lost = Recorder(lost_path, protocol="emp", clock=lambda: now, observer="")
    live: list[tuple[_Connection, dict[Side, list[int]]]] = []
    opened = 0
    for step in range(MESSAGES):
        wait(dice.choice(PAUSES))
        if dice.random() < 0.008:
            wait(dice.choice(LONG_PAUSES) * SECOND + dice.choice([0, 0, 1000]))
        if len(live) < 4 or (opened < CONNECTIONS and step * CONNECTIONS >= opened * MESSAGES):
            one = _Connection(dice, recorders, lost, opened, is_lost=dice.random() < 0.15)
            live.append((one, {"client": [], "server": []}))
            opened += 1
            if dice.random() < 0.3:  # if its beginning is lost, the handshake is not
                one.move()
            _greet(dice, one, wait)
            one.move()
        one, asked = dice.choice(live)
        _say_next(dice, one, asked, wait)
        live = [(one, asked) for one, asked in live if not one.is_over]
    if seed % 8 == 0:
        live[0][0].say("client", HEARD[Fault.INFLATED_OVER_LIMIT])  # it takes long to make
    for recorder in (*recorders, lost):
        recorder.close()
    lost_path.unlink()
    return paths


def _greet(dice: random.Random, one: _Connection, wait: Callable[[int], None]) -> None:
    """Most connections begin well; some late, twice, in part, or not at all."""
    for side in dice.sample(SIDES, 2):
        if dice.random() < 0.1:
            wait(dice.choice(LONG_PAUSES) * SECOND + dice.choice([-1000, 0, 1000]))
        if dice.random() < 0.93:
            one.say(side, speech.hello(dice.choice([1] * 15 + [2])))
        elif dice.random() < 0.5:
            one.say(side, dice.choice([*GREETED.values(), speech.envelope(speech.HELLO, bytes((1, 0, 0, 0)), speech.rr(True, 1))]))
        elif dice.random() < 0.5:
            one.say(side, speech.bye)
