"""XMPP (RFC 6120) in a capture: finds the stanzas of a stream, and reads messages.

For protocols that may travel inside: escapes in a message's body are undone with the offset of every character, so that offsets into the
capture stay right. Live connections do not need this: they use a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from xml.parsers import expat

import msgspec

from wirelake.protocols.kernel import kernel

__all__ = [
    "BEGAN",
    "DONE",
    "GAP",
    "NOTHING",
    "PHASE",
    "SEARCH",
    "STANZA",
    "STATE_COLUMNS",
    "STRANGE",
    "UNIT_COLUMNS",
    "WRAPPING",
    "Body",
    "body",
    "inside",
    "is_state",
    "secures",
    "stanzas",
]

# What is known of one direction: a row of numbers that the kernel keeps up to date.
PHASE: Final = 0
DEPTH: Final = 1
"""Elements that are open: 0 before the stream, 1 between stanzas."""
QUOTE: Final = 2
"""What ends the value of the attribute."""
MATCHED: Final = 3
"""Number of bytes matched of the expected text.

That is `stream:stream`, `<message`, `-->`, `]]>` or `?>`.
"""
NAMED: Final = 4
"""Bytes of the element's name that were read."""
BEGAN: Final = 5
"""Where what is not finished begins; NOTHING if all is."""
DONE: Final = 6
"""Up to where all is in units."""
STATE_COLUMNS: Final = 7
NOTHING: Final = -1

# Phases.
TEXT: Final = 0
OPEN: Final = 1
"""After `<`."""
NAME: Final = 2
"""In the name of a start tag."""
TAG: Final = 3
QUOTED: Final = 4
SLASH: Final = 5
"""After `/` in a start tag: it may be an empty element."""
END: Final = 6
"""In an end tag."""
INSTRUCTION: Final = 7
BANG: Final = 8
"""After `<!`."""
COMMENT: Final = 9
CDATA: Final = 10
LOST: Final = 11
"""No XML: encrypted, compressed, or something else from here on."""
SEARCH: Final = 12
"""After a gap: the next message is looked for."""

# Units: (start, stop, what).
UNIT_COLUMNS: Final = 3
WRAPPING: Final = 0
"""The stream's own tags, and blanks between stanzas."""
STANZA: Final = 1
GAP: Final = 2
"""What follows a gap, up to the next message."""
STRANGE: Final = 3
"""What is no XML."""

_STREAM: Final = b"stream:stream"
_MESSAGE: Final = b"<message"
_LT, _GT, _SLASH, _BANG, _QUESTION, _DASH, _OPENING, _CLOSING = b"<>/!?-[]"
_QUOTES: Final = 34, 39
_FARTHEST: Final = 1 << 47
"""No depth and no name is longer: a stream of so many bytes is none."""


@kernel
def _is_blank(byte: int) -> bool:
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


@kernel
def stanzas(data: Any, at: int, stop: int, state: Any, units: Any) -> tuple[int, int]:
    """Go on with one direction at data[at:stop]; returns (how many units were written, where it stopped).

    It stops before `stop` when the units are full: call it again. Units touch each other from state[DONE] on; what they do not cover at the
    end, from state[BEGAN], is not finished, and must be there again, in front of what comes next.
    """
    count = 0
    while at < stop and (count + 3) * UNIT_COLUMNS <= len(units):
        phase, byte = state[PHASE], 0 + data[at]
        ends, what = False, STANZA
        if phase == LOST:
            at = stop
            break
        if phase == SEARCH:
            matched = state[MATCHED]
            if matched == len(_MESSAGE) and (_is_blank(byte) or byte in (_SLASH, _GT)):
                count = _emit(units, count, state, state[BEGAN], GAP)
                state[DEPTH], state[NAMED], state[MATCHED], state[PHASE] = 1, 0, 0, TAG
                continue
            if byte == _LT:
                state[MATCHED], state[BEGAN] = 1, at
            elif matched and matched < len(_MESSAGE) and byte == _MESSAGE[matched]:
                state[MATCHED] = matched + 1
            else:
                state[MATCHED], state[BEGAN] = 0, NOTHING
        elif phase == TEXT:
            if byte == _LT:
                if state[DEPTH] <= 1:
                    count = _emit(units, count, state, at, WRAPPING)
                    state[BEGAN] = at
                state[PHASE] = OPEN
            elif state[DEPTH] <= 1 and not _is_blank(byte):
                count = _emit(units, count, state, at, WRAPPING)
                state[PHASE] = LOST
        elif phase == OPEN:
            state[MATCHED], state[NAMED] = 0, 0
            if byte == _SLASH:
                state[PHASE] = END
            elif byte == _QUESTION:
                state[PHASE] = INSTRUCTION
            elif byte == _BANG:
                state[PHASE] = BANG
            else:
                state[PHASE] = NAME
                continue
        elif phase == NAME and not (_is_blank(byte) or byte in (_SLASH, _GT)):
            if state[MATCHED] == state[NAMED] and state[NAMED] < len(_STREAM) and byte == _STREAM[state[NAMED]]:
                state[MATCHED] += 1
            state[NAMED] += 1
        elif phase in (NAME, TAG, SLASH):
            if byte == _GT:
                state[PHASE] = TEXT
                if phase == SLASH:
                    ends = state[DEPTH] <= 1
                elif state[DEPTH] <= 1 and state[MATCHED] == state[NAMED] == len(_STREAM):
                    state[DEPTH], ends, what = 1, True, WRAPPING
                elif state[DEPTH] == 0:
                    state[PHASE] = LOST
                else:
                    state[DEPTH] += 1
            elif byte == _SLASH:
                state[PHASE] = SLASH
            elif byte == _QUOTES[0] or byte == _QUOTES[1]:
                state[PHASE], state[QUOTE] = QUOTED, byte
            else:
                state[PHASE] = TAG
        elif phase == QUOTED:
            if byte == state[QUOTE]:
                state[PHASE] = TAG
        elif phase == END:
            if byte == _GT:
                state[PHASE] = TEXT
                if state[DEPTH] <= 1:
                    ends, what = True, WRAPPING
                else:
                    state[DEPTH] -= 1
                    ends = state[DEPTH] == 1
        elif phase == BANG:
            state[PHASE] = COMMENT if byte == _DASH else CDATA if byte == _OPENING else LOST
        else:  # an instruction, a comment or CDATA: over at `?>`, `-->` or `]]>`
            mark, marks = (_QUESTION, 1) if phase == INSTRUCTION else (_DASH, 2) if phase == COMMENT else (_CLOSING, 2)
            if byte == mark:
                state[MATCHED] = min(state[MATCHED] + 1, marks)
            elif byte == _GT and state[MATCHED] == marks:
                state[PHASE], ends, what = TEXT, state[DEPTH] <= 1, WRAPPING
            else:
                state[MATCHED] = 0
        at += 1
        if ends:
            count = _emit(units, count, state, at, what)
            state[BEGAN] = NOTHING
    if at >= stop:
        if state[PHASE] == LOST:
            count = _emit(units, count, state, stop, STRANGE)
            state[BEGAN] = NOTHING
        elif state[BEGAN] == NOTHING or state[BEGAN] > state[DONE]:
            place = stop if state[BEGAN] == NOTHING else state[BEGAN]
            count = _emit(units, count, state, place, GAP if state[PHASE] == SEARCH else WRAPPING)
    return count, at


