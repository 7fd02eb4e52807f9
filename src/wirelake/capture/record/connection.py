"""One connection in a recording: its frames and events, as exported PDUs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wirelake.capture.record.exported_pdu import RECEIVED, SENT, Tags, build, info_text, is_address

if TYPE_CHECKING:
    from wirelake.capture.record.recorder import Recorder

__all__ = ["Connection", "Dialect", "Role", "Sizes"]

Role = Literal["client", "server"]

Dialect = Callable[[], Sequence[str] | None]
"""Returns the flags of a protocol's limits that this peer needs beyond its specification.

None: not known yet.
"""

MOST_CHUNKS: Final = 256
"""Chunks whose size and time are remembered, to say what was unconfirmed at the end; beyond it neighbours are joined."""

Sizes = Callable[[], Iterable[int]]
"""Returns the sizes of the frames in a chunk, in order.

Called only for a chunk that is too long for one record.
"""

LONGEST_WORD: Final = 200
"""Characters kept of a text such as the reason of a close."""

_PORT_TYPES: Final = {"tcp": 2, "tls": 2, "websocket": 2, "xmpp": 2, "udp": 3, "quic": 3, "dtls": 3}
_SAID_BY_PORT_TYPE: Final = frozenset(["tcp", "udp"])


class _Chunk(NamedTuple):
    """Bytes that were sent, and recorded with these times."""

    first: int
    """Microseconds since 1970."""
    last: int
    size: int

    def joined(self, last: int, size: int) -> _Chunk:
        """Return one chunk of this and the next."""
        return _Chunk(self.first, max(self.last, last), self.size + size)


class Connection:
    """One recorded connection; `Recorder.connection` makes it."""

    def __init__(
        self,
        recorder: Recorder,
        protocol: str,
        role: Role,
        transport: str,
        local: tuple[str, int],
        remote: tuple[str, int],
        name: bytes,
        dialect: Dialect,
    ) -> None:
        self.id = name
        self._recorder = recorder
        self._protocol = protocol
        self._transport = transport
        self._ends = (local, remote)
        self._words = {
            "connection": name.hex(),
            "observer": recorder.observer,
            "role": role,
            "transport": "" if transport in _SAID_BY_PORT_TYPE else transport,
        }
        self._dialect = dialect
        self._sent: deque[_Chunk] = deque()
        """What was sent last: at most `MOST_CHUNKS`."""
        self._frame_tags: dict[int, bytes] = {}
        """Direction -> the tags of its records, once the dialect is known."""
        self._local_is: str = role
        self._event(SENT if role == "client" else RECEIVED, event="opened")

    def sent(self, data: bytes | bytearray | memoryview, sizes: Sizes | None = None) -> None:
        """Record whole frames that the recording side sent."""
        first, last = self._recorder._write_frames(self._frame_tags.get(SENT) or self._begin(SENT), data, sizes)
        chunks = self._sent
        if chunks and first <= chunks[-1].last:
            chunks[-1] = chunks[-1].joined(last, len(data))
            return
        chunks.append(_Chunk(first, last, len(data)))
        if len(chunks) > MOST_CHUNKS:
            pairs = zip(*[iter(chunks)] * 2, strict=False)
            self._sent = deque([*(one.joined(other.last, other.size) for one, other in pairs), *([chunks[-1]] * (len(chunks) % 2))])

    def received(self, data: bytes | bytearray | memoryview, sizes: Sizes | None = None) -> None:
        """Record whole frames that the recording side received."""
        self._recorder._write_frames(self._frame_tags.get(RECEIVED) or self._begin(RECEIVED), data, sizes)

    def finished(self, by: Role) -> None:
        """Record that one side has sent its last byte."""
        self._event(SENT if by == self._local_is else RECEIVED, event="finished", by=by)

    def closed(self, how: str, by: str = "", *, is_reset: bool = False, unconfirmed: int = 0) -> None:
        """Record that the connection is over, how (`bye`, `eof`, `timeout`, …), and which side ended it; empty: unknown.

        `unconfirmed` bytes, the last of those sent, had not left this machine by then.
        """
        words = {"event": "reset" if is_reset else "closed", "how": how[:LONGEST_WORD], "by": by}
        if unconfirmed:
            since, confirmed = self._boundary(unconfirmed)
            words |= {"unconfirmed": str(unconfirmed), "since": str(since), "confirmed": str(confirmed)}
        self._event(SENT if by in ("", self._local_is) else RECEIVED, **words)

    def _boundary(self, unconfirmed: int) -> tuple[int, int]:
        """Return the time of the record in which the last so many bytes begin, and how many sent since then come before them."""
        size = 0
        for chunk in reversed(self._sent):
            size += chunk.size
            if size >= unconfirmed:
                return chunk.first, size - unconfirmed
        return (self._sent[0].first if self._sent else 0), 0

    def flush(self) -> None:
        """Write what was recorded so far; a failure is raised when the recorder is closed."""
        with self._recorder._lock:
            self._recorder._drain()

    def _begin(self, direction: int) -> bytes:
        """Return the tags of a direction's records. They are kept for later records once the dialect is known."""
        tags = self._tags(direction)
        if self._dialect() is not None:
            self._frame_tags[direction] = tags
        return tags

    def _event(self, direction: int, **words: str) -> None:
        self._recorder._write(self._tags(direction, **words), b"")

    def _tags(self, direction: int, **words: str) -> bytes:
        """Return the tags of a record; source and destination follow its direction."""
        source, destination = self._ends if direction == SENT else self._ends[::-1]
        for word, end in (("source", source), ("destination", destination)):
            words[word] = "" if is_address(end[0]) else end[0][:LONGEST_WORD]  # a host name or a socket's path has no tag of its own
        words["dialect"] = ",".join(self._dialect() or ())
        tags = Tags(
            dissector=self._protocol,
            source=source[0],
            destination=destination[0],
            port_type=_PORT_TYPES.get(self._transport, 0),
            source_port=source[1],
            destination_port=destination[1],
            protocol_column=self._protocol.upper(),
            direction=direction,
            info=info_text(self._words | words),
        )
        return build(tags)
