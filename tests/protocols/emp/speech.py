"""EMP as bytes, made by hand: what a peer might say, right or wrong, without asking the encoder under test."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from wirelake.protocols.emp import messages as m

HELLO, BYE, PING, PONG, ERROR, DATA = range(6)
RR, GZ = 0, 1


def envelope(
    kind: int,
    body: bytes = b"",
    blocks: bytes = b"",
    *,
    e: bool | None = None,
    unused: bytes = bytes(3),
    size: int | None = None,
    bias: int = 0,
) -> bytes:
    """Envelope and header; `e` and `size` say what is announced, whatever is there."""
    flag = bool(blocks) if e is None else e
    size = 8 + len(blocks) + len(body) - bias if size is None else size
    return struct.pack(">IBBBB", size, kind, (0x80 if flag else 0) | unused[0], unused[1], unused[2]) + blocks + body


def block(
    number: int, content: bytes = b"", *, more: bool = False, unused: bytes = bytes(3), size: int | None = None, bias: int = 0
) -> bytes:
    """One extension block."""
    size = 8 + len(content) - bias if size is None else size
    return struct.pack(">IBBBB", size, number, (0x80 if more else 0) | unused[0], unused[1], unused[2]) + content


def rr(request: bool, request_id: int, *, more: bool = False, unused: bytes = bytes(4), bias: int = 0) -> bytes:
    """A request-response block."""
    first = (0x80 if request else 0) | unused[0]
    return block(RR, bytes((first,)) + unused[1:] + request_id.to_bytes(8), more=more, bias=bias)


def gz(scheme: int = 1, *, more: bool = False, unused: bytes = bytes(3), bias: int = 0) -> bytes:
    """A compression block."""
    return block(GZ, bytes((scheme,)) + unused, more=more, bias=bias)


def hello(version: int = 1, *, bias: int = 0) -> bytes:
    return envelope(HELLO, bytes((version, 0, 0, 0)), bias=bias)


def error(code: int, text: bytes = b"", *, extension_id: int = 0, extension_error_code: int = 0, length: int | None = None) -> bytes:
    length = len(text) if length is None else length
    return envelope(ERROR, struct.pack(">BBBBH", code, extension_id, extension_error_code, 0, length) + text)


def data(body: bytes = b"", blocks: bytes = b"") -> bytes:
    return envelope(DATA, body, blocks)


def request(request_id: int, body: bytes = b"", kind: int = DATA) -> bytes:
    return envelope(kind, body, rr(True, request_id))


def response(request_id: int, body: bytes = b"", kind: int = DATA) -> bytes:
    return envelope(kind, body, rr(False, request_id))


bye, ping, pong = envelope(BYE), envelope(PING), envelope(PONG)


def blocks(count: int, number: int = 200, content: bytes = b"") -> bytes:
    """So many blocks of an application's extension, the last without the M bit."""
    return b"".join(block(number, content, more=index + 1 < count) for index in range(count))


# What Hypothesis may say.

octets = st.integers(0, 255)
bodies = st.binary(max_size=40)
request_ids = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1), st.sampled_from((2**63 - 1, 2**63, 2**64 - 1)))
extensions = st.lists(
    st.one_of(
        st.builds(m.RequestResponse, st.booleans(), request_ids),
        st.builds(m.Compression, octets),
        st.builds(m.OtherExtension, st.integers(2, 255), st.binary(max_size=20)),
    ),
    max_size=6,
).map(tuple)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
messages = st.one_of(
    st.builds(m.Hello, octets, extensions),
    st.builds(m.Bye, extensions),
    st.builds(m.Ping, extensions),
    st.builds(m.Pong, extensions),
    st.builds(m.Error, octets, octets, octets, texts, extensions),
    st.builds(m.Data, bodies, extensions),
    st.builds(m.Application, st.integers(128, 255), bodies, extensions),
)


# One of each, and what becomes of them.

SPOKEN = {
    "hello": hello(),
    "bye": bye,
    "ping": ping,
    "pong": pong,
    "error": error(3, "été".encode()),
    "empty-error": error(0),
    "data": data(b"hello"),
    "empty-data": data(),
    "request": request(1, b"why"),
    "response": response(2**64 - 1, b"because"),
    "packed": data(b"packed", gz(1)),
    "packed-request": data(b"packed", rr(True, 7, more=True) + gz(1)),
    "nested": data(b"packed", gz(1, more=True) + gz(0)),
    "application": envelope(200, b"own"),
    "extended": envelope(128, b"own", block(128, b"abc", more=True) + block(255)),
}
"""One of each, nothing wrong with them."""

PRIMITIVES = st.one_of(
    st.sampled_from(tuple(SPOKEN.values())),
    st.builds(envelope, octets, bodies, e=st.booleans()),
    st.builds(
        lambda kind, body, blocks: envelope(kind, body, b"".join(blocks), e=True),
        st.sampled_from((0, 1, 2, 3, 4, 5, 6, 127, 128)),
        bodies,
        st.lists(
            st.builds(
                block, st.sampled_from((0, 1, 2, 128)), st.sampled_from((b"", bytes(4), bytes(12), b"\xff" * 12)), more=st.booleans()
            ),
            max_size=5,
        ),
    ),
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
