"""The handshake of a connection for readers: each direction's stage, and channel id sizes.

A reader keeps one `HandshakeReader` per connection, asks it for the limits of each direction, and gives it every row of the handshake. A
listener's packets cannot be read before the connector's request: `limits` returns None until then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Final

import msgspec

from wirelake.errors import LocalProtocolError
from wirelake.protocols.buffer import Buffer, Frames
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, START, Octets
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.limits import PacketLimits
from wirelake.protocols.relink.messages import LAST_LINK_ID, Format, Kind
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, IDS, LINK, PART_COLUMNS, ROW_COLUMNS, UNIT, Limits, Stage, plausible, scan
from wirelake.protocols.relink.state_machine import Speaker

__all__ = ["Agreed", "Following", "HandshakeReader", "HandshakeState", "sniff"]

LONGEST_PART: Final = 280
"""§1: a request with the longest name is not longer."""
EPOCHS: Final = range(10**15, 5 * 10**15)
"""RELINK-9: microseconds since 1970 that a listener may have begun at, from 2001 to 2128: what a reply is recognised by."""
_MESSAGE: Final = bytes([1 | Format.MESSAGE << 2])
"""§2: how a message on one channel begins, in its plainest form."""
_NEXT: Final[dict[tuple[Speaker, int], Stage]] = {
    (Speaker.CONNECTOR, Kind.VERSION): Stage.REQUEST,
    (Speaker.LISTENER, Kind.VERSION): Stage.REPLY,
    (Speaker.CONNECTOR, Kind.REQUEST): Stage.PACKETS,
    (Speaker.LISTENER, Kind.REPLY): Stage.PACKETS,
}


Byte = Annotated[int, msgspec.Meta(ge=0, le=0xFF)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class Agreed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last of the scanner's limits: those that the peers agreed on. The ones before them are the reader's own."""

    stage: Stage
    id_size: Byte
    other_id_size: Byte


class HandshakeState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A `HandshakeReader` as it is stored."""

    stages: tuple[Stage, Stage]
    id_sizes: tuple[Byte, Byte] | None
    link: tuple[Number, Number] | None


class HandshakeReader:
    """The stages of the handshake on one connection."""

    def __init__(
        self, limits: PacketLimits = DEFAULT_LIMITS, id_sizes: tuple[int, int] | None = None, stage: Stage = Stage.VERSION
    ) -> None:
        self._limits = limits
        self._stages = [stage, stage]
        self.id_sizes = id_sizes
        """The connector's and the listener's channel id size, once known; a connector knows them from the start."""
        self.link: tuple[int, int] | None = None
        """The epoch and the link id the listener agreed to, once it did: what makes several connections one link."""

    @cached_property
    def session(self) -> bytes | None:
        """16 bytes that identify the link in tables, on all its connections; None if there is none. For when the handshake is over."""
        if self.link is None or not self.link[1]:
            return None
        name = b"".join(number.to_bytes(8, "big") for number in self.link)
        return hashlib.blake2b(name, digest_size=16, person=b"relink link").digest()

    def is_over(self, speaker: Speaker) -> bool:
        """Whether this side has finished its part of the handshake."""
        return self._stages[speaker] is Stage.PACKETS

    def limits(self, speaker: Speaker, accepted: PacketLimits | None = None) -> tuple[int, ...] | None:
        """The scanner's limits for the next bytes of this side; None: they cannot be read yet.

        A stored HandshakeReader does not have its reader's limits: pass them as `accepted`.
        """
        limits = accepted or self._limits
        stage = self._stages[speaker]
        if stage is not Stage.PACKETS:
            return limits.for_scan(stage)
        if self.id_sizes is None:
            return None
        return limits.for_scan(stage, self.id_sizes[speaker], self.id_sizes[1 - speaker])

    def state(self) -> HandshakeState:
        """The state to store."""
        return HandshakeState((self._stages[0], self._stages[1]), self.id_sizes, self.link)

    @classmethod
    def restored(cls, state: HandshakeState) -> HandshakeReader:
        """Make a reader that continues from a state."""
        handshake = cls()
        handshake._stages, handshake.id_sizes, handshake.link = list(state.stages), state.id_sizes, state.link
        return handshake

    @staticmethod
    def agreed(given: tuple[int, ...]) -> Agreed | None:
        """The part of the scanner's limits that peers agreed on; None: nothing is read."""
        return Agreed(Stage(given[-3]), given[-2], given[-1]) if given else None

    @staticmethod
    def given(agreed: Agreed | None, limits: Limits = DEFAULT_LIMITS) -> tuple[int, ...]:
        """The scanner's limits of a reader with `limits`, for the part that peers agreed on."""
        return limits.for_scan(agreed.stage, agreed.id_size, agreed.other_id_size) if agreed else ()

    @staticmethod
    def parts(limits: PacketLimits) -> list[tuple[Speaker, tuple[int, ...]]]:
        """§1: the four parts of every handshake, each with the scanner's limits."""
        sides = ((Speaker.CONNECTOR, Stage.REQUEST), (Speaker.LISTENER, Stage.REPLY))
        return [(speaker, limits.for_scan(stage)) for speaker, second in sides for stage in (Stage.VERSION, second)]

    def follow(self, speaker: Speaker, data: bytes | memoryview, row: Sequence[int]) -> bool:
        """Take a row that was read from this side; return whether its limits change from now on."""
        stage = _NEXT.get((speaker, row[KIND])) if self._stages[speaker] is not Stage.PACKETS else None
        if stage is None:
            return False
        self._stages[speaker] = stage
        if row[KIND] == Kind.REQUEST:
            self.id_sizes = (data[row[IDS]], data[row[IDS] + 1])
        elif row[KIND] == Kind.REPLY:
            self.link = _numbers(data, row[START] + row[LENGTH] - LINK)
        return True

    def pieces(self, speaker: Speaker, data: Octets, start: int, stop: int) -> Iterator[tuple[tuple[int, ...] | None, int, int]]:
        """Divide bytes of this side into pieces that the scanner reads with the same limits: (limits, start, stop).

        This follows the handshake. A piece that cannot be read yet has None as limits. An incomplete part of the handshake is a piece, too:
        pass it again together with the bytes after it.
        """
        while start < stop:
            limits = self.limits(speaker)
            end = stop
            if limits is not None and self._stages[speaker] is not Stage.PACKETS:
                part, row = bytes(data[start : min(stop, start + LONGEST_PART)]), [0] * ROW_COLUMNS
                if scan(part, 0, len(part), row, [], limits)[0]:
                    end = start + row[LENGTH]
                    self.follow(speaker, part, row)
            yield limits, start, end
            start = end


