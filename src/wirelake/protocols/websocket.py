"""WebSockets (RFC 6455) as a capture shows them: where the opening handshake ends, and the bytes inside the frames that follow.

For protocols that may travel inside: the payload of binary messages comes out as one stream, with pieces that lead back to where each
part of it was. Live connections do not need this: a library speaks for them. It refuses to know what travels inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from wirelake.protocols.kernel import NO_ROOM, kernel, u16

__all__ = [
    "COMPRESSED",
    "INCOMPLETE",
    "PIECE_AT",
    "PIECE_COLUMNS",
    "PIECE_LENGTH",
    "PIECE_START",
    "TEXT",
    "UNKNOWN",
    "inside",
    "opening",
    "unframe",
]

LONGEST_HEAD: Final = 16 * 1024
"""Bytes of an opening handshake at most."""
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0."""

# A piece: part of the payload, in order.
PIECE_START: Final = 0
"""Where it lies in what came out."""
PIECE_AT: Final = 1
"""Where it was in the data."""
PIECE_LENGTH: Final = 2
PIECE_COLUMNS: Final = 3

# Why reading stopped.
INCOMPLETE: Final = 0
"""The next frame is not all there, or there is none."""
TEXT: Final = 1
"""A text message: YAMP-14 and its like close on it."""
COMPRESSED: Final = 2
"""Reserved bits are set: an extension, as a rule compression, that is not undone here."""
UNKNOWN: Final = 3
"""A frame that RFC 6455 does not have, or one of 2^63 bytes and more."""

_CONTINUATION: Final = 0
_TEXT: Final = 1
_BINARY: Final = 2
_CONTROL: Final = 8
_LAST_CONTROL: Final = 10


@kernel
def unframe(data: Any, start: int, stop: int, out: Any, pieces: Any) -> tuple[int, int, int, int]:
    """Walk whole frames in data[start:stop]; the payload of binary messages goes to `out`, unmasked, with one piece for each frame.

    Returns (bytes written, pieces written, next offset, why): `why` is why it stopped there, or NO_ROOM if `out` or `pieces` are full.
    Control frames are passed over. `out` must hold stop - start bytes.
    """
    used, count, at = 0, 0, start
    while True:
        if stop - at < 2 or at < 0 or at > FARTHEST:
            return used, count, at, INCOMPLETE
        first, second = 0 + data[at], 0 + data[at + 1]
        opcode, size, body = first & 0x0F, second & 0x7F, at + 2
        if first & 0x70:
            return used, count, at, COMPRESSED
        if _BINARY < opcode < _CONTROL or opcode > _LAST_CONTROL:
            return used, count, at, UNKNOWN
        if opcode == _TEXT:
            return used, count, at, TEXT
        if size == 126:
            if stop - at < 4:
                return used, count, at, INCOMPLETE
            size, body = u16(data, at + 2), at + 4
        elif size == 127:
            if stop - at < 10:
                return used, count, at, INCOMPLETE
            size, body = 0, at + 10
            for place in range(at + 2, at + 10):
                size = (size << 8) | (0 + data[place])
                if size > FARTHEST:
                    return used, count, at, UNKNOWN
        mask = -1
        if second & 0x80:
            mask = body
            body += 4
        if stop - body < size:
            return used, count, at, INCOMPLETE
        if opcode < _CONTROL and size > 0:
            if (count + 1) * PIECE_COLUMNS > len(pieces) or used + size > len(out):
                return used, count, at, NO_ROOM
            piece = count * PIECE_COLUMNS
            pieces[piece + PIECE_START] = used
            pieces[piece + PIECE_AT] = body
            pieces[piece + PIECE_LENGTH] = size
            if mask < 0:
                for place in range(size):
                    out[used + place] = data[body + place]
            else:
                for place in range(size):
                    out[used + place] = data[body + place] ^ data[mask + (place & 3)]
            count += 1
            used += size
        at = body + size


def opening(data: bytes) -> int:
    """Where the frames begin in what one side said first: after its half of the opening handshake; 0 if it is none, or not all there."""
    request = data.startswith(b"GET ")
    if not request and not data.startswith(b"HTTP/1.1 101"):
        return 0
    end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD)
    if end < 0:
        return 0
    fields = dict(line.lower().replace(b" ", b"").partition(b":")[::2] for line in data[:end].split(b"\r\n")[1:])
    wanted = b"sec-websocket-key" if request else b"sec-websocket-accept"
    return end + 4 if fields.get(b"upgrade") == b"websocket" and wanted in fields else 0


def inside(data: bytes, sniff: Callable[[bytes], bool]) -> bool:
    """Whether what one side said first opens a WebSocket in whose messages `sniff` recognises something."""
    start = opening(data)
    if not start:
        return False
    out, pieces = bytearray(len(data)), [0] * (len(data) * PIECE_COLUMNS)
    used, _, _, _ = unframe(data, start, len(data), out, pieces)
    return sniff(bytes(out[:used]))
