"""Find entries of the rule book by what people type.

A ruling (`RELINK-22`), a section (`relink §3.3`, or `relink 3.3` where the sign is hard to type), an anchor (`relink-s3.3`, also behind
the address of its page) or a fault (`relink/CHANNEL_CLOSING`, or its name alone). Case does not matter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.protocols.entry_points import OURS, normalised
from wirelake.rulebook.book import PREFIXES, Book, Entry, book
from wirelake.rulebook.facts import FaultFacts, facts

__all__ = ["NEAREST", "Explanation", "books", "look_up"]

NEAREST: Final = 5
"""Names that an error suggests."""
_ALIKE: Final = 0.5
"""How much a suggested name resembles what was typed, from 0 to 1."""
_RULING: Final = re.compile(rf"({'|'.join(PREFIXES)})[-\s]*0*(\d+)", re.IGNORECASE)
_SECTION: Final = re.compile(r"(?:([a-z][a-z_-]*?)[-\s/:]*)?(?:§|\bs(?=\d)|(?<=[\s/:]))\s*(\d+(?:\.\d+)*)", re.IGNORECASE)
_FAULT: Final = re.compile(r"(?:([a-z][a-z_-]*)[\s/:.]+)?([a-z][a-z0-9_-]*)", re.IGNORECASE)


class Explanation(msgspec.Struct, frozen=True):
    """An entry, and the faults that cite it."""

    protocol: str
    entry: Entry | None
    """None for a fault of a protocol of another package, which has no rule book."""
    faults: list[FaultFacts]
    """The faults that cite the entry. A fault that was asked for comes first."""
    fault: str | None = None
    """The fault that was asked for."""


def books() -> Iterator[Book]:
    """The rule books of all protocols of this package, in their order."""
    for protocol in OURS:
        rules = book(protocol)
        assert rules is not None, protocol  # noqa: S101 - OURS have one
        yield rules


def look_up(text: str) -> list[Explanation]:
    """Find what a text names; several, if several protocols have such a section or fault.

    Raises UsageError with the nearest names if there is none.
    """
    wanted = " ".join(text.rpartition("#")[2].split())
    found = _ruling(wanted) or _sections(wanted) or _faults(wanted)
    if not found:
        nearest = _nearest(wanted)
        meant = _range(wanted) or (f": did you mean {', '.join(nearest)}?" if nearest else ";")
        raise UsageError(f"no rule, section or fault {text.strip()!r}{meant} `wirelake explain PROTOCOL` lists the rules of a protocol")
    return found


def _range(text: str) -> str:
    """The ids that a protocol has, for a ruling whose number does not exist, and for a section of a document without sections."""
    ruling, section = _RULING.fullmatch(text), _SECTION.fullmatch(text)
    rules = book(PREFIXES[ruling[1].upper()]) if ruling else book(normalised(section[1].lower())) if section and section[1] else None
    if rules is None or (section and not ruling and any(entry.is_section for entry in rules.entry)):
        return ""
    rulings = [entry.id for entry in rules.entry if not entry.is_section]
    return f": the rulings of {rules.protocol} are {rulings[0]} to {rulings[-1]}{'' if ruling else ', and it has no sections'};"


def _ruling(text: str) -> list[Explanation]:
    match = _RULING.fullmatch(text)
    if match is None:
        return []
    prefix = match[1].upper()
    rules = book(PREFIXES[prefix])
    return [] if rules is None else _explained(rules, f"{prefix}-{match[2]}")


def _sections(text: str) -> list[Explanation]:
    match = _SECTION.fullmatch(text)
    if match is None:
        return []
    chosen = books() if match[1] is None else filter(None, [book(normalised(match[1].lower()))])
    return [one for rules in chosen for one in _explained(rules, f"§{match[2]}")]


def _explained(rules: Book, clause: str) -> list[Explanation]:
    entry = rules.find(clause)
    if entry is None:
        return []
    return [Explanation(rules.protocol, entry, [one for one in facts(rules.protocol) if one.clause == entry.id])]


def _faults(text: str) -> list[Explanation]:
    match = _FAULT.fullmatch(text)
    if match is None:
        return []
    protocol, name = match[1] and normalised(match[1].lower()), match[2].upper().replace("-", "_")
    return [
        _explained_fault(one, name)
        for one in protocols.names()
        if protocol in (None, one) and name in protocols.get(one).faults.__members__
    ]


def _explained_fault(protocol: str, name: str) -> Explanation:
    known, rules = facts(protocol), book(protocol)
    (asked,) = [one for one in known if one.name == name]
    others = [one for one in known if one.clause == asked.clause and one is not asked]
    return Explanation(protocol, None if rules is None else rules.find(asked.clause), [asked, *others], name)


def _nearest(text: str) -> list[str]:
    names = [rules.name(entry) for rules in books() for entry in rules.entry]
    names += [f"{one}/{fault.name}" for one in protocols.names() for fault in protocols.get(one).faults]
    by_key = {key: name for name in names for key in (name.upper(), name.upper().rpartition("/")[2])}
    alike = difflib.get_close_matches(text.upper().replace("-", "_") if "/" in text else text.upper(), by_key, 2 * NEAREST, _ALIKE)
    return list(dict.fromkeys(by_key[one] for one in alike))[:NEAREST]