class Following(Buffer):
    """A buffer for one direction of a connection that follows the handshake by itself."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._speaker = Speaker.LISTENER if limits.speaks == "listener" else Speaker.CONNECTOR
        sizes = None
        if limits.connector_id_size is not None and limits.listener_id_size is not None:
            sizes = (limits.connector_id_size, limits.listener_id_size)
        self._handshake = HandshakeReader(limits, sizes, Stage.VERSION if limits.handshake else Stage.PACKETS)
        super().__init__(scan, ROW_COLUMNS, PART_COLUMNS, self._now(), limits.max_parts)

    def _now(self) -> tuple[int, ...]:
        limits = self._handshake.limits(self._speaker)
        if limits is None:
            raise LocalProtocolError(Fault.ID_SIZES_UNKNOWN, "say connector_id_size and listener_id_size")
        return limits

    def feed(self, data: bytes) -> Iterator[Frames]:
        """See Buffer; raises LocalProtocolError if packets follow whose channel id sizes are unknown."""
        for whole, rows, parts in super().feed(data):
            changes = [self._handshake.follow(self._speaker, whole, row) for row in rows if not row[FAULT]]
            yield whole, rows, parts
            if True in changes:
                self.limits = self._now()


def sniff(data: bytes) -> bool:
    """Whether a stream that begins like this is Relink: version 0, then a request or a reply that nothing else would look like.

    The eight zero bytes a connection begins with say nothing by themselves.
    """
    return data[:UNIT] == bytes(UNIT) and (_requests(data) or _replies(data))


def _requests(data: bytes) -> bool:
    """Whether a whole request follows the version, with nothing odd in it.

    One without a name is certain only with a link to resume, or with a message behind it: the rest may be nothing but zeros.
    """
    if len(data) <= UNIT:
        return False
    name_end = UNIT + 1 + data[UNIT]
    start = UNIT + (name_end + 3 - UNIT + UNIT - 1) // UNIT * UNIT
    end = start + LINK
    if len(data) < end or data[name_end + 2] > 7 or any(data[name_end + 3 : start]) or data[end - 1] & 0x80:
        return False
    try:
        name = data[UNIT + 1 : name_end].decode()
    except UnicodeDecodeError:
        return False
    epoch, link = _numbers(data, start)
    if not name.isprintable() or (link and not epoch):
        return False
    limits = DEFAULT_LIMITS.for_scan(Stage.PACKETS, data[name_end], data[name_end + 1])
    is_message = data[end : end + 1] == _MESSAGE and any(data[end + 1 : end + 2]) and plausible(data, end, len(data), limits) > 0
    return bool(name) or (link > 0 and epoch in EPOCHS) or is_message


def _replies(data: bytes) -> bool:
    """Whether a whole reply follows the version: an epoch of our time, and a link."""
    if len(data) < UNIT + LINK:
        return False
    epoch, link = _numbers(data, UNIT)
    return epoch in EPOCHS and 0 < link <= LAST_LINK_ID


def _numbers(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """§1: an epoch and the link id behind it."""
    return int.from_bytes(data[at : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
