"""The pages of docs/rules/: the words of the rule book, and beside each entry what code and tests know of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Final

import citations

from wirelake import protocols
from wirelake.protocols.entry_points import OURS
from wirelake.protocols.protocol import AnyProtocol
from wirelake.rulebook.book import Basis, Book, Entry, Level, book
from wirelake.rulebook.facts import FaultFacts, facts

NOTE = "<!-- Made by docs/generate.py from src/wirelake/rulebook/{}.toml: change that file, then run `make docs`. -->\n"
TESTS = 6
"""Tests that are listed for an entry; the others are counted."""

INDEX = """\
# The rule book

<!-- Made by docs/generate.py: change docs/rule_pages.py, then run `make docs`. -->

Every violation, error and note of Wirelake names a clause, such as `RELINK-22`. The pages below explain each clause: its rule, its reason,
how binding it is, and its source. A table beside it lists the faults that cite it. For each fault, it has the reaction of a live peer and
of the lake.

Below it are the tests that name it, or one of its faults. A test that names a rule need not prove all of it. A test may also prove a rule
without its name.

In a terminal, `wirelake explain` prints the same:

```console
$ wirelake explain RELINK-22
$ wirelake explain relink 3.3
$ wirelake explain relink/CHANNEL_CLOSING
$ wirelake explain relink
```

"""
SCHEME = """\
## Ids and anchors

A *ruling* has the letters of its protocol and a number: `RELINK-22`. It says how Wirelake reads a point that the specification leaves
open or says twice. A *section* is a numbered section of a specification: `relink §3.3`. The documents of EMP, YAMP and wolpertinger have
no section numbers, so their pages have rulings only.

The anchor of an entry is its id in lower case. A section has the name of its protocol in front, and `s` for the section sign:

