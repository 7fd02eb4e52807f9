"""wolpertinger traffic for the demo: methods of each trust level, and clients of them.

Some clients fail to reach the trust level of a method.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import RequestFailed, WirelakeError
from wirelake.peers.demo.raw_bytes import send_raw
from wirelake.peers.wolpertinger import Options, Peer, connect, method, serve

__all__ = ["KEYS", "record"]

KEYS: Final = "sessions.log"
"""The file of the keys that sessions agreed on; see `peers.key_log`."""

KEY: Final = b"a demo has no secrets"
USERS: Final = {"keeper": "open the shop"}
LEVELS: Final = (0, 3)
"""The trust level each client gains before it calls.

From 2 on, its messages cannot be read in the recording without keys.
"""
IN_FLIGHT: Final = 4
HOSTILE: Final = (
    b"message_id:1;signature:c2lnbmVk;PHg+\n"  # WOLP-5
    b"message_id:2;fragment_index:7;fragment_count:3;PHg+\n"  # WOLP-9
    b"message_id:3;encryption:aes;AAAA\n"  # WOLP-22
    b"message_id:4;PG5vIHhtbA==\n"  # WOLP-16
    b"not a message at all\n"
)


class Stock:
    """The shop."""

    def __init__(self) -> None:
        self._sold = 0

    @method(trust=0)
    def Price(self, item: str, count: int) -> float:  # noqa: N802
        """What something costs."""
        if item == "unicorn":
            raise RequestFailed(502)
        return len(item) * 1.5 * count

    @method(trust=0)
    def Sold(self, item: str) -> None:  # noqa: ARG002, N802
        """Something was sold."""
        self._sold += 1

    @method(trust=3)
    async def Inventory(self, shelves: int) -> list[str]:  # noqa: N802
        """What is there; it takes a moment."""
        await asyncio.sleep(0.002)
        return [f"shelf {number}" for number in range(shelves)]

    @method(trust=4)
    def Close(self) -> bool:  # noqa: N802
        """For the keeper."""
        return True


async def record(folder: Path, calls: int, progress: Callable[[int, int], None]) -> list[Path]:
    """Make about so many calls, and the rest of the show; returns the recordings."""
    with Recorder(folder / "wolpertinger.pcapng", protocol="wolpertinger") as recorder:
        options = Options(cluster_key=KEY, password_of=USERS.get, recorder=recorder, key_log=folder / KEYS)
        async with serve("tcp://127.0.0.1:0", Stock, options=options) as server:
            done = 0

            def made() -> None:
                nonlocal done
                done += 1
                if done % 200 == 0:
                    progress(done, calls)

            async with asyncio.TaskGroup() as group:
                for level in LEVELS:
                    group.create_task(_client(server.address, level, calls // len(LEVELS), made))
            await _trouble(server.address)
        progress(calls, calls)
    return list(recorder.paths)


async def _client(address: str, level: int, calls: int, made: Callable[[], None]) -> None:
    chance = random.Random(level)  # noqa: S311 - a demo wants the same traffic every time
    async with connect(address, options=Options(cluster_key=KEY, authenticate=level)) as peer:

        async def worker() -> None:
            for index in range(calls // IN_FLIGHT):
                item = chance.choice(["tea", "coffee", "cocoa"])
                await peer.Stock.Price(item, 1 + index % 9)
                made()
                if index % 10 == 0:
                    await peer.Stock.Sold.tell(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(worker())
        await _wishes(peer)


async def _wishes(peer: Peer) -> None:
    """Make unusual calls: wrong or large arguments, a missing component, and too little trust."""
    for component, name, *parameters in (
        ("Stock", "Price", "unicorn", 1),
        ("Stock", "Inventory", 3),
        ("Stock", "Price", "x" * 60_000, 1),
        ("Stock", "Close"),
        ("Nowhere", "Price", "tea", 1),
        ("Stock", "Price", "tea"),
    ):
        with contextlib.suppress(RequestFailed):
            await peer.call(component, name, *parameters)


async def _trouble(address: str) -> None:
    """A keeper with the wrong password and one with the right one, and a peer that breaks the rules."""
    for password in ("let me in", USERS["keeper"]):
        options = Options(authenticate=4, user="Keeper", password=password)
        with contextlib.suppress(WirelakeError):
            async with connect(address, options=options) as peer:
                await peer.Stock.Close()
    await send_raw(address, HOSTILE, seconds=5, finish=True)
