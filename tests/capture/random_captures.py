"""Random captures of many short connections: lost, repeated, reordered, overlapping, cut off, in fragments, on reused ports.

Everything comes from a seed. Packets are built by hand (`build.py`).
"""

from __future__ import annotations

import random

from tests.capture.build import (
    ACK,
    FIN,
    PSH,
    RST,
    SYN,
    ethernet,
    fragment_v4,
    fragment_v6,
    interface,
    ipv4,
    ipv6,
    packet_block,
    section,
    tcp,
    udp,
)

TS = 1_700_000_000_000_000
KNOWN = {5040: "emp", 7000: "other", 7001: "yamp"}
"""Ports: of one protocol the first bytes show a dialect, of the others they do not."""


def dialect(protocol: str, first: bytes, /, *, is_all: bool = False) -> tuple[str, ...] | None:
    """A dialect that the first three bytes show, of one protocol."""
    if protocol != "emp":
        return ()
    return None if len(first) < 3 else ("odd",) if first[0] % 2 else ()


def sniff(first: bytes) -> str | None:
    """A protocol that begins with a `Z`, for ports that are not known."""
    return "sniffed" if first[:1] == b"Z" else None


class Side:
    """What one side of a connection sends."""

    def __init__(self, dice: random.Random) -> None:
        self.sequence = dice.choice([dice.randrange(1 << 32), (1 << 32) - dice.randrange(1, 60)])


def connection(dice: random.Random, source: tuple[str, int], destination: tuple[str, int]) -> list[bytes]:
    """The packets of one connection, in order; most have a beginning and an end."""
    sides = [Side(dice), Side(dice)]
    packets: list[bytes] = []
    first_bytes = dice.choice([b"hello", b"Hello", b"Zebra", b"he", b"unlike"])

    def send(side: int, flags: int, data: bytes = b"", *, back: int = 0, cut: int = 0) -> None:
        here, there = (source, destination) if side == 0 else (destination, source)
        sequence = (sides[side].sequence - back) % (1 << 32)
        body = tcp(here[1], there[1], sequence, sides[1 - side].sequence % (1 << 32), flags, data)
        packet = (ipv6 if here[0].startswith("6.") else ipv4)(here[0], there[0], body)
        if dice.random() < 0.05 and len(body) > 32:
            parts = (fragment_v6 if here[0].startswith("6.") else fragment_v4)(packet, [24], dice.randrange(50))
            packets.extend(parts)
        else:
            packets.append(packet[: len(packet) - cut] if cut else packet)
        if not back:
            sides[side].sequence += len(data) + bool(flags & SYN) + bool(flags & FIN)

    if dice.random() < 0.8:
        send(0, SYN)
        send(1, SYN | ACK)
        if dice.random() < 0.9:
            send(0, ACK)
    for number in range(dice.randrange(9)):
        side = dice.choice([0, 0, 1])
        data = first_bytes if number == 0 else bytes(dice.randrange(97, 123) for _ in range(dice.choice([1, 2, 7, 40, 200])))
        kind = dice.random()
        if kind < 0.75:
            send(side, ACK | PSH, data)
        elif kind < 0.8:
            send(side, ACK)
        elif kind < 0.85:
            send(side, ACK | PSH, data, cut=min(dice.choice([1, 3, 30]), len(data)))
        elif kind < 0.93:  # again, perhaps with other bytes
            send(side, ACK, data, back=dice.choice([1, len(data), 5, 50]))
        elif kind < 0.96:
            sides[side].sequence += dice.choice([1, 20, 100_000_000])
        else:
            send(side, SYN | (ACK if side else 0), b"x" if dice.random() < 0.3 else b"", back=dice.choice([0, 1]))
    if dice.random() < 0.7:
        send(0, FIN | ACK, b"bye" if dice.random() < 0.3 else b"")
        send(1, FIN | ACK)
    elif dice.random() < 0.5:
        send(dice.choice([0, 1]), RST, b"why" if dice.random() < 0.3 else b"")
    if dice.random() < 0.2:
        sides[0].sequence += dice.choice([0, 50_000_000, 100_000_000, 200_000_000])
        send(0, ACK | PSH, b"after the end")
    return packets


def datagrams(dice: random.Random) -> list[bytes]:
    """Datagrams of one pair of endpoints."""
    port = dice.choice([5040, 7001, 9999])
    return [ipv4("10.1.1.1", "10.1.1.2", udp(3000, port, dice.choice([b"", b"Zed", b"abc"])), protocol=17) for _ in range(3)]


def packets(seed: int, connections: int = 40) -> list[bytes]:
    """IP packets of connections that overlap in time, on few endpoints, some out of order or repeated or lost."""
    dice = random.Random(seed)
    ports = [5040, 7000, 7001, 9999]
    waiting = []
    for _ in range(connections):
        is_v6 = dice.random() < 0.3
        here = f"6.{dice.randrange(1, 4)}" if is_v6 else f"10.0.0.{dice.randrange(1, 4)}"
        there = f"6.{dice.randrange(1, 4)}" if is_v6 else f"10.0.0.{dice.randrange(1, 4)}"
        ends = (here, dice.choice([40000, 40001, *ports])), (there, dice.choice(ports))
        waiting.append(connection(dice, *ends))
        if dice.random() < 0.2:
            waiting.append(datagrams(dice))
    sent: list[bytes] = []
    open_now: list[list[bytes]] = []
    while waiting or open_now:
        if waiting and (not open_now or (len(open_now) < 6 and dice.random() < 0.3)):
            open_now.append(waiting.pop(0))
        one = dice.choice(open_now)
        if one:
            sent.append(one.pop(0))
        if not one:
            open_now.remove(one)
    loss = dice.choice([0.0, 0.0, 0.05])
    sent = [packet for packet in sent if dice.random() >= loss]
    for _ in range(dice.choice([0, 3, len(sent) // 8])):
        place = dice.randrange(len(sent))
        if dice.random() < 0.5:
            sent.insert(min(len(sent), place + dice.randrange(6)), sent[place])
        else:
            sent.insert(max(0, place - dice.randrange(1, 5)), sent.pop(place))
    return sent


def capture(seed: int, connections: int = 40) -> bytes:
    """A pcapng of these packets, on interfaces of several link types, some with VLAN tags and some without a time."""
    dice = random.Random(seed)
    out = [section(), interface(1), interface(101, resolution=9), interface(1)]
    for number, packet in enumerate(packets(seed, connections)):
        link = dice.randrange(3)
        frame = packet if link == 1 else ethernet(packet, vlans=dice.choice([(), (), (0x8100,), (0x88A8, 0x8100)]))
        ticks = (TS + number * 997) * (1000 if link == 1 else 1)
        wire = len(frame) if packet[0] >> 4 == 6 else len(frame) - len(packet) + max(len(packet), int.from_bytes(packet[2:4]))
        out.append(packet_block(ticks, frame, number=link, wire=wire))
    return b"".join(out)
