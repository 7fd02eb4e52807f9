"""`wirelake diff`: what differs between two lakes, selections, sessions or messages."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import click
import msgspec

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import json_text, say
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need
from wirelake.text import visible

if TYPE_CHECKING:
    from wirelake.explore.diff.messages import MessageDifference
    from wirelake.explore.diff.selections import Changes, Difference, Side
    from wirelake.explore.diff.steps import Step

__all__ = ["diff"]

SHOWN: Final = 20
"""Lines of one list, unless --all is given."""
_PARTS: Final = "kinds,subjects,rules,answers,latency"


class Shape(StrEnum):
    """How differences are printed."""

    TEXT = "text"
    JSON = "json"


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--exit-code", "is_checked", is_flag=True, help="Exit with 1 if A and B differ in a part of --parts.")
@click.option(
    "--parts", "parts", default=_PARTS, show_default=True, metavar="PART,…", help="What decides whether A and B differ; also: counts."
)
@click.option(
    "--confidence",
    "confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="How sure latency intervals are.",
)
@click.option(
    "--tolerance",
    "tolerance",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Percent of A's median that a latency may shift without being a difference.",
)
@click.option("--all", "is_whole", is_flag=True, help="With text, print long lists whole.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
def diff(first: str, second: str, is_checked: bool, parts: str, confidence: float, tolerance: float, is_whole: bool, form: Shape) -> int:
    """Print what differs between two lakes, two selections of messages, two sessions, or two messages, without Spark.

    \b
    A, B  LAKE               a whole lake
          LAKE::FILTER       messages that a filter of `wirelake read -Y` lets through, such as a time range or a session
          LAKE::message:ID   one message
          B may leave out the lake: ::FILTER is of the same one as A.

    \b
    PART  kinds     kinds and names of messages that only A or only B has
          subjects  the same for subjects
          rules     the same for broken rules
          answers   the same for how requests and deliveries ended
          latency   latencies that shifted: certainly, and by more than --tolerance
          counts    any count that differs

    The latency shift is the Hodges-Lehmann estimator, its interval that of the Mann-Whitney test; all intervals hold together. Two
    sessions are also shown message by message, two messages field by field and byte by byte.

    Examples: wirelake diff before after --exit-code · wirelake diff 'LAKE::since:2h until:1h' ::since:1h
    """
    need(*TABLES)
    without_pandas()
    from wirelake.explore.diff.messages import compare_messages  # noqa: PLC0415 - needs the lake extra
    from wirelake.explore.diff.operands import operands  # noqa: PLC0415
    from wirelake.explore.diff.selections import DiffOptions, Part, compare  # noqa: PLC0415

    names = [name for name in parts.split(",") if name]
    if not names or (unknown := [name for name in names if name not in list(Part)]):
        raise UsageError(f"--parts {parts}: {', '.join(unknown) if names else 'nothing'} is no part; choose of {', '.join(Part)}")
    one, other = operands(first, second)
    found: Difference | MessageDifference
    if one.message is not None:
        found = compare_messages(one, other)
        lines = _message_lines(found)
    else:
        options = DiffOptions(parts=tuple(map(Part, names)), confidence=confidence, tolerance=tolerance)
        found = compare(one, other, options)
        lines = _lines(found, None if is_whole else SHOWN)
    if form is Shape.JSON:
        print(json_text(msgspec.to_builtins(found)))
    else:
        for line in lines:
            print(visible(line))
    say("A and B differ" if found.is_different else "no difference")
    return ExitCode.FAILED if is_checked and found.is_different else ExitCode.OK


def _lines(found: Difference, most: int | None) -> Iterator[str]:
    from wirelake.explore.formatting import duration  # noqa: PLC0415 - needs the lake extra

    yield f"A  {_side(found.a)}"
    yield f"B  {_side(found.b)}"
    for name, changes in (("kinds", found.kinds), ("subjects", found.subjects), ("rules", found.rules), ("answers", found.answers)):
        yield from _change_lines(name, changes, most)
    if found.latency:
        yield ""
        yield f"latency ({found.latency_method}, {found.confidence:.0%} together)"
    for one in found.latency:
        moved = one.shift
        mark = ("+" if moved.shift > 0 else "-") if one.is_different else " "
        interval = f"{_signed(moved.low)} to {_signed(moved.high)}"
        yield (
            f"{mark} {one.protocol} {one.kind} {one.subject or '(all)'}: median {duration(moved.median_a)} to {duration(moved.median_b)},"
            f" shift {_signed(moved.shift)} ({interval}), p {moved.p:.2g}, {moved.count_a:,} and {moved.count_b:,} compared"
        )
    if found.steps is not None:
        yield from _step_lines(found.steps, most)


def _side(side: Side) -> str:
    from wirelake.explore.formatting import many, moment  # noqa: PLC0415 - as above

    when = "" if side.first is None or side.last is None else f", {moment(side.first)} to {moment(side.last)} UTC"
    shown = f"{side.messages:,} of " if side.messages != side.of else ""
    return f"{side.name}: {shown}{many(side.of, 'message')}, {many(side.sessions, 'session')}{when}"


def _signed(microseconds: float) -> str:
    from wirelake.explore.formatting import duration  # noqa: PLC0415 - as above

    return f"{'-' if microseconds < 0 else '+'}{duration(abs(microseconds))}"


def _change_lines(name: str, changes: Changes, most: int | None) -> Iterator[str]:
    if not (changes.new_count or changes.vanished_count or changes.changed_count):
        return
    yield ""
    totals = (("new", changes.new_count), ("vanished", changes.vanished_count), ("changed", changes.changed_count))
    yield f"{name}: {', '.join(f'{total:,} {word}' for word, total in totals)}, {changes.same_count:,} the same"
    for mark, some, total in (
        ("+", changes.new, changes.new_count),
        ("-", changes.vanished, changes.vanished_count),
        (" ", changes.changed, changes.changed_count),
    ):
        for change in some[:most]:
            yield f"{mark} {' '.join(part for part in change.key if part)}  {change.a:,} to {change.b:,}"
        if (left := total - len(some[:most])) > 0:
            yield f"{mark} … {left:,} more"


def _step_lines(steps: list[Step], most: int | None) -> Iterator[str]:
    """Messages that differ, each run with the number of the same ones before it."""
    yield ""
    changed = [step for step in steps if step.a is None or step.b is None]
    yield f"messages: {len(steps) - len(changed):,} the same, {len(changed):,} on one side only"
    same = shown = 0
    for step in steps:
        one = step.a or step.b
        if one is None or (step.a is not None and step.b is not None):
            same += 1
            continue
        if shown == most:
            yield f"… {len(changed) - shown:,} more"
            return
        if same:
            yield f"  {same:,} the same"
            same = 0
        yield f"{'-' if step.b is None else '+'} {'→' if one.to_server else '←'} {one.kind} {one.name} {one.subject or ''}".rstrip()
        shown += 1


def _message_lines(found: MessageDifference) -> Iterator[str]:
    yield f"A  {found.a}"
    yield f"B  {found.b}"
    for field in found.fields:
        yield f"  {field.name}"
        for mark, value in (("-", field.a), ("+", field.b)):
            if value is not None:
                yield f"{mark}   {value}"
    for one in found.ranges or ():
        yield f"  bytes {one.a[0]} to {one.a[1]} and {one.b[0]} to {one.b[1]}: {', '.join(one.fields)}"
        for mark, text in (("-", one.a_hex), ("+", one.b_hex)):
            if text:
                yield f"{mark}   {bytes.fromhex(text)[:64].hex(' ')}{' …' if len(text) > 128 else ''}"
    yield f"{len(found.same)} fields are the same"
    for note in found.notes:
        say(f"wirelake: {note}")
