"""The entries of the rule book, as their files have them.

An id is that of a ruling (`RELINK-22`) or of a section (`§3.3`). The anchor of an entry on its page is its id in lower case: `relink-22`. A
section has the name of its protocol in front, and `s` for the section sign: `relink-s3.3`.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec

from wirelake.protocols.entry_points import OURS

__all__ = ["PREFIXES", "Basis", "Book", "Entry", "Level", "Specification", "book", "explain_command"]

PREFIXES: Final = {"EMP": "emp", "EMM": "event_mesh", "RELINK": "relink", "YAMP": "yamp", "WOLP": "wolpertinger"}
"""The letters before the number of a ruling -> its protocol."""
_PAGES: Final = "docs/rules"


class Level(StrEnum):
    """How binding an entry is."""

    MUST = "must"
    """A peer that does otherwise breaks the rule."""
    SHOULD = "should"
    """A peer needs a good reason to do otherwise."""
    MAY = "may"
    """A peer is free to do so."""
    DESCRIBES = "describes"
    """An explanation: it forbids nothing and asks for nothing."""


class Basis(StrEnum):
    """The source of an entry."""

    TEXT = "text"
    """The specification says so."""
    DECISION = "decision"
    """The specification is silent, or contradicts itself: Wirelake decided."""
    BOTH = "both"
    """The specification has the rule, and Wirelake decided what it leaves open."""

    @property
    def meaning(self) -> str:
        """The source in a few words."""
        return {
            Basis.TEXT: "from the specification",
            Basis.DECISION: "our decision: the specification leaves it open",
            Basis.BOTH: "from the specification, with details that we decided",
        }[self]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule in plain words."""

    id: str
    title: str
    level: Level
    basis: Basis
    rule: str
    """The rule, in a few sentences of Markdown."""
    why: str
    """The reason for it."""
    see: tuple[str, ...] = ()
    """Ids of related entries of the same protocol."""

    @property
    def is_section(self) -> bool:
        """Whether it is a section of the specification, and not a ruling."""
        return self.id.startswith("§")


class Specification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The document that a protocol's rules come from, and an introduction to it."""

    title: str
    version: str
    authors: str
    summary: str
    """The protocol in one paragraph."""
    introduction: str
    """The protocol for readers who never saw the document: Markdown with tables."""
    states: str
    """How to read the drawing of its state machine."""


class Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules of one protocol."""

    protocol: str
    specification: Specification
    entry: tuple[Entry, ...]
    """Sections first, then rulings, by number."""

    @property
    def page(self) -> str:
        """The page with all entries, from the root of the project."""
        return f"{_PAGES}/{self.protocol.replace('_', '-')}.md"

    def find(self, clause: str) -> Entry | None:
        """The entry of a clause as faults cite it: `RELINK-22`, or `§3.3`."""
        wanted = clause.upper()
        return next((one for one in self.entry if one.id == wanted), None)

    def name(self, entry: Entry) -> str:
        """An id that no other protocol has: `RELINK-22`, or `relink §3.3`."""
        return f"{self.protocol} {entry.id}" if entry.is_section else entry.id

    def anchor(self, entry: Entry) -> str:
        """The anchor of an entry on its page."""
        return f"{self.protocol.replace('_', '-')}-s{entry.id[1:]}" if entry.is_section else entry.id.lower()


def explain_command(protocol: str | None, rule: str | None, clause: str | None) -> str:
    """The command that explains a broken rule: by its clause, or else by the name of its fault; empty if neither is known.

    Protocols of other packages have no rule book, only faults.
    """
    words = rule or ""
    if clause is not None and clause.rpartition("-")[0] in PREFIXES:
        words = clause
    elif clause is not None and clause.startswith("§") and protocol in OURS:
        words = f"{protocol} {clause}"
    elif protocol is not None and rule is not None:
        words = f"{protocol}/{rule}"
    return f"wirelake explain {words}" if words else ""


@cache
def book(protocol: str) -> Book | None:
    """Read the rules of a protocol; None if it is one of another package."""
    if protocol not in OURS:
        return None
    data = pkgutil.get_data(__package__, f"{protocol}.toml")
    if data is None:
        raise RuntimeError(f"internal error: {protocol}.toml is not installed")
    read = msgspec.convert({"protocol": protocol, **tomllib.loads(data.decode())}, Book)
    about = read.specification
    about = msgspec.structs.replace(about, summary=_one_line(about.summary), states=_one_line(about.states))
    entries = (msgspec.structs.replace(one, rule=_one_line(one.rule), why=_one_line(one.why)) for one in read.entry)
    return msgspec.structs.replace(read, specification=about, entry=tuple(sorted(entries, key=_order)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _order(entry: Entry) -> tuple[bool, list[int]]:
    return not entry.is_section, [int(number) for number in re.findall(r"\d+", entry.id)]
