"""Conversations of YAMP as one side records them: well-behaved ones, and one for every rule that history can show."""

from __future__ import annotations

from itertools import count

from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import OTHER, UID

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.yamp.serializers.registry import STANDARD

UIDS = count(1 << 100)


def event(uri: bytes = b"foo", body: bytes = b"1") -> bytes:
    """Every message but a request has a uid that no other one has."""
    return speech.event(uri, body, uid=next(UIDS).to_bytes(16))


def response(*said, **more) -> bytes:
    return speech.response(*said, **more, uid=next(UIDS).to_bytes(16))


def cancel(request_uid: bytes, kill: int = 0) -> bytes:
    return speech.cancel(request_uid, kill=kill, uid=next(UIDS).to_bytes(16))


START_NS = 1_700_000_000 * 10**9
FIRST_PORT = 30_000
PACKED = STANDARD["msgpack"].serialize({"a": [1, None]})
HANDS = [(0.1, "client", speech.handshake()), (0.2, "server", speech.handshake())]
CLOSE = [(9, "client", speech.close(b"enough")), (9.1, "closed", "close")]

CASES = {
    "plain": [*HANDS, (1, "client", speech.request(b"sum", b"[1,2]")), (1.25, "server", response(UID, 0, b"3")), *CLOSE],
    "progress": [
        *HANDS,
        (1, "client", speech.request(b"work", b'{"a": 1}', progressive=1)),
        *((1 + step / 10, "server", response(UID, 2, b"%d" % step, uri=b"work")) for step in (1, 2, 3)),
        (2, "server", response(UID, 0, b'{"b": [true]}', uri=b"work")),
        *CLOSE,
    ],
    "cancelled": [
        *HANDS,
        (1, "client", speech.request()),
        (2, "client", cancel(UID)),
        (3, "server", response(UID, 3, b"")),
        *CLOSE,
    ],
    "killed": [*HANDS, (1, "client", speech.request()), (2, "client", cancel(UID, kill=1)), *CLOSE],
    "failed": [*HANDS, (1, "server", speech.request()), (2, "client", response(UID, 1, b'"bad"')), *CLOSE],
    "msgpack": [
        (0.1, "client", speech.handshake(1, b"msgpack")),
        (0.2, "server", speech.handshake(1, b"msgpack")),
        (1, "client", event(b"e", PACKED)),
        (2, "server", event(b"e", PACKED) + event(b"odd", b"\xc1")),
        *CLOSE,
    ],
    "empty serializer": [
        (0.1, "client", speech.handshake(1, b"")),
        (0.2, "server", speech.handshake(1, b"")),
        (1, "client", event(b"e", PACKED) + event(b"e", b'{"a": 1}') + event(b"e", b"17")),
        *CLOSE,
    ],
    "version": [
        (0.1, "client", speech.handshake(2)),
        (0.2, "server", speech.close(b"Version 2 not supported. Use 1")),
        (1, "closed", "close"),
    ],
    "large version": [(0.1, "client", speech.handshake(65535)), (0.2, "server", speech.close(b"no")), (1, "closed", "close")],
    "echo differs": [
        (0.1, "client", speech.handshake()),
        (0.2, "server", speech.handshake(1, b"msgpack")),
        (0.3, "client", speech.close(b"handshake differs")),
        (1, "closed", "close"),
    ],
    "repeated handshake": [*HANDS, (1, "client", speech.handshake()), *CLOSE],
    "repeated over udp": [(0.05, "client", speech.handshake()), *HANDS, *CLOSE],
    "event first": [(0.1, "client", event()), (0.2, "server", speech.close(b"handshake expected")), (1, "closed", "close")],
    "redirect by client": [*HANDS, (1, "client", speech.redirect()), (1.1, "server", speech.close(b"no")), (2, "closed", "close")],
    "redirected": [(0.1, "client", speech.handshake()), (0.2, "server", speech.redirect(b"tcp://127.0.0.1:1")), (1, "closed", "redirect")],
    "uid in flight": [
        *HANDS,
        (1, "client", speech.request() * 2),
        (2, "server", speech.close(b"duplicate request uid")),
        (3, "closed", "close"),
    ],
    "unmatched": [*HANDS, (1, "server", response()), *CLOSE],
    "progress unasked": [*HANDS, (1, "client", speech.request()), (2, "server", response(UID, 2) + response(UID)), *CLOSE],
    "after close": [*HANDS, (1, "client", speech.close()), (2, "client", event()), (3, "closed", "close")],
    "response type": [*HANDS, (1, "client", response(OTHER, 9)), (2, "server", speech.close(b"no")), (3, "closed", "close")],
    "odd": [
        *HANDS,
        (1, "client", speech.request(progressive=7) + event(b"", b"1")),
        (2, "client", speech.close(b"\xff")),
        (3, "closed", "close"),
    ],
    "cut": [*HANDS, (1, "client", event()[:9]), (2, "closed", "eof")],
    "unknown type": [*HANDS, (1, "client", b"\x63 what"), (2, "server", speech.close(b"Unknown type 99")), (3, "closed", "close")],
    "gone": [*HANDS, (1, "client", event()), (2, "finished", "client"), (3, "closed", "eof")],
    "silent": [(0.1, "client", speech.handshake()), (12, "client", speech.close(b"handshake timeout")), (13, "closed", "close")],
    "too soon": [HANDS[0], (0.15, "client", event()), HANDS[1], *CLOSE],
    "refused": [
        (0.1, "client", speech.handshake(1, b"yaml")),
        (0.2, "server", speech.close(b"Serializer yaml not supported. Use json")),
        (1, "closed", "close"),
    ],
    "refused otherwise": [HANDS[0], (0.2, "server", speech.close(b"Serializer yaml not supported. Use xml")), (1, "closed", "close")],
    "led astray": [HANDS[0], (0.2, "server", speech.redirect(b"http://127.0.0.1:1")), (1, "closed", "redirect")],
    "pongs": [
        *HANDS,
        (1, "client", speech.ping(b"a") + speech.ping(b"b")),
        (2, "server", speech.ping(b"a") + speech.pong(b"b")),
        (3, "client", speech.pong(b"a")),
        (12, "server", speech.pong(b"a")),
        (30, "client", speech.close()),
        (31, "closed", "close"),
    ],
    "never a pong": [
        *HANDS,
        (1, "client", speech.ping(b"a")),
        (62, "server", event()),
        (63, "client", speech.close()),
        (64, "closed", "close"),
    ],
    "closed before the pong": [*HANDS, (1, "client", speech.ping(b"a")), *CLOSE],
    "pong lost over udp": [*HANDS, (1, "client", speech.ping(b"a")), (30, "client", speech.close()), (31, "closed", "close")],
    "asked twice over udp": [*HANDS, (1, "client", speech.request()), (2, "client", speech.request()), *CLOSE],
    "cut over udp": [*HANDS, (1, "client", event()[:9]), *CLOSE],
    "answered, not cancelled": [
        *HANDS,
        (1, "client", speech.request()),
        (2, "client", cancel(UID)),
        (3, "server", response(UID, 0, b"3")),
        *CLOSE,
    ],
    "cancelled, then killed": [
        *HANDS,
        (1, "client", speech.request()),
        (2, "client", cancel(UID) + cancel(UID, kill=1)),
        *CLOSE,
    ],
    "killed and answered": [
        *HANDS,
        (1, "client", speech.request()),
        (2, "client", cancel(UID, kill=1)),
        (3, "server", response(UID, 0, b"3")),
        (4, "client", speech.request()),
        (4.5, "server", response(UID, 1, b"4")),
        *CLOSE,
    ],
    "an answer that crosses the kill": [
        *HANDS,
        (0.5, "client", speech.ping(b"a")),
        (1.5, "server", speech.pong(b"a")),
        (2, "client", speech.request()),
        (2.5, "client", cancel(UID, kill=1)),
        (3.5, "server", response(UID, 0, b"3")),
        *CLOSE,
    ],
    "an answer after the kill": [
        *HANDS,
        (0.5, "client", speech.ping(b"a")),
        (1.5, "server", speech.pong(b"a")),
        (2, "client", speech.request()),
        (2.5, "client", cancel(UID, kill=1)),
        (3.6, "server", response(UID, 0, b"3")),
        *CLOSE,
    ],
    "an event twice": [*HANDS, (1, "client", speech.event()), (2, "client", speech.event()), *CLOSE],
    "an event twice over udp": [*HANDS, (1, "client", speech.event()), (2, "client", speech.event()), *CLOSE],
}
"""Name -> (seconds, who, what)."""

