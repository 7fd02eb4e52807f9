"""What a scenario of Relink says of a channel of ours: cursors, messages that wait, what became of each message, whether it is over.

A claim is an object (`{"pending": [1, 2], "consumed": 0}`), or a text in the same words ("pending 2, consumed up to 0, closed").
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from tests.conformance.reading import Unmapped, number, same

from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import ChannelClosed, LinkLost, LinkShutdown, MessagesResolved, Outcome, SessionEvent
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel
from wirelake.protocols.relink.session import Session

CURSORS: Final = {
    "sent": "sent",
    "sent_up_to": "sent",
    "received": "received",
    "consumed": "consumed",
    "decided": "decided",
    "result": "result",
}
"""Word -> the cursor of a channel that it names: the last number covered, `none` or 2^32-1 if there is none."""
WAITING: Final = ("pending", "outstanding", "unconsumed")
"""Words for messages that were sent and are not consumed: how many, or which."""
CONDITIONS: Final = ("open", "closing", "closed", "link lost", "terminated", "shutdown")
OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_NUMBERS: Final = r"((?:[0-9]+(?:, | and ))*[0-9]+)"
_IS: Final = r"(?: is| are| was| were| up to|:|=)* ?"
_WAITING: Final = "|".join(WAITING)
_OUTCOMES: Final = "|".join(OUTCOMES)
_CLAIMS: Final = (
    # Pattern, whether the word stands first, and how the value is read.
    (rf"sequences? {_NUMBERS}{_IS}({_WAITING})", False, "numbers"),
    (rf"{_NUMBERS}{_IS}({_OUTCOMES})\b", False, "outcome"),
    (rf"\b(uncommitted|committed|rolled back) {_NUMBERS}", True, "outcome"),
    (rf"\b({_WAITING}|{'|'.join(CURSORS)}){_IS}(none|[0-9]+)", True, "value"),
    (rf"\b(nothing|none|no|[0-9]+)(?: messages?)?{_IS}({_WAITING})", False, "count"),
    (rf"\b({'|'.join(CONDITIONS)})\b", True, "condition"),
    (rf"\b({_WAITING})\b", True, "condition"),
)
"""What a text may claim, in the order in which it is looked for; what was found is not looked at again."""


class Stage(Protocol):
    """What claims are compared with."""

    link: LinkCore
    session: Session
    heard: list[SessionEvent]


def check(stage: Stage, channel: bytes, claim: Any) -> None:
    """Compare everything that is claimed; raises Unmapped for a word nobody knows, and for a claim without any."""
    claims = claim if isinstance(claim, dict) else _claims(claim)
    if not claims:
        raise Unmapped(f"a state that claims nothing known here: {claim!r}")
    for word, value in claims.items():
        _check_word(stage, channel, word, value)


def is_waiting(outgoing: OutgoingChannel | None, value: Any) -> bool:
    """Whether as many messages, or exactly these, are sent and not consumed."""
    numbers = [] if outgoing is None else [one & m.LAST_SEQUENCE for one in range(outgoing.consumed + 1, outgoing.last + 1)]
    if isinstance(value, bool):
        return bool(numbers) is value
    return same(numbers if isinstance(value, list) else len(numbers), "0" if value == "none" else value)


def cursor(value: Any) -> int:
    """A cursor as we count: -1 is none yet (RELINK-15)."""
    if value == "none":
        return -1
    found = number("cursor", value)
    return -1 if found == m.LAST_SEQUENCE else found


def _claims(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise Unmapped(f"state {text!r}")
    rest, claims = text.lower(), {}
    for pattern, is_first, kind in _CLAIMS:
        for found in re.finditer(pattern, rest):
            word, value = found.groups() if is_first and len(found.groups()) > 1 else (found[found.re.groups], found[1])
            numbers = re.findall("[0-9]+", value)
            if kind == "outcome":
                claims.update(dict.fromkeys(numbers, word))
            elif kind == "condition":
                claims[word] = True
            else:
                claims[word] = numbers if kind == "numbers" else value if kind == "value" or numbers else "0"
        rest = re.sub(pattern, "", rest)
    return claims


def _check_word(stage: Stage, channel: bytes, word: str, value: Any) -> None:
    outgoing = stage.link.outbox.channels.get(channel)
    if word in WAITING:
        assert is_waiting(outgoing, value), (word, value)
    elif word in CURSORS:
        assert outgoing is not None, "there is no such channel"
        assert getattr(outgoing, CURSORS[word]) & m.LAST_SEQUENCE == cursor(value) & m.LAST_SEQUENCE, word
    elif word in CONDITIONS:
        if not isinstance(value, bool):
            raise Unmapped(f"{word} {value!r}")
        assert _holds(stage, channel, word) is value, word
    elif word.isdecimal() and value in OUTCOMES:
        resolved = [one for one in stage.heard if isinstance(one, MessagesResolved) and one.channel == channel]
        assert [one.outcome for one in resolved if one.first <= int(word) <= one.last] == [OUTCOMES[value]], word
    else:
        raise Unmapped(f"state {word!r}: {value!r}")


def _holds(stage: Stage, channel: bytes, condition: str) -> bool:
    outgoing = stage.link.outbox.channels.get(channel)
    match condition:
        case "open":
            return outgoing is not None and not outgoing.closing
        case "closing":
            return outgoing is not None and outgoing.closing
        case "closed":
            return outgoing is None and ChannelClosed(channel) in stage.heard
        case "link lost":
            return any(isinstance(one, LinkLost) for one in stage.heard)
        case "shutdown":
            return any(isinstance(one, LinkShutdown) for one in stage.heard)
        case _:
            return stage.session.ended is not None
