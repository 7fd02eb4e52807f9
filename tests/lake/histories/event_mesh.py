"""Random Event Mesh histories: nodes on several connections, with pauses, relays, and packets that break every rule of form."""

from __future__ import annotations

import random
from pathlib import Path

from tests.protocols.event_mesh.speech import NODE, SPOKEN, auth, key, maced, name, node, packet, tlv
from tests.protocols.event_mesh.test_faults import BY_FORM

from wirelake.capture.record.recorder import Connection, Recorder

START = 1_700_000_000 * 10**9
MESSAGES = 500
SECOND = 10**9
NODES = 6
CONNECTIONS = 8
PAUSES = (0, 0, 0, 1_000, SECOND // 50, SECOND // 4, SECOND)
"""Nanoseconds between two packets, most of the time."""
LONG_PAUSES = (34 * SECOND, 35 * SECOND - 1000, 35 * SECOND, 35 * SECOND + 1000, 36 * SECOND, 120 * SECOND)
"""§3.2: a node is silent after 35 seconds."""
ODD = (
    packet(tlv(4, b"x") + name + node),
    packet(name + tlv(4, bytes(255)) + node),
    packet(name + key + node),
    packet(name + tlv(5, b"[1]") + node),
    packet(tlv(5, b"no json") + tlv(4, bytes(255)) + name + key + node),
    packet(tlv(4, b"x") + name + auth + auth + node),
)
"""EMM-5, EMM-10, EMM-33, EMM-11: tolerated, alone, together, and in a packet that breaks another rule."""
HELLOS = (SPOKEN["hello"], SPOKEN["hello"], packet(tlv(4, b"caps"), 1), packet(node, 1), packet(tlv(4, b"caps") + node + auth + auth, 1))
"""§3.1: a good one, one without a node, and two that break a rule."""


def write(folder: Path, seed: int) -> list[Path]:
    """Write a history in two files; another seed is another history."""
    dice, now = random.Random(f"event_mesh {seed}"), START + seed * 10_000 * SECOND
    paths = [folder / f"event_mesh-{seed}-{part}.pcapng" for part in (1, 2)]
    lost_path = folder / f"event_mesh-{seed}-lost.pcapng"
    recorders = [Recorder(path, protocol="event_mesh", clock=lambda: now, observer="") for path in paths]
    lost = Recorder(lost_path, protocol="event_mesh", clock=lambda: now, observer="")
    connections = [_connection(dice, dice.choice([*recorders, lost]), number) for number in range(CONNECTIONS)]
    nodes = [dice.randbytes(16) for _ in range(NODES)]
    newcomers = nodes[: NODES // 2]
    """Nodes that say hello first."""
    for number in range(MESSAGES):
        now += dice.choice(PAUSES)
        if dice.random() < 0.03:
            now += dice.choice(LONG_PAUSES)
        sender, connection = dice.choice(nodes[: 1 + number * NODES // MESSAGES + NODES // 2]), dice.choice(connections)
        connection._recorder = dice.choice(recorders)
        data = _packet(dice, number)
        if sender in newcomers:
            newcomers.remove(sender)
            data = dice.choice(HELLOS)
        (connection.sent if dice.random() < 0.5 else connection.received)(data.replace(NODE, sender))
        if dice.random() < 0.02:
            connection.closed("timeout")
        if dice.random() < 0.02:
            connection._event(0, event="reset")
    for recorder in (*recorders, lost):
        recorder.close()
    lost_path.unlink()
    return paths


def _connection(dice: random.Random, recorder: Recorder, number: int) -> Connection:
    return recorder.connection(
        role=dice.choice(["client", "server"]),
        transport=dice.choice(["udp", "udp", "dtls"]),
        local=("127.0.0.1", 7000),
        remote=("127.0.0.1", 7001 + number),
        connection_id=dice.randbytes(8),
    )


def _packet(dice: random.Random, number: int) -> bytes:
    kind = dice.random()
    if kind < 0.25:
        return SPOKEN["heartbeat"]
    if kind < 0.35:
        return dice.choice(HELLOS)
    if kind < 0.55:
        return maced(message_id=number)
    if kind < 0.75:
        return dice.choice(list(SPOKEN.values()))
    if kind < 0.83:
        return dice.choice(ODD)
    if kind < 0.93:
        return dice.choice(list(BY_FORM.values()))
    data = bytearray(dice.choice(list(SPOKEN.values())))
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)
