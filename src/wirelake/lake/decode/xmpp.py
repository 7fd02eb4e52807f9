"""Stanzas: takes the texts out of the message stanzas of XMPP streams.

An XMPP stream carries exchanges with many addresses. Each address makes a connection of its own, with an id and a flow. It begins with
its first text and has no end: the peer may go on over another stream. A gap costs the stanza it is in, and all bytes before the next
message stanza.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.accounting import HEADERS, OTHER
from wirelake.capture.blocks.block import ORIGIN_COLUMNS, ORIGIN_OFFSET, ORIGIN_START, ORIGIN_TS, Endpoint, Flow
from wirelake.lake.decode.runs import Runs
from wirelake.lake.decode.state import Speaker
from wirelake.lake.decode.streams import ScanInput, clip
from wirelake.protocols import xmpp
from wirelake.protocols.kernel import over_arrays

__all__ = ["LONGEST", "Begun", "Stanzas", "Stream", "Taken", "flow_with"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

LONGEST: Final = 2 * 1024 * 1024
"""Bytes of the longest stanza that is read; a longer one is skipped."""
SPARE: Final = 256
"""Bytes, and pieces, that the buffer of a direction holds at least."""
UNITS: Final = 4096
"""Stanzas that are found in one go."""
_BESIDE_GAP: Final = "xmpp beside a gap"
_REASONS: Final = {xmpp.WRAPPING: (HEADERS, "xmpp"), xmpp.GAP: (OTHER, _BESIDE_GAP)}
_FIRST: Final = b"<"[0]


class Begun(msgspec.Struct, frozen=True):
    """The first text of one side of an exchange, and its first one after a gap."""

    flow: Flow
    to_server: int
    ts: int
    place: int
    is_whole: bool
    """Whether the stream was seen from its beginning, without a gap."""


class Taken(msgspec.Struct):
    """The result of reading some runs."""

    scan_input: ScanInput | None
    """One run for each text; None: there are none."""
    begun: list[Begun]
    accounts: list[tuple[str, str, IntArray, list[tuple[int, int]]]]
    """Category, reason, pieces, and (start, length) of bytes that are no text."""
    rest: IntArray
    """Runs that are no XMPP."""


class Stream:
    """One direction of a stream.

    What waits is in `data`, and `origins` lead back to it, as in `state.Direction`.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.state = np.zeros(xmpp.STATE_COLUMNS, np.int64)
        self.state[xmpp.BEGAN] = xmpp.NOTHING
        self.data = np.zeros(0, np.uint8)
        self.origins = np.zeros((0, ORIGIN_COLUMNS), np.int64)
        self.is_passing = False
        """Whether the unfinished stanza is too long, and its beginning was dropped."""
        self.is_securing = False
        self.has_gap = False
        self.heard: dict[str, bool] = {}
        """Address -> whether texts were exchanged with it since the last gap."""


class _Buffer:
    """The bytes that wait of one direction while a block is read.

    It doubles when full, so that appending is cheap.

    Places count from the beginning of the buffer. Pieces are never overwritten: accounts refer to them until the block is read.
    """

    def __init__(self, data: ByteArray, origins: IntArray) -> None:
        self.data, self.origins = data, origins
        self.start, self.stop = 0, len(data)
        """Where the waiting bytes are."""
        self.first, self.last = 0, len(origins)
        """Which pieces are theirs."""

    def append(self, data: ByteArray, origins: IntArray) -> int:
        """Add a run; returns where it begins."""
        if self.stop + len(data) > len(self.data) or self.last + len(origins) > len(self.origins):
            self._grow(len(data), len(origins))
        at = self.stop
        self.stop += len(data)
        self.data[at : self.stop] = data
        mine = self.origins[self.last : self.last + len(origins)]
        mine[:] = origins
        mine[:, ORIGIN_START] += at
        self.last += len(origins)
        return at

    def drop(self, place: int) -> None:
        """Bytes before a place wait no more."""
        self.start = place
        self.first = max(self.first, bisect_right(self.origins[:, ORIGIN_START], place, self.first, self.last) - 1)

    def waiting(self) -> tuple[ByteArray, IntArray]:
        """What waits, and its pieces."""
        return self.data[self.start : self.stop].copy(), clip(self.origins[self.first : self.last], self.start, self.stop)

    def _grow(self, size: int, count: int) -> None:
        held, places = self.waiting()
        self.data = np.zeros(2 * (len(held) + size) + SPARE, np.uint8)
        self.origins = np.zeros((2 * (len(places) + count) + SPARE, ORIGIN_COLUMNS), np.int64)
        self.data[: len(held)], self.origins[: len(places)] = held, places
        self.start, self.stop, self.first, self.last = 0, len(held), 0, len(places)


