"""What a scenario of Relink says of a channel of ours: cursors, messages that wait, what became of each message, whether it is over.

A claim is an object (`{"pending": [1, 2], "consumed": 0}`), or a text in the same words ("pending 2, consumed up to 0, closed").
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from tests.conformance.reading import Unmapped, number, same

from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import ChannelClosed, Event, LinkLost, LinkShutdown, MessagesResolved, Outcome
from wirelake.protocols.relink.link import Link
from wirelake.protocols.relink.outgoing import Outgoing
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
_COUNT: Final = re.compile(rf"({'|'.join([*WAITING, *CURSORS])})(?: is| up to|:|=)* ?(none|[0-9]+)")
_EACH: Final = re.compile(rf"([0-9]+)(?: is| was|:|=)* ({'|'.join(OUTCOMES)})")
_CONDITION: Final = re.compile(rf"(?<![\w-])(?:is |channel )?({'|'.join(CONDITIONS)})(?![\w-])")


class Stage(Protocol):
    """What claims are compared with."""

    link: Link
    session: Session
    heard: list[Event]


def check(stage: Stage, channel: bytes, claim: Any) -> None:
    """Compare everything that is claimed; raises Unmapped for a word nobody knows, and for a claim without any."""
    claims = claim if isinstance(claim, dict) else _claims(claim)
    if not claims:
        raise Unmapped(f"a state that claims nothing known here: {claim!r}")
    for word, value in claims.items():
        _check_word(stage, channel, word, value)


def is_waiting(outgoing: Outgoing | None, value: Any) -> bool:
    """Whether as many messages, or exactly these, are sent and not consumed."""
    numbers = [] if outgoing is None else [one & m.LAST_SEQUENCE for one in range(outgoing.consumed + 1, outgoing.last + 1)]
    if isinstance(value, bool):
        return bool(numbers) is value
    return same(numbers if isinstance(value, list) else len(numbers), value)


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
    for pattern in (_EACH, _COUNT):
        for word, value in pattern.findall(rest):
            claims[word] = value
        rest = pattern.sub("", rest)
    claims.update(dict.fromkeys(_CONDITION.findall(rest), True))
    rest = _CONDITION.sub("", rest)
    claims.update({word: True for word in WAITING if re.search(rf"\b{word}\b", rest)})
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
