"""WebSockets (RFC 6455) in a capture: the opening handshake, and the payload of frames.

For protocols that may travel inside: the payload of binary messages is unmasked in place, so that offsets into the capture stay right. Live
connections do not need this: they use a library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wirelake.protocols.kernel import kernel

__all__ = [
    "CHAIN",
    "CONTROL",
    "FRAME",
    "GOT",
    "LEFT",
    "LOST",
    "OPENING",
    "PAYLOAD",
    "PHASE",
    "STATE_COLUMNS",
    "TURN",
    "find",
    "inside",
    "is_state",
    "opening",
    "unframe",
]

LONGEST_HEAD: Final = 16 * 1024
"""Bytes of an opening handshake at most."""
ENOUGH: Final = 1024
"""Bytes of frames that are looked into to recognise what is inside."""
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0."""
CHAIN: Final = 4
"""Headers that must follow each other before the first is believed.

Where the stream ends: two, or one whose frame ends there, too.
"""

# What is known of one direction: a row of numbers that the kernel keeps up to date.
PHASE: Final = 0
LEFT: Final = 1
"""Bytes of this frame's payload that are still to come."""
MASKED: Final = 2
"""1 if the payload is masked."""
TURN: Final = 3
"""Which byte of the mask is next."""
GOT: Final = 4
"""Bytes of the frame's header that are there; of the opening handshake, how much of its end was seen."""
HEADER: Final = 5
"""Where those bytes are kept, mask included."""
LONGEST_HEADER: Final = 14
STATE_COLUMNS: Final = HEADER + LONGEST_HEADER

# Phases.
OPENING: Final = 0
"""In the opening handshake, which is HTTP."""
FRAME: Final = 1
"""In the header of a frame."""
PAYLOAD: Final = 2
"""In the payload of a binary message."""
CONTROL: Final = 3
"""In the payload of a control frame."""
LOST: Final = 4
"""A text message, an extension such as compression, or an invalid frame: nothing more is read."""

_TEXT: Final = 1
_BINARY: Final = 2
_CONTROL: Final = 8
_LAST_CONTROL: Final = 10
_CR: Final = 13
_LF: Final = 10


@kernel
def unframe(data: Any, start: int, stop: int, state: Any, spans: Any) -> tuple[int, int]:
    """Go on with one direction: data[start:stop] is what comes next of it.

    Payload of binary messages is unmasked where it stands.

    Writes where payload begins and ends, two numbers each, and returns (how many such spans, where reading stopped): before `stop` if it
    is lost. `spans` must hold one for each byte. Frames may be cut anywhere: `state` remembers.
    """
    count, at = 0, start
    while 0 <= at < stop and state[PHASE] != LOST:
        if state[PHASE] == OPENING:
            byte, seen = 0 + data[at], state[GOT]
            state[GOT] = seen + 1 if byte == (_CR if seen % 2 == 0 else _LF) else (1 if byte == _CR else 0)
            if state[GOT] == 4:
                state[PHASE], state[GOT] = FRAME, 0
            at += 1
        elif state[PHASE] == FRAME:
            state[HEADER + state[GOT]] = data[at]
            state[GOT] += 1
            at += 1
            if state[GOT] >= 2:
                size, masked = state[HEADER + 1] & 0x7F, state[HEADER + 1] >> 7
                wide = 2 if size == 126 else 8 if size == 127 else 0
                if state[GOT] == 2 + wide + 4 * masked:
                    first = state[HEADER]
                    opcode = first & 0x0F
                    if wide:
                        size = 0
                        for place in range(HEADER + 2, HEADER + 2 + wide):
                            size = FARTHEST if size >= FARTHEST else (size << 8) | state[place]
                    for place in range(4 * masked):  # the mask, to where it is looked for
                        state[HEADER + place] = state[HEADER + 2 + wide + place]
                    state[LEFT], state[MASKED], state[TURN], state[GOT] = size, masked, 0, 0
                    if first & 0x70 or opcode == _TEXT or _BINARY < opcode < _CONTROL or opcode > _LAST_CONTROL or size >= FARTHEST:
                        state[PHASE] = LOST
                    elif size:
                        state[PHASE] = CONTROL if opcode >= _CONTROL else PAYLOAD
        else:
            size = min(state[LEFT], stop - at)
            if state[PHASE] == PAYLOAD:
                if state[MASKED]:
                    for place in range(size):
                        data[at + place] ^= state[HEADER + ((state[TURN] + place) & 3)]
                if count and spans[2 * count - 1] == at:
                    spans[2 * count - 1] = at + size
                else:
                    spans[2 * count], spans[2 * count + 1] = at, at + size
                    count += 1
            state[TURN] = (state[TURN] + size) & 3
            state[LEFT] -= size
            at += size
            if state[LEFT] == 0:
                state[PHASE] = FRAME
    return count, at


