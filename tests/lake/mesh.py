"""A story of a small mesh as Bob hears it: what its nodes say, and what somebody says who is none of them."""

from __future__ import annotations

from tests.protocols.event_mesh import speech
from tests.protocols.event_mesh.speech import MADE, OTHER_NODE, maced, packet, signed, tlv

from wirelake.capture.record.recorder import Recorder

ALICE, BOB, MALLORY = ("127.0.0.1", 7001), ("127.0.0.1", 7002), ("127.0.0.1", 7666)


other = tlv(0x14, OTHER_NODE)


def hello(**more):
    return maced(tlv(4, b"caps") + speech.node + speech.auth, kind=1, **more)


def heartbeat(seconds, **more):
    return maced(speech.node + tlv(0x15, (MADE + seconds).to_bytes(8)) + speech.auth, kind=2, made=MADE + seconds, **more)


def foreign(**more):
    """Signed by a key that the packet brings along, for a node nothing is known of."""
    return signed(speech.name + other + speech.key, covered=speech.name + speech.key + other, **more)


def spoilt(data):
    return data[:-1] + bytes((data[-1] ^ 1,))


STORY = [
    # (seconds, from, name, datagram): what Bob hears.
    (0, ALICE, "hello", hello(message_id=1)),
    (1, ALICE, "event", maced(message_id=2, made=MADE + 1)),
    (2, ALICE, "signed", signed(message_id=3, made=MADE + 2)),
    (3, MALLORY, "forged first", spoilt(maced(message_id=4, made=MADE + 3))),
    (4, ALICE, "honest after forged", maced(message_id=4, made=MADE + 3)),
    (5, MALLORY, "replayed", maced(message_id=2, made=MADE + 1)),
    (6, MALLORY, "bad signature", spoilt(signed(message_id=5, made=MADE + 2))),
    (7, MALLORY, "unknown key", maced(speech.name + other + speech.auth, message_id=6, made=MADE + 7)),
    (8, MALLORY, "untrusted key", foreign(message_id=7, made=MADE + 8)),
    (9, ALICE, "future", maced(message_id=8, made=MADE + 9 + 121)),
    (9.5, ALICE, "future edge", maced(message_id=9, made=MADE + 9 + 120)),
    (10, ALICE, "unproven", packet(speech.name, message_id=10)),
    (11, MALLORY, "duplicate field", packet(speech.name + speech.node * 2, message_id=11)),
    (12, MALLORY, "reserved bits", packet(speech.name, flags=0x80, message_id=12)),
    (13, MALLORY, "oversized", packet(speech.name + tlv(4, bytes(255)) * 3, message_id=13)),
    (14, ALICE, "out of order", packet(tlv(4, b"x") + speech.name + speech.node, message_id=14)),
    (20, ALICE, "heartbeat", heartbeat(20, message_id=20)),
    (100, ALICE, "heartbeat after silence", heartbeat(100, message_id=21)),
    (310, MALLORY, "stale replay", maced(message_id=2, made=MADE + 1)),
]  # fmt: skip


def record(path, story):
    now = [int(MADE * 1e9)]
    with Recorder(path, protocol="event_mesh", clock=lambda: now[0]) as recorder:
        talks = {}
        for seconds, sender, _, data in story:
            now[0] = int((MADE + seconds) * 1e9)
            if sender not in talks:
                talks[sender] = recorder.connection(role="server", local=BOB, remote=sender, transport="udp")
            talks[sender].received(data)
    return path