| id | anchor |
|---|---|
| `RELINK-22` | [`relink.md#relink-22`](relink.md#relink-22) |
| `event_mesh §4.2` | [`event-mesh.md#event-mesh-s4.2`](event-mesh.md#event-mesh-s4.2) |

"""


def index(attribute_docs: Callable[[type], dict[str, str]]) -> str:
    """The page that leads to the others; `attribute_docs` reads the docstrings of the members of a class."""
    parts = [INDEX, "| page | protocol | rulings | sections |\n|---|---|---|---|\n"]
    for protocol in OURS:
        rules = _book(protocol)
        sections = sum(entry.is_section for entry in rules.entry)
        prefix = next(entry.id for entry in rules.entry if not entry.is_section).rpartition("-")[0]
        name = rules.page.rpartition("/")[2]
        parts.append(
            f"| [{name}]({name}) | {rules.specification.title} | {len(rules.entry) - sections} (`{prefix}-…`) | {sections or 'none'} |\n"
        )
    parts += ["\n", SCHEME, "## Words\n\nHow binding an entry is:\n\n"]
    levels, bases = attribute_docs(Level), attribute_docs(Basis)
    parts += [f"- **{level}**: {levels[level.name]}\n" for level in Level]
    parts += ["\nWhere it comes from:\n\n"]
    parts += [f"- *{basis.meaning}*: {bases[basis.name]}\n" for basis in Basis]
    parts += [
        "\nThe *origin* of a fault says the same of one fault: the `text` of the specification, or only this side.\n",
        "This side forbids by a `ruling`, a `limit` or its `local` state. Only what the text demands can be a violation.\n",
        "What the text recommends has the severity `warning`, and all else `info`.\n",
    ]
    return "".join(parts)


def page(protocol: str) -> str:
    """The rules of one protocol."""
    rules, described = _book(protocol), protocols.get(protocol)
    about = rules.specification
    parts = [f"# The rules of {described.title}\n", NOTE.format(protocol)]
    parts += [
        "| | |",
        "|---|---|",
        f"| specification | {about.title} |",
        f"| version | {about.version} |",
        f"| authors | {about.authors} |",
        "",
    ]
    parts += [about.summary, ""]
    parts.append(
        f"[The rule book](index.md) says how to read this page. Limits and options are on the page of [{described.title}]"
        f"(../{protocol.replace('_', '-')}.md).\n"
    )
    parts += ["## The protocol\n", about.introduction]
    parts += ["## State machine\n", about.states + "\n", *state_diagram(described), "A message that is not drawn is forbidden.\n"]
    known = facts(protocol)
    tests = citations.tests_by_citation(protocol, {fault.name: fault.clause for fault in known})
    for is_ruling, title in ((False, "## Sections of the specification\n"), (True, "## Rulings\n")):
        entries = [entry for entry in rules.entry if entry.is_section is not is_ruling]
        if entries:
            parts.append(title)
        for entry in entries:
            parts += _entry(rules, entry, [fault for fault in known if fault.clause == entry.id], tests)
    return "\n".join(parts) + "\n"


def _book(protocol: str) -> Book:
    rules = book(protocol)
    assert rules is not None, protocol
    return rules


def _entry(rules: Book, entry: Entry, faults: list[FaultFacts], tests: dict[str, citations.Naming]) -> list[str]:
    lines = [f'<a id="{rules.anchor(entry)}"></a>\n', f"### {entry.id} {entry.title}\n"]
    lines += [f"**{entry.level}**, {entry.basis.meaning}\n", entry.rule + "\n", f"*Why:* {entry.why}\n"]
    if entry.see:
        lines.append(f"*See:* {', '.join(link(rules, one) for one in entry.see)}\n")
    if faults:
        lines += [
            "| fault | meaning | origin | strength | severity | a live peer | answered with | in the lake |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| `{one.name}` | {one.text} | {one.origin} | {one.strength} | {one.severity} | {one.live_peer} | {one.answer} | {one.lake} |"
            for one in faults
        ]
        lines.append("")
    lines.append(_tests(entry, tests) + "\n")
    return lines


HEADS = {"tests": "Tests that name it", "faults": "Tests that name its faults", "files": "No test names it, but these files do"}


def _tests(entry: Entry, tests: dict[str, citations.Naming]) -> str:
    naming = tests.get(entry.id)
    if naming is None:
        others = any(other in tests for other in entry.see)
        return "*Tests that name it:* none" + ("; see those of the entries above" if entry.is_section and others else "")
    shown = []
    for file, group in groupby(naming.places[:TESTS], key=lambda one: one[0]):
        names = ", ".join(f"`{test}`" for _, test in group if test)
        shown.append(f"{names} in `{file}`" if names else f"`{file}`")
    more = f"; and {len(naming.places) - TESTS} more" if len(naming.places) > TESTS else ""
    return f"*{HEADS[naming.by]}:* " + "; ".join(shown) + more


def link(rules: Book, clause: str, page: str = "") -> str:
    """A link to an entry, on its own page or from another one; the clause alone if the book has no such entry."""
    entry = rules.find(clause)
    return clause if entry is None else f"[{clause}]({page}#{rules.anchor(entry)})"


COMMON: Final = "other messages"
"""The label of messages that many arrows of a drawing share."""
MANY: Final = 6
"""So many messages are too many to be written at each arrow."""


def state_diagram(described: AnyProtocol) -> list[str]:
    """The state machine of a protocol as a drawing, made from its table."""
    machine = described.state_machine
    arrows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (state, speaker, message), after in machine.transitions.items():
        speakers = arrows.setdefault((state.name, after.name), {}).setdefault(str(message.__struct_config__.tag), [])
        speakers.append(speaker.name.lower())
    common = _common(list(arrows.values()))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {machine.initial.name}"]
    for (before, after), said in arrows.items():
        by_speaker: dict[str, list[str]] = {}
        is_short = len({tuple(sorted(said.get(message, ()))) for message in common}) == 1 and set(common) <= set(said)
        for message, speakers in said.items():
            names = by_speaker.setdefault("either side" if len(speakers) > 1 else speakers[0], [])
            label = COMMON if is_short and message in common else message
            names += [label] if label not in names else []
        lines.append(f"    {before} --> {after}: " + ", ".join(f"{speaker} {' / '.join(names)}" for speaker, names in by_speaker.items()))
    lines.append("```\n")
    return [*lines, f"In the drawing, *{COMMON}* are {', '.join(common)}.\n"] if common else lines


def _common(arrows: list[dict[str, list[str]]]) -> list[str]:
    """The messages that several arrows share, if they are too many to be written at each."""
    many = [said for said in arrows if len(said) >= MANY]
    shared = [message for message in many[0] if all(message in said for said in many)] if len(many) > 1 else []
    return shared if len(shared) >= MANY else []
