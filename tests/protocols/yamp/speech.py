"""YAMP as bytes, made by hand: what a peer might say, right or wrong, without asking the encoder under test."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from wirelake.protocols.yamp import messages as m

HANDSHAKE, PING, PONG, CLOSE, REDIRECT, EVENT, REQUEST, CANCEL, RESPONSE = range(9)
DONE, ERROR, PROGRESS, CANCELLED = range(4)
UID = bytes(range(0x10, 0x20))
OTHER = bytes(range(0xA0, 0xB0))


def handshake(version: int = 1, serializer: bytes = b"json") -> bytes:
    return struct.pack(">BHB", HANDSHAKE, version, len(serializer)) + serializer


def ping(payload: bytes = b"") -> bytes:
    return bytes((PING, len(payload))) + payload


def pong(payload: bytes = b"") -> bytes:
    return bytes((PONG, len(payload))) + payload


def close(reason: bytes = b"") -> bytes:
    return struct.pack(">BH", CLOSE, len(reason)) + reason


def redirect(url: bytes = b"tcp://127.0.0.1:5000", *, short: bool = False) -> bytes:
    return struct.pack(">BB" if short else ">BH", REDIRECT, len(url)) + url


def header(kind: int, uri: bytes, uid: bytes = UID) -> bytes:
    return bytes((kind,)) + uid + bytes((len(uri),)) + uri


def sized(body: bytes, size: int | None = None) -> bytes:
    return (len(body) if size is None else size).to_bytes(4) + body


def event(uri: bytes = b"foo", body: bytes = b"1", *, uid: bytes = UID, size: int | None = None) -> bytes:
    return header(EVENT, uri, uid) + sized(body, size)


def request(uri: bytes = b"sum", body: bytes = b"[1,2]", *, uid: bytes = UID, progressive: int = 0, size: int | None = None) -> bytes:
    return header(REQUEST, uri, uid) + bytes((progressive,)) + sized(body, size)


def cancel(request_uid: bytes = OTHER, *, uri: bytes = b"sum", uid: bytes = UID, kill: int = 0) -> bytes:
    return header(CANCEL, uri, uid) + request_uid + bytes((kill,))


def response(
    request_uid: bytes = OTHER, kind: int = DONE, body: bytes = b"3", *, uri: bytes = b"sum", uid: bytes = UID, size: int | None = None
) -> bytes:
    return header(RESPONSE, uri, uid) + request_uid + bytes((kind,)) + sized(body, size)


# What Hypothesis may say.

octets = st.integers(0, 255)
uids = st.sampled_from((UID, OTHER)) | st.binary(min_size=16, max_size=16)
bodies = st.binary(max_size=40)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
messages = st.one_of(
    st.builds(m.Handshake, st.integers(0, 0xFFFF), texts),
    st.builds(m.Ping, bodies),
    st.builds(m.Pong, bodies),
    st.builds(m.Close, texts),
    st.builds(m.CloseRedirect, texts),
    st.builds(m.Event, uids, texts, bodies),
    st.builds(m.Request, uids, texts, st.booleans(), bodies),
    st.builds(m.Cancel, uids, texts, uids, st.booleans()),
    st.builds(m.Response, uids, texts, uids, octets, bodies),
)

# One of each, and what becomes of them.

SPOKEN = {
    "handshake": handshake(),
    "empty-handshake": handshake(serializer=b""),
    "ping": ping(b"hi"),
    "empty-ping": ping(),
    "pong": pong(b"\xff" * 255),
    "close": close("été".encode()),
    "empty-close": close(),
    "redirect": redirect(),
    "event": event(),
    "empty-event": event(body=b""),
    "long-uri": event("é".encode() * 127 + b"u"),
    "request": request(),
    "progressive": request(progressive=1),
    "cancel": cancel(),
    "kill": cancel(kill=1),
    "done": response(),
    "error": response(kind=ERROR, body=b'"bad"'),
    "progress": response(kind=PROGRESS, body=b"1"),
    "cancelled": response(kind=CANCELLED, body=b""),
}
"""One of each, nothing wrong with them but what is tolerated."""

PRIMITIVES = st.one_of(
    st.sampled_from(tuple(SPOKEN.values())),
    st.builds(event, st.binary(max_size=12), bodies),
    st.builds(lambda kind, body: bytes((kind,)) + body, st.integers(0, 10), bodies),
    st.builds(request, st.binary(max_size=12), bodies, progressive=octets),
    st.builds(response, uids, st.integers(0, 5), bodies),
    st.builds(cancel, uids, kill=octets),
    st.builds(handshake, st.integers(0, 3), st.binary(max_size=8)),
    st.builds(event, st.just(b"x"), bodies, size=st.integers(0, 60) | st.sampled_from((2**24, 2**24 + 1, 2**31, 2**32 - 1))),
    st.binary(max_size=12),
)


@st.composite
def mutated(draw, streams):
    """A stream with a few bytes changed, dropped or repeated."""
    data = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


STREAMS = st.lists(PRIMITIVES, max_size=8).map(b"".join)
