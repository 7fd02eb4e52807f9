"""A slow, obvious reader of YAMP: one message at a time, straight down the specification.

It shares nothing with the scanner but the names of faults, so that both can be held to each other.
"""

from __future__ import annotations

from typing import NamedTuple

from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.limits import Limits


class Short(Exception):
    """The message takes this many bytes; 0 if that cannot be known yet."""

    def __init__(self, need: int) -> None:
        self.need = need
        super().__init__(need)


class Read(NamedTuple):
    """What the scanner should say of one message."""

    start: int
    length: int
    kind: int
    fault: int
    fault_at: int
    uri: bytes | None
    body: bytes
    code: int
    odd: set[str]


class Reader:
    """Takes fields one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.start, self.at = data, at, at

    def need(self, size: int) -> None:
        """So many bytes must be there before anything else is read."""
        if len(self.data) - self.at < size:
            raise Short(0)

    def rest(self, size: int) -> bytes:
        """The end of the message."""
        if len(self.data) - self.at < size:
            raise Short(self.at + size - self.start)
        return self.take(size)

    def take(self, size: int) -> bytes:
        self.need(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))


def lost(reader: Reader, fault: Fault, at: int) -> Read:
    return Read(reader.start, len(reader.data) - reader.start, -1, fault, at, None, b"", -1, set())


def broken(text: bytes) -> int | None:
    """Where UTF-8 breaks: a cut character at the end breaks at the end."""
    try:
        text.decode()
    except UnicodeDecodeError as reason:
        if reason.reason == "unexpected end of data":
            return len(text)
        return reason.end if reason.reason == "invalid continuation byte" else reason.start
    return None


def read(data: bytes, at: int, limits: Limits) -> Read | int:
    """The message at this place; an integer if it is not all there: the bytes it takes, 0 if that is unknown."""
    reader = Reader(data, at)
    if at == len(data):
        return 0
    try:
        return read_user(reader, limits) if data[at] >= 5 else read_system(reader, limits)
    except Short as short:
        return short.need


def read_system(reader: Reader, limits: Limits) -> Read:
    kind, code, odd, fault, fault_at = reader.data[reader.at], -1, set(), 0, reader.at
    size_bytes = {0: 1, 1: 1, 2: 1, 3: 2, 4: 1 if limits.one_byte_redirect_size else 2}[kind]
    reader.need(1 + (2 if kind == 0 else 0) + size_bytes)
    reader.take(1)
    if kind == 0:
        code = reader.number(2)
    body = reader.rest(reader.number(size_bytes))
    where = broken(body) if kind not in (1, 2) else None
    if where is not None:
        if kind == 3:
            odd.add("reason")
        else:
            fault = Fault.SERIALIZER_NOT_UTF8 if kind == 0 else Fault.URL_NOT_UTF8
            fault_at = reader.at - len(body) + where
    if kind == 0 and not body:
        odd.add("serializer")
    return Read(reader.start, reader.at - reader.start, kind, fault, fault_at, None, body, code, odd)


def read_user(reader: Reader, limits: Limits) -> Read:
    kind, code, odd, fault, fault_at, body = reader.data[reader.at], -1, set(), 0, reader.at, b""
    if kind > 8:
        return lost(reader, Fault.TYPE_UNKNOWN, reader.start)
    reader.need(18)
    reader.take(17)
    uri_size = reader.number(1)
    reader.need(uri_size + {5: 4, 6: 5, 7: 17, 8: 21}[kind])
    uri = reader.take(uri_size)
    where = broken(uri)
    if not uri:
        odd.add("uri")
    if kind >= 7:
        reader.take(16)
    if kind >= 6:
        code_at, code = reader.at, reader.number(1)
        if kind < 8 and code > 1:
            odd.add("bool")
        if kind == 8 and code > 3:
            fault, fault_at = Fault.RESPONSE_TYPE_UNKNOWN, code_at
    if kind != 7:
        size_at, size = reader.at, reader.number(4)
        if size > limits.max_body_size:
            return lost(reader, Fault.BODY_OVER_LIMIT, size_at)
        body = reader.rest(size)
    if where is not None:
        fault, fault_at = Fault.URI_NOT_UTF8, reader.start + 18 + where
    return Read(reader.start, reader.at - reader.start, kind, fault, fault_at, uri, body, code, odd)
