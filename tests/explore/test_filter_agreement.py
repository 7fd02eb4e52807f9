"""A lake and a reading of the same recordings let the same messages through every filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.cases import examples
from tests.explore.lakes import lake_of
from tests.explore.test_bytes import emp_recording, relink_recording

from wirelake import protocols
from wirelake.explore.model.conditions import condition
from wirelake.explore.model.database import Database
from wirelake.explore.query import QueryLimits
from wirelake.explore.reading.engine import ReadOptions
from wirelake.explore.reading.inputs import Reading
from wirelake.explore.reading.matching import Values, matcher
from wirelake.explore.reading.records import Message, Unanswered
from wirelake.filters import FIELDS, Kind, field_of, parse
from wirelake.protocols.kernel import use_plain

NOT_OF_MESSAGES = ("number", "type", "since", "until")
"""Fields that mean something else in a lake, or count back from now."""
COLUMNS = [
    f"{protocol}.{name}"
    for protocol in ("emp", "relink")
    for name in protocols.get(protocol).columns().SCHEMA.names
    if field_of(f"{protocol}.{name}") is not None
]
NAMES = [*(name for name in FIELDS if name not in NOT_OF_MESSAGES), *COLUMNS]
SHOP = Path(__file__).parents[2] / "docs/tutorial/shop.pcap"


class Both(NamedTuple):
    """The same messages twice, and terms about them."""

    database: Database
    seen: dict[str, Values]
    """Id of a message -> its values in a reading."""
    terms: list[str]

    def agree(self, text: str) -> None:
        """Compare what a filter lets through."""
        wanted = parse(text)
        chosen, matches = condition(wanted), matcher(wanted)
        with self.database.connection() as connection:
            sql = f"SELECT lower(hex(m.message_id)) FROM messages m WHERE {chosen.sql}"
            rows = connection.execute(sql, list(chosen.values)).fetchall()
        assert {row[0] for row in rows} == {one for one, values in self.seen.items() if matches(values)}, text


@pytest.fixture(scope="module")
def both(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A lake of a capture and two recordings, and the values of every message as `wirelake read` has them."""
    folder = tmp_path_factory.mktemp("agreement")
    use_plain()
    files = [SHOP, emp_recording(folder / "emp.pcapng"), relink_recording(folder / "relink.pcapng")]
    seen: dict[str, Values] = {}
    waits: set[str] = set()
    for path in files:
        for record in Reading(ReadOptions(whole=True)).read([str(path)]):
            if isinstance(record, Message):
                seen[record.message_id.hex()] = record.values(NAMES)
            elif isinstance(record, Unanswered):
                waits.add(record.request.message_id.hex())
    for one in waits:  # in a lake, the request itself is unanswered
        statuses = seen[one]["status"]
        seen[one] = {**seen[one], "status": ["unanswered", *([statuses] if isinstance(statuses, str) else statuses)]}  # type: ignore[list-item, misc]
    with Database(lake_of(fill, folder / "lake", files), QueryLimits()) as database:
        yield Both(database, seen, list(terms(seen)))
    use_plain(False)


def known(seen: dict[str, Values], name: str) -> list[str]:
    """Values that messages have of a field."""
    found = set()
    for values in seen.values():
        held = values.get(name)
        if held is not None:
            found |= {str(one) for one in ((held,) if isinstance(held, (str, int, float)) else held)}
    return sorted(found)[:: max(1, len(found) // 5)]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def terms(seen: dict[str, Values]) -> Iterator[str]:
    """For every field, terms with values that messages have, and nearly."""
    yield from (quoted(word) for word in ("milk", "order", "EMP", "a", "{", "7", "hello", "DATA", '"'))
    yield from (
        f"{name}:{net}" for name in ("host", "from", "to") for net in ("10.0.0.0/29", "127.0.0.0/8", "::/0", "10.0.0.*", "10.0.0.11")
    )
    yield from (f"ts:{sign}2026-09-21T14:{minute}" for sign in ("<", "<=", ">", ">=") for minute in ("13:22.315836", "14", "16"))
    for name in NAMES:
        about = field_of(name)
        assert about is not None
        for value in known(seen, name):
            if about.kind in (Kind.NUMBER, Kind.SECONDS):
                yield from (f"{name}:{sign}{value}" for sign in ("", ">", ">=", "<", "<="))
            elif about.kind is Kind.ID:
                yield from (f"{name}:{value[:digits]}" for digits in (1, 6, 32))
            elif about.kind is Kind.TEXT and not about.choices and name != "protocol":
                plain, cut = value.replace("[", "?"), len(value) // 2
                for text in (value, plain.upper(), f"{plain[:cut]}*", f"*{plain[cut:]}", f"*{plain[cut : cut + 4]}*", f"?{plain[1:]}"):
                    yield f"{name}:{quoted(text)}"
            elif about.kind is not Kind.TIME:
                yield f"{name}:{quoted(value)}"
        if not about.choices and name not in ("protocol", "ts"):
            yield f"{name}:*"


def test_a_lake_and_a_reading_of_the_same_recordings_agree_about_every_field(both: Both) -> None:
    assert {term.partition(":")[0] for term in both.terms} >= set(NAMES) - {"ts"}
    for text in both.terms:
        both.agree(text)


TREES = st.recursive(
    st.integers(0, 1 << 16), lambda inner: st.tuples(st.sampled_from([" or ", " ", " and not ", "-"]), inner, inner), max_leaves=5
)


def written(tree: Any, terms: list[str]) -> str:
    if isinstance(tree, int):
        return terms[tree % len(terms)]
    word, first, second = tree
    return f"-({written(first, terms)})" if word == "-" else f"({written(first, terms)}{word}({written(second, terms)}))"


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=TREES)
def test_they_agree_about_every_combination(both: Both, tree: Any) -> None:
    both.agree(written(tree, both.terms))
