"""A story of one Relink link: three messages, a cut after the third, a reconnection, and an orderly end."""

from __future__ import annotations

from tests.protocols.relink.speech import GENERAL, control, message, reply, request

from wirelake.capture.record.recorder import Recorder

START_NS = 1_700_000_000 * 10**9
EPOCH, LINK = 1_700_000_000_000_000, 4711
ACK, SEQUENCE_ACK, OPERATION = 1, 3, 0
RECEIVED, CONSUMED, CLOSED, CLOSE = 0, 1, 4, 2

STORY = [
    # (seconds, who, what, bytes)
    (0, "client", "version", bytes(8)),
    (0.1, "server", "version", bytes(8)),
    (0.2, "client", "request", request(b"demo", (2, 0))),
    (0.3, "server", "reply", reply(EPOCH, LINK)),
    (1, "client", "message", message((b"aa",), (b"one",))),
    (2, "client", "message", message((b"aa",), (b"two",))),
    (3, "server", "consumed", control(SEQUENCE_ACK, CONSUMED, (b"aa",), 1)),
    (4, "server", "message", message((b"",), (b"from the other side",))),
    (5, "client", "message", message((b"aa",), (b"three",))),
    (6, "cut", "", b""),
    (10, "client", "version", bytes(8)),
    (10.1, "server", "version", bytes(8)),
    (10.2, "client", "request", request(b"demo", (2, 0), epoch=EPOCH, link=LINK)),
    (10.3, "server", "reply", reply(EPOCH, LINK)),
    (11, "server", "received", control(SEQUENCE_ACK, RECEIVED, (b"aa",), 1)),
    (12, "server", "consumed", control(SEQUENCE_ACK, CONSUMED, (b"aa",), 1)),
    (13, "server", "resume", GENERAL["resume"]),
    (14, "client", "resume", GENERAL["resume"]),
    (15, "client", "message", message((b"aa",), (b"three",))),
    (16, "client", "message", message((b"aa", b"bb"), (b"both",), multicast=True)),
    (22, "server", "consumed", control(ACK, CONSUMED, (b"aa",))),
    (23, "server", "consumed", control(ACK, CONSUMED, (b"aa", b"bb"), multicast=True)),
    (24, "client", "close", control(OPERATION, CLOSE, (b"aa",))),
    (25, "server", "closed", control(ACK, CLOSED, (b"aa",))),
    (26, "client", "shutdown", GENERAL["shutdown"]),
    (27, "server", "shutdown", GENERAL["shutdown"]),
]


OBSERVER = "alice"
"""The name of the recorder."""


def record(path, story, first_port=30_000):
    """Record a story, as its client does; a cut ends a connection and begins another."""
    now = [START_NS]
    with Recorder(path, protocol="relink", clock=lambda: now[0], observer=OBSERVER) as recorder:
        port, talk = first_port, None
        for seconds, who, _, data in story:
            now[0] = START_NS + int(seconds * 1e9)
            if talk is None:
                talk = recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", 7000))
                port += 1
            if who == "client":
                talk.sent(data)
            elif who == "server":
                talk.received(data)
            else:
                talk.closed("eof")
                talk = None
        if talk is not None:
            talk.closed("eof")
    return path