BROKEN = {
    "msgpack": ["BODY_UNDECODABLE"],
    "empty serializer": ["SERIALIZER_EMPTY", "SERIALIZER_EMPTY"],
    "version": ["VERSION_UNSUPPORTED"],
    "large version": ["VERSION_UNSUPPORTED"],
    "echo differs": ["ECHO_DIFFERS"],
    "repeated handshake": ["HANDSHAKE_REPEATED"],
    "event first": ["HANDSHAKE_EXPECTED"],
    "redirect by client": ["REDIRECT_BY_CLIENT"],
    "uid in flight": ["REQUEST_UID_IN_FLIGHT"],
    "unmatched": ["RESPONSE_UNMATCHED"],
    "progress unasked": ["PROGRESS_UNASKED"],
    "after close": ["SPOKE_AFTER_CLOSE"],
    "response type": ["RESPONSE_TYPE_UNKNOWN"],
    "odd": ["BOOL_ODD", "REASON_NOT_UTF8", "URI_EMPTY"],
    "cut": ["CLOSED_INSIDE_MESSAGE", "MESSAGE_CUT"],
    "unknown type": ["TYPE_UNKNOWN"],
    "gone": ["CLOSED_WITHOUT_WORD"],
    "silent": ["HANDSHAKE_TIMEOUT"],
    "too soon": ["SPOKE_TOO_SOON"],
    "refused": ["SERIALIZER_UNSUPPORTED"],
    "led astray": ["REDIRECT_REFUSED"],
    "pongs": ["PING_TIMEOUT"],
    "never a pong": ["PING_TIMEOUT", "PONG_MISSING"],
    "asked twice over udp": ["REQUEST_REPEATED"],
    "cut over udp": ["DATAGRAM_CUT"],
    "killed and answered": ["ANSWERED_AFTER_KILL", "UID_REUSED"],
    "an answer after the kill": ["ANSWERED_AFTER_KILL"],
    "an event twice": ["UID_REUSED"],
}
"""Name -> the rules that are broken in it; the others break none."""


def record(path):
    """All of them, one after the other, each from a client port of its own."""
    now = [START_NS]
    numbers = iter(range(1, 1000))
    with Recorder(path, protocol="yamp", clock=lambda: now[0], new_id=lambda: next(numbers).to_bytes(8)) as recorder:
        for port, (name, steps) in enumerate(CASES.items(), FIRST_PORT):
            start = now[0]
            connection = recorder.connection(
                role="client", transport="udp" if "udp" in name else "tcp", local=("127.0.0.1", port), remote=("127.0.0.1", 8888)
            )
            for seconds, who, what in steps:
                now[0] = start + int(seconds * 1e9)
                if who == "client":
                    connection.sent(what)
                elif who == "server":
                    connection.received(what)
                elif who == "finished":
                    connection.finished(what)
                else:
                    connection.closed(what)
            now[0] += 10**9
    return path