def is_state(state: Sequence[int]) -> bool:
    """Whether a row can be the state of a direction between two calls.

    `stanzas` uses it as indices without checks.
    """
    if len(state) != STATE_COLUMNS:
        return False
    phase, depth, quote, matched, named, began, done = state
    return (
        TEXT <= phase <= SEARCH
        and 0 <= depth < _FARTHEST
        and quote in (0, *_QUOTES)
        and 0 <= matched <= len(_STREAM)
        and 0 <= named < _FARTHEST
        and began in (NOTHING, 0)
        and done == 0
    )


@kernel
def _emit(units: Any, count: int, state: Any, stop: int, what: int) -> int:
    """One more unit, from where the last one ended, unless it is empty."""
    if stop <= state[DONE]:
        return count
    units[UNIT_COLUMNS * count] = state[DONE]
    units[UNIT_COLUMNS * count + 1] = stop
    units[UNIT_COLUMNS * count + 2] = what
    state[DONE] = stop
    return count + 1


class Body(msgspec.Struct, frozen=True):
    """What a message says: to whom, or by whom, and where the characters are."""

    peer: str
    """The address without its resource, in lower case."""
    chunks: list[tuple[int, bytes]]
    """Where in the stanza bytes stand, and what they say; an escape says less than it takes."""

    @property
    def text(self) -> bytes:
        """All of it."""
        return b"".join(chunk for _, chunk in self.chunks)


_UNSAID: Final = frozenset({"error", "groupchat"})
"""Types of messages that are not read: errors that come back, and messages to a group chat."""
_SECURING: Final = re.compile(rb"<(?:starttls|proceed)[\s/>]")


def body(stanza: bytes, *, by_client: bool) -> Body | None:
    """The body of a message stanza with a body, and the address of the peer; None for any other stanza."""
    if not stanza.startswith(_MESSAGE) or b"<body" not in stanza:
        return None
    depth, is_body, is_over = 0, False, False
    root: dict[str, str] = {}
    chunks: list[tuple[int, bytes]] = []
    parser = expat.ParserCreate("utf-8")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, is_body
        depth += 1
        if depth == 1:
            root.update(attributes, name=name)
        is_body = depth == 2 and name == "body" and not is_over

    def end(_: str) -> None:
        nonlocal depth, is_body, is_over
        is_over = is_over or is_body
        is_body = False
        depth -= 1

    def characters(text: str) -> None:
        if is_body:
            chunks.append((parser.CurrentByteIndex, text.encode()))

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    try:
        parser.Parse(stanza, True)
    except (expat.ExpatError, UnicodeError):
        return None
    peer = root.get("to" if by_client else "from", "").partition("/")[0].lower()
    if root.get("name") != "message" or root.get("type") in _UNSAID or not peer or not chunks:
        return None
    return Body(peer, chunks)


def secures(stanza: bytes) -> bool:
    """Whether a stanza is the last but for TLS."""
    return _SECURING.match(stanza) is not None


_BEGINNING: Final = (b"<?xml", b"<stream:stream")
_BODY: Final = re.compile(rb"<body(?:\s[^<>]*)?>")
ENOUGH: Final = 128
"""Bytes of a body that are looked at to recognise what it is."""


def inside(data: bytes, sniff: Callable[[bytes], bool]) -> bool:
    """Whether the first bytes of one side open an XMPP stream with a message that `sniff` recognises."""
    return data.startswith(_BEGINNING) and any(sniff(data[found.end() : found.end() + ENOUGH]) for found in _BODY.finditer(data))
