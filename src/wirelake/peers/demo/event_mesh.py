"""Event Mesh traffic for the demo: nodes with keys, a gateway that relays, and a forger."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.peers import trust_file
from wirelake.peers.event_mesh import Node, Options, node
from wirelake.protocols.event_mesh.messages import EventType
from wirelake.protocols.event_mesh.options import RelayRule
from wirelake.protocols.event_mesh.packet.builder import Credentials, build, public_key_of
from wirelake.protocols.event_mesh.packet.values import text
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.transports import udp

__all__ = ["KEYS", "record"]

KEYS: Final = "mesh.keys"
"""What the nodes know each other by."""
AUTH_KEY_ID: Final = bytes(3) + b"\x01"
STALE: Final = 600
"""Seconds: longer than any replay window."""
AT_ONCE: Final = 20
"""Events published before all nodes get time to read."""


async def record(folder: Path, events: int, progress: Callable[[int, int], None]) -> list[Path]:
    """Publish about so many events, and the rest of the show; returns the recordings."""
    boiler = Credentials(secrets.token_bytes(16), AUTH_KEY_ID, secret=secrets.token_bytes(32))
    valve = Credentials(secrets.token_bytes(16), AUTH_KEY_ID, seed=secrets.token_bytes(32))
    gateway = Credentials(secrets.token_bytes(16), AUTH_KEY_ID, secret=secrets.token_bytes(32))
    store = TrustStore(_known(one) for one in (boiler, valve, gateway))
    trust_file.save(folder / KEYS, store)
    quick = Options(heartbeat_interval=0.2)
    relaying = Options(heartbeat_interval=0.2, relay=(RelayRule(),))
    with Recorder(folder / "event-mesh.pcapng", protocol="event_mesh") as recorder:
        async with (
            node(
                "udp://127.0.0.1:0", credentials=gateway, options=msgspec.structs.replace(relaying, trust=store, recorder=recorder)
            ) as middle,
            node(
                "udp://127.0.0.1:0", credentials=boiler, options=msgspec.structs.replace(quick, trust=store), peers=[middle.address]
            ) as hot,
            node(
                "udp://127.0.0.1:0", credentials=valve, options=msgspec.structs.replace(quick, trust=store), peers=[middle.address]
            ) as wet,
        ):
            wet.subscribe("plant.boiler.>")
            await _publish(hot, wet, events, progress)
            await _trouble(middle, boiler)
            await asyncio.sleep(0.5)
    return list(recorder.paths)


def _known(own: Credentials) -> Key:
    return Key(own.node_id, own.auth_key_id, own.secret, None if own.seed is None else public_key_of(own.seed))


async def _publish(hot: Node, wet: Node, events: int, progress: Callable[[int, int], None]) -> None:
    chance = random.Random(events)  # noqa: S311 - a demo wants the same traffic every time
    temperature = 80.0
    for number in range(events):
        temperature += chance.gauss(0, 0.4)
        await hot.publish("plant.boiler.temperature", round(temperature, 2), number, urgent=temperature > 90)
        if number % 10 == 0:
            await wet.publish("plant.valve.state", {"open": chance.random() < 0.5, "number": number})
        if number % AT_ONCE == 0:
            progress(number, events)
            await asyncio.sleep(0.002)
    progress(events, events)


async def _trouble(victim: Node, boiler: Credentials) -> None:
    """Packets a receiver drops silently, each for a reason of its own."""
    now = int(time.time())

    def event(credentials: Credentials | None, message_id: int, timestamp: int = now) -> bytes:
        return build(EventType.EVENT, [text("plant.boiler.temperature")], credentials, message_id=message_id, timestamp=timestamp)

    forger = Credentials(boiler.node_id, boiler.auth_key_id, secret=secrets.token_bytes(32))
    stranger = Credentials(secrets.token_bytes(16), AUTH_KEY_ID, secret=secrets.token_bytes(32))
    guest = Credentials(secrets.token_bytes(16), seed=secrets.token_bytes(32), with_public_key=True)
    honest = event(boiler, 1)
    reserved = bytearray(event(None, 2))
    reserved[5] |= 0x80
    mallory = await udp.listen("127.0.0.1", 0)
    try:
        for packet in (
            honest,
            honest,  # EMM-23: again
            event(forger, 3),  # §5.1: another secret
            event(stranger, 4),  # EMM-18: an unknown node
            event(guest, 5),  # EMM-17: a key that is not trusted
            event(boiler, 6, now - STALE),  # EMM-24
            event(boiler, 7, now + STALE),
            bytes(reserved),  # EMM-3
            event(None, 8) + b"\0",  # EMM-4
            b"not a packet",
        ):
            mallory.send(packet, (victim.target.host, victim.target.port))
            await asyncio.sleep(0.01)
    finally:
        await mallory.close()