class Stanzas:
    """Takes the runs of streams, block after block. `directions` has their state; None: not XMPP."""

    def __init__(self, directions: dict[Speaker, Stream | None]) -> None:
        self._directions = directions

    def is_absent(self, runs: Runs) -> bool:
        """Whether no direction of these runs is XMPP; new ones that are none are noted."""
        missing, first = runs.missing.tolist(), runs.first_bytes.tolist()
        for item in range(len(runs)):
            speaker = runs.speaker(item)
            if speaker not in self._directions:
                if missing[item] == 0 and first[item] == _FIRST:
                    return False
                self._directions[speaker] = None
            elif self._directions[speaker] is not None:
                return False
        return True

    def take(
        self, data: ByteArray, segments: IntArray, origins: IntArray, flows: Sequence[Flow], is_text: Callable[[bytes], bool]
    ) -> Taken:
        """What `is_text` recognises in these runs, and an account of the rest."""
        taken = _Taking(is_text)
        rest = []
        for segment in segments.tolist():
            start, stop, number, to_server, missing = segment
            speaker = (flows[number].session_id, to_server)
            if speaker not in self._directions:
                is_xmpp = missing == 0 and data[start] == _FIRST
                self._directions[speaker] = Stream(flows[number]) if is_xmpp else None
            one = self._directions[speaker]
            if one is None:
                rest.append(segment)
                continue
            if missing:
                taken.settle(one)
                self._leave(one, taken)
            self._read(one, to_server, data[start:stop], clip(origins, start, stop), taken)
        taken.settle()
        return taken.finished(np.array(rest, np.int64).reshape(-1, segments.shape[1]))

    def end(self, speaker: Speaker) -> Taken:
        """This speaker sends nothing more, or too much waits: give up its unfinished stanza."""
        taken = _Taking(lambda _: False)
        if (one := self._directions.get(speaker)) is not None:
            self._leave(one, taken, "xmpp that is not finished")
        return taken.finished(np.zeros((0, 0), np.int64))

    def _leave(self, one: Stream, taken: _Taking, why: str = _BESIDE_GAP) -> None:
        """Bytes are missing: give up the unfinished stanza."""
        taken.account(OTHER, why, one.origins, 0, len(one.data))
        if one.state[xmpp.PHASE] != xmpp.LOST:
            one.state[:] = 0
            one.state[xmpp.PHASE], one.state[xmpp.BEGAN] = xmpp.SEARCH, xmpp.NOTHING
        one.data, one.origins = one.data[:0], one.origins[:0]
        one.is_passing, one.has_gap = False, True
        one.heard = dict.fromkeys(one.heard, False)

    def _read(self, one: Stream, to_server: int, data: ByteArray, origins: IntArray, taken: _Taking) -> None:
        buffer = taken.buffer(one)
        at = buffer.append(data, origins)
        whole, places = buffer.data[: buffer.stop], buffer.origins[buffer.first : buffer.last]
        units = taken.units
        one.state[xmpp.DONE] = buffer.start
        if one.state[xmpp.BEGAN] != xmpp.NOTHING:
            one.state[xmpp.BEGAN] = buffer.start
        while at < len(whole):
            count, at = over_arrays(xmpp.stanzas)(whole, at, len(whole), one.state, units)
            for start, stop, what in units[: count * xmpp.UNIT_COLUMNS].reshape(-1, xmpp.UNIT_COLUMNS).tolist():
                if what == xmpp.STANZA and not one.is_passing:
                    self._open(one, to_server, whole[start:stop].tobytes(), clip(places, start, stop), taken)
                else:
                    strange = (OTHER, "starttls" if one.is_securing else "xmpp that is no XML")
                    taken.account(*_REASONS.get(what, (OTHER, "xmpp") if what == xmpp.STANZA else strange), places, start, stop - start)
                one.is_passing = False
        done = int(one.state[xmpp.DONE])
        if len(whole) - done > LONGEST or one.is_passing:
            taken.account(OTHER, "xmpp", places, done, len(whole) - done)
            one.is_passing, done = True, len(whole)
        buffer.drop(done)

    def _open(self, one: Stream, to_server: int, stanza: bytes, origins: IntArray, taken: _Taking) -> None:
        """Read one stanza: a text, or something else."""
        one.is_securing = xmpp.secures(stanza)
        found = xmpp.body(stanza, by_client=bool(to_server))
        if found is None or not taken.is_text(found.text):
            taken.account(OTHER, "xmpp", origins, 0, len(stanza))
            return
        flow = flow_with(one.flow, found.peer)
        first = taken.text(flow, to_server, found, origins, len(stanza))
        if not one.heard.get(found.peer, False):
            is_new = found.peer not in one.heard
            one.heard[found.peer] = True
            taken.begun.append(Begun(flow, to_server, *first, is_whole=is_new and not one.has_gap))


