"""Session ids of many flows at once: the BLAKE2b hash of each flow's identity as text.

The text is that of `session_id`: `tcp`, address and port of the client, those of the server, and what tells the flow from others of the
same endpoints, with a zero byte between them. It is never longer than one block of BLAKE2b (RFC 7693). Numbers of 64 bits are signed here,
because kernels have no others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import numpy as np

from wirelake.capture.blocks.flows import SESSION_ID_SIZE, Side
from wirelake.protocols.kernel import active, copy, i64_le, kernel

__all__ = ["SINCE_WORDS", "session_id", "session_ids"]

Array = np.ndarray[Any, Any]

SINCE_WORDS: Final = ("sequence", "time", "byte")
"""By `SINCE_KIND` of the flow table: the word before the number."""

BLOCK: Final = 128
"""Bytes of a block. The longest text has 125: two IPv6 addresses of 39, and a number of 20 digits."""
ROUNDS: Final = 12
LOW: Final = (1 << 63) - 1
LOWEST: Final = -(1 << 63)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


IV: Final = tuple(
    _signed(word)
    for word in (
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    )
)
FIRST: Final = IV[0] ^ 0x01010000 ^ SESSION_ID_SIZE
"""The first word of the state: no key, no tree, a digest of 16 bytes."""
_PERMUTATIONS: Final = (
    "0123456789abcdef",
    "ea489fd61c02b753",
    "b8c052fdae367194",
    "7931dcbe265a40f8",
    "905724afe1bc683d",
    "2c6a0b834d75fe19",
    "c51fed4a0763928b",
    "db7ec13950f4862a",
    "6fe9b308c2d714a5",
    "a2847615fb9e3cd0",
)
ORDER: Final = tuple(int(word, 16) for number in range(ROUNDS) for word in _PERMUTATIONS[number % len(_PERMUTATIONS)])
"""The words of the block that each round takes, 16 for each."""


def session_id(*parts: object) -> bytes:
    """Hash the parts of a session's identity to its id."""
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=SESSION_ID_SIZE).digest()


@kernel
def _wrapped(value: int) -> int:
    """The lowest 64 bits of a number, as a signed number."""
    return (value & LOW) | ((value >> 63) & 1) * LOWEST


@kernel
def _rotated(value: int, by: int) -> int:
    """Rotate 64 bits to the right."""
    return ((value >> by) & ((1 << (64 - by)) - 1)) | _wrapped(value << (64 - by))


@kernel
def _mixed(a: int, b: int, c: int, d: int, x: int, y: int) -> tuple[int, int, int, int]:
    """The mixing function G."""
    a = _wrapped(a + b + int(x))
    d = _rotated(d ^ a, 32)
    c = _wrapped(c + d)
    b = _rotated(b ^ c, 24)
    a = _wrapped(a + b + int(y))
    d = _rotated(d ^ a, 16)
    c = _wrapped(c + d)
    b = _rotated(b ^ c, 63)
    return a, b, c, d


@kernel
def _digest(words: Any, size: int) -> tuple[int, int]:
    """The first two words of the hash of one block, which has so many bytes before its zeros."""
    v0, v1, v2, v3, v4, v5, v6, v7 = FIRST, IV[1], IV[2], IV[3], IV[4], IV[5], IV[6], IV[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = IV[0], IV[1], IV[2], IV[3], IV[4] ^ size, IV[5], ~IV[6], IV[7]
    for at in range(0, len(ORDER), 16):
        v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, words[ORDER[at]], words[ORDER[at + 1]])
        v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, words[ORDER[at + 2]], words[ORDER[at + 3]])
        v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, words[ORDER[at + 4]], words[ORDER[at + 5]])
        v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, words[ORDER[at + 6]], words[ORDER[at + 7]])
        v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, words[ORDER[at + 8]], words[ORDER[at + 9]])
        v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, words[ORDER[at + 10]], words[ORDER[at + 11]])
        v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, words[ORDER[at + 12]], words[ORDER[at + 13]])
        v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, words[ORDER[at + 14]], words[ORDER[at + 15]])
    return FIRST ^ v0 ^ v8, IV[1] ^ v1 ^ v9


@kernel
def _put_number(block: Any, at: int, value: int) -> int:
    """Write a number in decimal; returns the byte after it."""
    if value < 0:
        block[at] = 45
        at += 1
        value = -value
    size, rest = 1, value // 10
    while rest:
        size += 1
        rest //= 10
    for place in range(at + size - 1, at - 1, -1):
        block[place] = 48 + value % 10
        value //= 10
    return at + size


@kernel
def _put_text(block: Any, at: int, texts: Any, edges: Any, number: int) -> int:
    """Write one of the texts that lie end to end; returns the byte after it."""
    start, size = edges[number], edges[number + 1] - edges[number]
    copy(block, at, texts, start, size)
    return int(at + size)


@kernel
def write_ids(texts: Any, edges: Any, flows: Any, block: Any, words: Any, ids: Any) -> None:
    """Write two words for each flow; see `session_ids`.

    A flow is (client, client's port, server, server's port, word, number): client, server and word are texts. The first text is `tcp`.
    """
    for flow in range(len(flows)):
        for byte in range(BLOCK):
            block[byte] = 0
        at = _put_text(block, 0, texts, edges, 0) + 1
        for side in (0, 2):
            at = _put_text(block, at, texts, edges, int(flows[flow, side])) + 1
            at = _put_number(block, at, int(flows[flow, side + 1])) + 1
        at = _put_text(block, at, texts, edges, int(flows[flow, 4]))
        block[at] = 32
        at = _put_number(block, at + 1, int(flows[flow, 5]))
        for word in range(len(words)):
            words[word] = i64_le(block, 8 * word)
        ids[flow, 0], ids[flow, 1] = _digest(words, at)


def session_ids(clients: Side, servers: Side, kinds: Array, since: Array) -> Array:
    """Return the session id of each TCP flow, 16 bytes; `kinds` has the place in `SINCE_WORDS`, and `since` the number behind it."""
    write = active(write_ids)
    if write is write_ids:  # as plain Python, the library's hash is faster
        here, there = ([one.addresses[code] for code in one.codes.tolist()] for one in (clients, servers))
        sides = here, clients.ports.tolist(), there, servers.ports.tolist()
        known = (f"{SINCE_WORDS[kind]} {number}" for kind, number in zip(kinds.tolist(), since.tolist(), strict=True))
        names = [session_id("tcp", *parts) for parts in zip(*sides, known, strict=True)]
        return np.frombuffer(b"".join(names), np.uint8).reshape(-1, SESSION_ID_SIZE)
    texts = [text.encode() for text in ("tcp", *SINCE_WORDS, *clients.addresses, *servers.addresses)]
    first = 1 + len(SINCE_WORDS)
    flows = np.column_stack(
        (clients.codes + first, clients.ports, servers.codes + first + len(clients.addresses), servers.ports, kinds + 1, since)
    )
    ids = np.empty((len(flows), 2), np.int64)
    edges = np.cumsum([0, *map(len, texts)])
    write(np.frombuffer(b"".join(texts), np.uint8), edges, flows, np.empty(BLOCK, np.uint8), np.empty(BLOCK // 8, np.int64), ids)
    return ids.astype("<i8", copy=False).view(np.uint8)
