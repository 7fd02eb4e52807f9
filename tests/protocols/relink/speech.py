"""Relink's bytes by hand, in every form, right or wrong: for tests that must not trust our own encoder."""

from __future__ import annotations

GENERAL = {name: bytes((number << 5,)) + bytes(7) for number, name in enumerate(("nop", "ping", "pong", "resume", "shutdown"))}


def pad(data: bytes, unit: int = 8, fill: int = 0) -> bytes:
    return data + bytes([fill]) * (-len(data) % unit)


def whom(first: int, second: int, ids: tuple[bytes, ...], multicast: bool, fill: int = 0) -> bytes:
    if multicast:
        return bytes((first | 2, second, fill, fill)) + len(ids).to_bytes(4, "little") + b"".join(ids)
    return bytes((first, second)) + ids[0]


def control(form: int, kind: int, ids: tuple[bytes, ...], sequence: int | None = None, *, multicast: bool = False, fill: int = 0) -> bytes:
    data = whom(kind << 5 | form << 2 | 1, fill, ids, multicast, fill)
    if sequence is not None:
        data = pad(data, 4, fill) + sequence.to_bytes(4, "little")
    return pad(data, 8, fill)


def message(
    ids: tuple[bytes, ...] = (b"",),
    parts: tuple[bytes, ...] = (),
    *,
    multicast: bool = False,
    long: bool = False,
    large: bool = False,
    fill: int = 0,
    sizes: list[int] | None = None,
    length: int | None = None,
) -> bytes:
    """A message; `sizes` and `length` may lie."""
    count = len(parts) if length is None else length
    first = 0x11 | (0x20 if long else 0) | (0x40 if large else 0) | (0x80 if fill else 0)
    data = pad(whom(first, (fill if long else count), ids, multicast, fill), 2, fill)
    if long:
        data += count.to_bytes(4, "little")
    if large:
        data = pad(data, 8, fill)
    for one in sizes if sizes is not None else map(len, parts):
        data += one.to_bytes(8 if large else 2, "little")
    data = pad(data, 8, fill)
    for part in parts:
        data += pad(part, 8, fill)
    return data


def request(name: bytes = b"demo", sizes: tuple[int, int] = (0, 0), flags: int = 0, epoch: int = 0, link: int = 0, fill: int = 0) -> bytes:
    data = pad(bytes((len(name),)) + name + bytes((*sizes, flags)), 8, fill)
    return data + epoch.to_bytes(8, "little") + link.to_bytes(8, "little")


def reply(epoch: int, link: int) -> bytes:
    return epoch.to_bytes(8, "little") + link.to_bytes(8, "little")
