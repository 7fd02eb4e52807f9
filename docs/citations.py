"""Find citations of rules in files: rulings (`RELINK-22`, `EMP-14/15`) and sections (`relink §3.3`).

A section needs its protocol. It stands before the sign (`relink §3.3`), in the path of the file, in the heading above, as in
docs/tables.md, or elsewhere on the line. Sections of RFCs and of other standards are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from wirelake.protocols.entry_points import OURS
from wirelake.rulebook.book import PREFIXES

ROOT = Path(__file__).parents[1]
RULING = re.compile(rf"\b({'|'.join(PREFIXES)})-(\d+)((?:/\d+)*)")
SECTION = re.compile(r"(?:([a-z]+(?:[_-]mesh)?) )?§\s?(\d+(?:\.\d+)*)")
OTHER_STANDARD = re.compile(r"\b(?:RFC \d+|SP \d+-\w+)")
_IN_NAME = rf"_({'|'.join(PREFIXES)})_(\d+)(?=_|\b)"
TEST_OF_RULING = re.compile(_IN_NAME, re.IGNORECASE)
TEST_OF_RULINGS = re.compile(rf"test(?:{_IN_NAME})+", re.IGNORECASE)
"""A name that begins with rulings: `test_yamp_9_yamp_53_the_first_message`."""
FAULT = re.compile(r"\bFault\.([A-Z0-9_]+)")
HEADING = re.compile(r"#+ .*?`(\w+)`")
NOT_COUNTED = ("docs/rules/", "src/wirelake/rulebook/", "tests/docs/test_rule_book.py", "tests/cli/test_explain.py")
"""Where citations do not count: the rule book cites itself, and its tests cite ids that do not exist."""
OTHER_PROTOCOLS = ("tests/examples/", "examples/")
"""Where sections are those of a protocol of another package."""


class Citation(NamedTuple):
    """One id, and where it stands."""

    protocol: str | None
    """None: a section whose protocol is not known."""
    id: str
    path: str
    line: int


def in_file(path: Path) -> Iterator[Citation]:
    """Every citation in a file."""
    name = path.relative_to(ROOT).as_posix()
    own, above = _protocol_in(name), None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if path.suffix == ".md" and (heading := HEADING.match(line)):
            above = _protocol_in(heading[1])
        if "§" in line:
            yield from in_line(line, own or above or _protocol_in(line), name, number)
        elif "-" in line:
            yield from in_line(line, None, name, number)


def in_line(line: str, protocol: str | None, path: str = "", number: int = 0) -> Iterator[Citation]:
    """Every citation in a line of a file about a protocol."""
    for ruling in RULING.finditer(line):
        for digits in (ruling[2], *ruling[3].split("/")[1:]):
            yield Citation(PREFIXES[ruling[1]], f"{ruling[1]}-{digits}", path, number)
    if OTHER_STANDARD.search(line) or path.startswith(OTHER_PROTOCOLS):
        return
    for section in SECTION.finditer(line):
        named = (section[1] or "").replace("-", "_")
        yield Citation(named if named in OURS else protocol, f"§{section[2]}", path, number)


def _protocol_in(text: str) -> str | None:
    """The protocol that a path or a line names, if it is exactly one."""
    found = {one for one in OURS if re.search(rf"(?<![a-z]){one.replace('_', '[_-]')}(?![a-z])", text)}
    return found.pop() if len(found) == 1 else None


def files(*folders: str) -> list[Path]:
    """The files of the project that may cite rules, in order."""
    found = [path for folder in folders for kind in ("*.py", "*.md", "*.json", "*.css") for path in (ROOT / folder).rglob(kind)]
    return sorted(path for path in found if not path.relative_to(ROOT).as_posix().startswith(NOT_COUNTED))


class Naming(NamedTuple):
    """The tests that name an entry. That a test names a rule does not show that it proves all of it."""

    by: str
    """What names it: `tests`; `files`, outside their tests; or `faults`: tests name only a fault that cites it."""
    places: list[tuple[str, str]]
    """File and test; the test is empty for `files`."""


def tests_by_citation(protocol: str, faults: dict[str, str]) -> dict[str, Naming]:
    """Id -> the tests that name it. `faults` has the id of each fault, for ids that tests name by their faults only."""
    by_id: dict[str, set[tuple[str, str]]] = {}
    by_fault: dict[str, set[tuple[str, str]]] = {}
    for mention in _mentions():
        if mention.protocol != protocol:
            continue
        if mention.is_fault and mention.name in faults:
            by_fault.setdefault(faults[mention.name], set()).add((mention.file, mention.test))
        elif not mention.is_fault:
            by_id.setdefault(mention.name, set()).add((mention.file, mention.test))
    in_tests = {one: {(file, test) for file, test in places if test} for one, places in by_id.items()}
    found: dict[str, Naming] = {}
    for by, places in (("tests", in_tests), ("faults", by_fault), ("files", by_id)):
        found |= {one: Naming(by, sorted(named)) for one, named in places.items() if named and one not in found}
    return found


class Mention(NamedTuple):
    """A test, or the rest of its file, that names an id or a fault."""

    protocol: str | None
    name: str
    is_fault: bool
    file: str
    test: str


@cache
def _mentions() -> tuple[Mention, ...]:
    """Every mention in tests; they are parsed once."""
    found: dict[Mention, None] = {}
    for path in files("tests"):
        text = path.read_text()
        if path.suffix != ".py" or not ("§" in text or "Fault." in text or RULING.search(text) or TEST_OF_RULINGS.search(text)):
            continue
        name = path.relative_to(ROOT).as_posix()
        own = _protocol_in(name)
        for test, source in _parts(text):
            named = TEST_OF_RULINGS.match(test)
            for ruling in TEST_OF_RULING.finditer(named[0] if named else ""):
                prefix = ruling[1].upper()
                found[Mention(PREFIXES[prefix], f"{prefix}-{int(ruling[2])}", False, name, test)] = None
            for line in source:
                cited = in_line(line, own or _protocol_in(line), name) if "-" in line or "§" in line else ()
                found |= dict.fromkeys(Mention(one.protocol, one.id, False, name, test) for one in cited)
                if test:
                    found |= dict.fromkeys(Mention(own, fault, True, name, test) for fault in FAULT.findall(line))
    return tuple(found)


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    """The name and the lines of each test of a file, with its decorators and the comment lines above it; last, without a name, the rest."""
    lines = text.splitlines()
    rest = dict(enumerate(lines))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            while first and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            yield node.name, lines[first : node.end_lineno]
            for number in range(first, node.end_lineno or first):
                rest.pop(number, None)
    yield "", list(rest.values())