def is_state(state: Sequence[int]) -> bool:
    """Whether a row can be the state of a direction; `unframe` uses it as indices without checks."""
    if len(state) != STATE_COLUMNS or not all(0 <= byte <= 0xFF for byte in state[HEADER:]):
        return False
    phase, left, masked, turn, got = state[:HEADER]
    if phase == LOST:  # perhaps by a length that nothing has; none of this is read again
        return True
    if not (0 <= left < FARTHEST and masked in (0, 1) and 0 <= turn <= 3):
        return False
    if phase == OPENING:
        return 0 <= got <= 3
    if phase == FRAME:
        size = state[HEADER + 1] & 0x7F
        wide = 2 if size == 126 else 8 if size == 127 else 0
        return 0 <= got < 2 or 2 <= got < 2 + wide + 4 * (state[HEADER + 1] >> 7)
    return phase in (PAYLOAD, CONTROL) and left > 0 and got == 0


@kernel
def _plausible(data: Any, at: int, stop: int, masked: int, phase: int) -> tuple[int, int]:
    """(size of the frame whose header stands here, what may come next).

    Size 0: this is no header, or not all of it is there.

    RFC 6455 §5.2, §5.4 and §5.5: no reserved bits, the shortest form of a length, small control frames in one piece, and continuations only
    inside a message. `phase` is 0 between messages, 1 inside one that goes on, and -1 when that is not known. Text frames are not read.
    """
    if stop - at < 2:
        return 0, phase
    first, second = 0 + data[at], 0 + data[at + 1]
    opcode, is_last, size = first & 0x0F, first >> 7, second & 0x7F
    wide = 2 if size == 126 else 8 if size == 127 else 0
    if first & 0x70 or second >> 7 != masked or stop - at < 2 + wide + 4 * masked:
        return 0, phase
    if _CONTROL <= opcode <= _LAST_CONTROL:
        return 0 if wide or not is_last else 2 + 4 * masked + size, phase
    if (opcode != 0 and opcode != _BINARY) or (opcode == 0 and phase == 0) or (opcode == _BINARY and phase == 1):
        return 0, phase
    if wide:
        size = 0
        for place in range(at + 2, at + 2 + wide):
            size = FARTHEST if size >= FARTHEST else (size << 8) | (0 + data[place])
        if size < (126 if wide == 2 else 1 << 16) or size >= FARTHEST:
            return 0, phase
    if size == 0 and not is_last:
        return 0, phase
    return 2 + wide + 4 * masked + size, 1 - is_last


@kernel
def find(data: Any, start: int, stop: int, masked: int, is_end: int) -> int:
    """The first offset in data[start:stop] where frames certainly begin again, or `stop`.

    With `is_end` nothing follows it. A continuation does not count: the start of its message is lost.
    """
    for begin in range(start, stop):
        opcode = (0 + data[begin]) & 0x0F
        if opcode != 0:
            at, count, phase = begin, 0, -1
            while at < stop and count < CHAIN:
                size, phase = _plausible(data, at, stop, masked, phase)
                if size == 0:
                    break
                at += size
                count += 1
            if count == CHAIN or (is_end and ((count and at == stop) or (count > 1 and at > stop))):
                return begin
    return stop


def opening(data: bytes) -> int:
    """Where the frames begin in the first bytes of one side: after its half of the opening handshake.

    Returns 0 if it is no opening handshake, or not complete.
    """
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
    """Whether the first bytes of one side open a WebSocket in whose messages `sniff` recognises something."""
    start = opening(data)
    if not start:
        return False
    frames, state = bytearray(data[start : start + ENOUGH]), [0] * STATE_COLUMNS
    spans = [0] * (2 * len(frames))
    state[PHASE] = FRAME  # the opening may be long: it is not walked through again
    count, _ = unframe(frames, 0, len(frames), state, spans)
    return sniff(b"".join(bytes(frames[spans[2 * one] : spans[2 * one + 1]]) for one in range(count)))