class _Taking:
    """The texts and accounts of the block that is being read."""

    def __init__(self, is_text: Callable[[bytes], bool]) -> None:
        self.is_text = is_text
        self.units = np.zeros(UNITS * xmpp.UNIT_COLUMNS, np.int64)
        self._buffers: dict[Stream, _Buffer] = {}
        self.begun: list[Begun] = []
        self._accounts: dict[tuple[str, str, int], tuple[IntArray, list[tuple[int, int]]]] = {}
        self._flows: dict[Flow, int] = {}
        self._data: list[bytes] = []
        self._origins: list[IntArray] = []
        self._segments: list[tuple[int, int, int, int]] = []
        self._size = 0

    def buffer(self, one: Stream) -> _Buffer:
        """The buffer of a direction."""
        if one not in self._buffers:
            self._buffers[one] = _Buffer(one.data, one.origins)
        return self._buffers[one]

    def settle(self, *chosen: Stream) -> None:
        """Write the buffers of these directions, or of all, back to their state."""
        for one in chosen or list(self._buffers):
            if (buffer := self._buffers.pop(one, None)) is not None:
                one.data, one.origins = buffer.waiting()

    def account(self, category: str, reason: str, origins: IntArray, start: int, length: int) -> None:
        """Bytes that are no text."""
        if length:
            self._accounts.setdefault((category, reason, id(origins)), (origins, []))[1].append((start, length))

    def text(self, flow: Flow, to_server: int, found: xmpp.Body, origins: IntArray, size: int) -> tuple[int, int]:
        """Add one text; returns when and where it begins."""
        begin, at = self._size, 0
        for place, chunk in found.chunks:
            self.account(HEADERS, "xmpp", origins, at, place - at)
            at = place + len(chunk)
            mine = clip(origins, place, at)
            self._origins.append(mine + np.array([self._size, 0, 0]))
            self._data.append(chunk)
            self._size += len(chunk)
        self.account(HEADERS, "xmpp", origins, at, size - at)
        self._segments.append((begin, self._size, self._flows.setdefault(flow, len(self._flows)), to_server))
        first = self._origins[-len(found.chunks)]
        return int(first[0, ORIGIN_TS]), int(first[0, ORIGIN_OFFSET])

    def finished(self, rest: IntArray) -> Taken:
        """The result for the block."""
        scan_input = None
        if self._segments:
            data = np.frombuffer(b"".join(self._data), np.uint8)
            scan_input = ScanInput(data, np.array(self._segments, np.int64), np.concatenate(self._origins), list(self._flows))
        accounts = [(category, reason, origins, spans) for (category, reason, _), (origins, spans) in self._accounts.items()]
        return Taken(scan_input, self.begun, accounts, rest)


def flow_with(stream: Flow, peer: str) -> Flow:
    """The flow of what a stream's owner exchanges with an address. The owner is its client."""
    name = blake2b(stream.session_id + peer.encode(), digest_size=len(stream.session_id)).digest()
    return msgspec.structs.replace(stream, session_id=name, transport="xmpp", server=Endpoint(peer, 0))
