"""`wirelake explain`: a rule, section or fault of the rule book, in the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.terminal import Format, print_objects
from wirelake.protocols.entry_points import OURS, normalised
from wirelake.rulebook.book import Book, book
from wirelake.rulebook.lookup import Explanation, books, look_up

__all__ = ["explain"]

WIDEST: Final = 100
"""Characters of a line at most."""
_LABEL: Final = 9
"""Characters before the text of a line."""


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For shells: every id that begins like this."""
    del ctx, param
    ids = [*OURS, *(rules.name(entry) for rules in books() for entry in rules.entry if not entry.is_section)]
    return [CompletionItem(one) for one in ids if one.lower().startswith(incomplete.lower())]


@click.command()
@click.argument("rule", nargs=-1, required=True, shell_complete=_names)
@click.option(
    "-T",
    "--format",
    "form",
    type=click.Choice([Format.TEXT, Format.JSON], case_sensitive=False),
    default=Format.TEXT,
    show_default=True,
    help="How to print.",
)
def explain(rule: tuple[str, ...], form: Format) -> int:
    """Explain a rule: what it says, why, which faults break it, and what a peer and the lake do then.

    \b
    RULE  A clause as violations and errors name it (RELINK-22), a section of a specification (relink §3.3, or relink 3.3),
          a fault (CHANNEL_CLOSING, or relink/CHANNEL_CLOSING), or a protocol, to list its rules. Case does not matter.

    A section or fault that several protocols have is explained for each of them. -T json prints one object for each. The same text, with
    the tests of each rule, is in docs/rules/.
    """
    text = " ".join(rule)
    rules = book(normalised(text.lower()))
    if rules is not None:
        _print_book(rules, form)
        return ExitCode.OK
    for number, found in enumerate(look_up(text)):
        if form is Format.JSON:
            print_objects(_object(found), form, [])
        else:
            print("\n".join(["", *_lines(found)] if number else _lines(found)))
    return ExitCode.OK


def _print_book(rules: Book, form: Format) -> None:
    """The specification of a protocol, and its entries with their titles."""
    about = rules.specification
    if form is Format.JSON:
        for entry in rules.entry:
            described = {"protocol": rules.protocol, "id": rules.name(entry), "title": entry.title, "level": entry.level}
            print_objects(described, form, [])
        return
    print(about.title)
    for label, text in (("version", about.version), ("authors", about.authors), ("about", about.summary), ("page", rules.page)):
        print("\n".join(_labelled(label, text)))
    print()
    width = max(len(rules.name(entry)) for entry in rules.entry)
    for entry in rules.entry:
        print(f"{rules.name(entry):{width}}  {entry.title} ({entry.level})")


def _object(found: Explanation) -> dict[str, object]:
    """One explanation as JSON has it."""
    described: dict[str, object] = {"protocol": found.protocol}
    if found.fault is not None:
        described["fault"] = found.fault
    rules, entry = book(found.protocol), found.entry
    if rules is not None and entry is not None:
        described |= {"id": rules.name(entry), "title": entry.title, "level": entry.level, "basis": entry.basis}
        described |= {"rule": entry.rule, "why": entry.why, "see": [_name(rules, one) for one in entry.see]}
        described["page"] = f"{rules.page}#{rules.anchor(entry)}"
    return described | {"faults": found.faults}


def _lines(found: Explanation) -> Iterator[str]:
    """One explanation as a person reads it."""
    rules, entry = book(found.protocol), found.entry
    if rules is None or entry is None:
        yield f"{found.protocol}: a protocol of another package, without a rule book"
    else:
        yield f"{rules.name(entry)}  {entry.title}"
        yield from _labelled("", f"{entry.level}; {entry.basis.meaning}")
        yield from _labelled("rule", entry.rule)
        yield from _labelled("why", entry.why)
        if entry.see:
            yield from _labelled("see", ", ".join(_name(rules, one) for one in entry.see))
        yield from _labelled("page", f"{rules.page}#{rules.anchor(entry)}")
    if not found.faults:
        yield from _labelled("faults", "none: nothing is reported under this id")
    for fault in found.faults:
        yield ""
        yield f"{found.protocol}/{fault.name}"
        yield from _labelled("means", fault.text)
        yield from _labelled("severity", f"{fault.severity}; origin: {fault.origin}; the specification: {fault.strength}")
        yield from _labelled("peer", f"{fault.live_peer}; answers with {fault.answer}")
        yield from _labelled("lake", fault.lake)


def _name(rules: Book, clause: str) -> str:
    entry = rules.find(clause)
    return clause if entry is None else rules.name(entry)


def _labelled(label: str, text: str) -> list[str]:
    """A label, and a text beside it, in as many lines as the terminal needs."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    indent = " " * (_LABEL + 2)
    first = f"  {label:{_LABEL}}"
    return textwrap.wrap(text, max(width, 40), initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
