"""Campaigns: inputs by number; the same seed and number make the same input on every machine."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tests.fuzz import bombs, hostile, seeds, targets
from tests.fuzz.cases import Case, corpus, save
from tests.fuzz.mutating import mutate
from tests.fuzz.worker import Verdict, Worker

from wirelake import protocols
from wirelake.protocols.kernel import use_compiled

TARGETS = ("captures", "recordings", "sessions", "serializers", "decode", "peers")
"""What `--only` may name."""


def _protocol(dice: random.Random) -> str:
    return dice.choice(protocols.names())


def _mutated(dice: random.Random, protocol: str, talk: list[seeds.Turn]) -> list[seeds.Turn]:
    """A conversation with one or two turns changed, so that the mutation is inside messages and all around it is whole."""
    talk = list(talk)
    for _ in range(dice.choice([0, 1, 1, 2])):
        at = dice.randrange(len(talk))
        talk[at] = (talk[at][0], mutate(dice, talk[at][1], lambda: dice.choice(seeds.talk_of(dice, protocol))[1]))
    return talk


def _capture(dice: random.Random) -> tuple[str, bytes]:
    protocol = _protocol(dice)
    made = [
        one
        for _ in range(dice.choice([1, 1, 3]))
        for one in seeds.packets(dice, protocol, _mutated(dice, protocol, seeds.talk_of(dice, protocol)))
    ]
    data = seeds.capture(dice, made)
    return "", data if dice.random() < 0.5 else mutate(dice, data, lambda: data)


def _recording(dice: random.Random) -> tuple[str, bytes]:
    protocol = _protocol(dice)
    turns = [_mutated(dice, protocol, seeds.talk_of(dice, protocol)) for _ in range(dice.choice([1, 2, 5]))]
    data = seeds.recording(protocol, turns, transport=dice.choice(["tcp", "tcp", "udp"]), each=dice.random() < 0.5)
    return "", data if dice.random() < 0.5 else mutate(dice, data, lambda: data)


def _session(dice: random.Random) -> tuple[str, bytes]:
    protocol, speaker = _protocol(dice), dice.choice(["client", "server"])
    hears = "server" if speaker == "client" else "client"
    stream = seeds.stream_of(dice, protocol, hears)
    return f"{protocol} {speaker}", mutate(dice, stream, lambda: seeds.stream_of(dice, protocol, hears))


def _body(dice: random.Random) -> tuple[str, bytes]:
    name = dice.choice(list(targets.serializers()))
    made = bombs.BODIES[name]

    def one() -> bytes:
        if dice.random() < 0.3:
            return dice.choice(list(made.values()))()[: dice.choice([50, 500, 5_000])]
        value = {"a": [1, -1.5, None, "x" * dice.choice([0, 30, 300]), {"b": [True, 2**40]}], "c": dice.choice(["", "é", "\0"])}
        return targets.serializers()[name].serialize({"r": {"a": "1", "b": ["x", "y"]}} if name == "xml" else value)

    return name, mutate(dice, one(), one)


def _decode(dice: random.Random) -> tuple[str, bytes]:
    protocol = _protocol(dice)
    form = dice.choice(["json", "fields", "text"])
    match dice.randrange(4):
        case 0:
            return f"{protocol} {form}", _recording(dice)[1]
        case 1:
            return f"{protocol} {form}", _capture(dice)[1]
        case _:
            stream = seeds.stream_of(dice, protocol, "client")
            return f"{protocol} {form}", mutate(dice, stream, lambda: seeds.stream_of(dice, protocol, "server"))


def _peer(dice: random.Random) -> tuple[str, bytes]:
    what = dice.choice(hostile.WHATS)
    protocol, transport = what.split()
    data = mutate(dice, seeds.stream_of(dice, protocol, "client"), lambda: seeds.stream_of(dice, protocol, "server"))
    if transport == "wsopen":
        data = hostile.framed(dice, data)
        data = data if dice.random() < 0.5 else mutate(dice, data, lambda: data)
    if transport == "ws":
        data = mutate(dice, seeds.REQUEST + hostile.framed(dice, data), lambda: data)
    return f"{what} {dice.choice(hostile.STYLES)}", data


MAKERS: dict[str, Callable[[random.Random], tuple[str, bytes]]] = {
    "captures": _capture,
    "recordings": _recording,
    "sessions": _session,
    "serializers": _body,
    "decode": _decode,
    "peers": _peer,
}


def numbered(target: str, seed: int, number: int) -> Case:
    """The input of a number."""
    what, data = MAKERS[target](random.Random(f"{seed} {target} {number}"))
    return Case(target, what, data, f"seed {seed} number {number}")


def inputs(chosen: tuple[str, ...], seed: int, first: int = 0) -> Iterator[Case]:
    """Inputs without end, of all chosen targets in turn."""
    number = first
    while True:
        yield numbered(chosen[number % len(chosen)], seed, number)
        number += 1


def fixed(chosen: tuple[str, ...] = TARGETS) -> list[Case]:
    """Inputs that are in every run: handmade ones and the corpus."""
    return [case for case in (*bombs.handmade(chosen), *corpus()) if case.target in chosen]


class Campaign:
    """A run over inputs, and what failed in it."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self.folder = folder
        self.out = out
        self.count = 0
        self.causes: dict[str, int] = {}
        """Cause of failures -> how many."""
        self.open = 0
        """Inputs that failed and for which an issue is open."""
        self._worker = Worker(targets.run, targets.bounds)

    def warm_up(self) -> None:
        """Compile kernels and import libraries here, so that no input pays for it: workers are forks of this process."""
        use_compiled()
        targets.serializers()
        dice = random.Random(0)
        with tempfile.TemporaryDirectory(prefix="wirelake-fuzz-") as folder, contextlib.chdir(folder):
            for protocol in protocols.names():
                files = [seeds.capture(dice, seeds.packets(dice, protocol, seeds.talk_of(dice, protocol))) for _ in range(6)]
                for data in (seeds.recording(protocol, seeds.talks(protocol)[:3]), *files):
                    targets.run(Case("captures", "", data))
            for what in hostile.WHATS:
                targets.run(Case("peers", f"{what} close", b"\0"))

    def run(self, case: Case) -> Verdict:
        """Run one input; a failure of a new cause is told, and its input saved."""
        verdict = self._worker.run(case)
        self.count += 1
        if not verdict.failure:
            return verdict
        if issue := bombs.open_issue(case):
            self.open += 1
            self.out.write(f"open ({issue}): {case}: {verdict.failure}\n")
            return verdict
        self.causes[verdict.cause] = self.causes.get(verdict.cause, 0) + 1
        if self.causes[verdict.cause] == 1:
            path = save(self.folder, case)
            self.out.write(f"FAILED {case}: {verdict.failure}\n{verdict.detail[-3000:]}  again: python -m tests.fuzz --replay {path}\n")
            self.out.flush()
        return verdict

    def run_all(self, cases: Iterator[Case], *, count: int | None, seconds: float | None) -> None:
        """Run inputs until there are no more, so many were run, or the time is over."""
        stop = None if seconds is None else time.monotonic() + seconds
        for number, case in enumerate(cases):
            if number == count or (stop is not None and time.monotonic() > stop):
                return
            self.run(case)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
