"""Random histories that break rules, folded without Spark: the rows are those that SQL gave before there were analyzers.

`AS_SQL` has a fingerprint for each protocol and table. For EMP, Event Mesh, Relink and wolpertinger they were compared with tables that the
SQL of rules version 4 had built of the same recordings. YAMP's differ from it where SQL was wrong: see `tests/lake/histories/yamp.py`.
"""

from __future__ import annotations

import random
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.lake.conftest import CASES, record
from tests.lake.histories import emp, event_mesh, relink, wolpertinger, yamp
from tests.protocols.wolpertinger.pair import KEYS

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.index_rows import IndexRows
from wirelake.lake.gold.fold.connection_order import ranked_windows, ranks_of
from wirelake.lake.gold.fold.facts import session_facts
from wirelake.lake.gold.fold.seen import analyzer_of, columns_of
from wirelake.lake.gold.fold.sessions import SessionFold
from wirelake.lake.gold.fold.windows import read_windows
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.index import CONNECTION_INDEX
from wirelake.lake.tables.protocols import LINKS
from wirelake.lake.views import resolved, view_id, views
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

SEEDS = 24
WRITERS = {"emp": emp.write, "event_mesh": event_mesh.write, "relink": relink.write, "wolpertinger": wolpertinger.write, "yamp": yamp.write}
FOLDED = ("exchanges", "violations", "sessions")

OBSERVER = "alice"
"""All recordings are of one observer, though their peers have one role or the other."""
LATER = ("source", "observer", "is_primary", "link", "uncounted", "unconfirmed")
"""Columns that SQL did not give."""
FORMER = {"observer_kind": "observed_by"}
"""Column -> the name that it had."""

AS_SQL = {
    "emp": {"exchanges": "a15651dd41125aa2", "violations": "9a262e22a7fa4228", "sessions": "d5bf3f491ffdcac5"},
    "event_mesh": {"exchanges": "e3b0c44298fc1c14", "violations": "c4141fe99e7fd2d5", "sessions": "f258ab4fbb430dc0"},
    "relink": {"exchanges": "e8dcdc6cdcc49f2b", "violations": "f60828c0a21a638d", "sessions": "da26ea892a9c372e"},
    "wolpertinger": {"exchanges": "d4ede242eab6cc22", "violations": "b93c63a9134d6e0a", "sessions": "75790d274312b873"},
    "yamp": {"exchanges": "0f7fda3ddab0996f", "violations": "1d02cc9311cca744", "sessions": "70ee9c31199f13cd"},
}
"""Fingerprints of the rows that SQL gave.

Those of YAMP differ from SQL's in BODY_UNDECODABLE, and so in the violations of a session: bodies are read with the serializer of the first
handshake now (YAMP-11). A killed request is not unanswered, and its uid not in flight (YAMP-34). EMP and YAMP have fewer violations than
SQL gave: none behind a message that is cut. Rules about
reuse of identifiers and answers after a kill came later.
"""


def decoded(paths, protocol):
    """Table -> rows of these recordings, the connection index among them."""
    known = {"ports": protocols.ports(), "sniff": protocols.sniff, "dialect": protocols.dialect}
    found = {name: [] for name in TABLES}
    index = IndexRows(1, "part.parquet")
    keyring = Keyring([KEYS]) if protocol == "wolpertinger" else None
    for path in paths:
        decoder = Decoder(DecodeOptions(), keyring=keyring)
        for batches in [
            *(decoder.feed(block) for block in read(msgspec.structs.replace(identify(path), observer=OBSERVER), **known)),
            decoder.finish(),
        ]:
            index.add(batches)
            for name, made in batches.items():
                found[name] += [pa.Table.from_batches([batch]).cast(TABLES[name].schema) for batch in made]
    tables = {name: pa.concat_tables(parts) if parts else TABLES[name].schema.empty_table() for name, parts in found.items()}
    tables["index"] = pa.Table.from_batches(index.rows()[CONNECTION_INDEX.name], CONNECTION_INDEX.schema)
    return {
        name: rows.filter(pc.equal(rows["protocol"], protocol)) if "protocol" in rows.column_names else rows
        for name, rows in tables.items()
    }


def folded(tables, protocol, windows):
    """Table -> what the fold of these windows gives."""
    links = views(tables["index"]).sessions if protocol in LINKS else None
    quarantine = tables["quarantine"]
    quarantine = quarantine.filter(pc.is_valid(quarantine["session_id"]))
    facts = session_facts(protocol, tables["index"], tables["connections"], quarantine, links)
    said = tables["index"].filter(pc.is_valid(tables["index"]["direction"]))
    newest = pc.max(said["last_seen"]).cast(pa.int64()).as_py()
    found = {name: [] for name in FOLDED}
    fold = SessionFold(protocol, facts, lambda name, rows: found[name].append(rows), late_seconds=30, newest=newest, links=links)
    for window, ranks in windows:
        fold.feed(window, ranks)
    fold.finish()
    return {name: [row for rows in parts for row in rows.to_pylist()] for name, parts in found.items()}


def one_window(tables, protocol):
    ranked_by = analyzer_of(protocol).RANKED_BY
    return [(tables[protocol], None if ranked_by is None else ranks_of(tables[protocol], ranked_by))]


def windows_of(paths, tables, protocol):
    ranked_by = analyzer_of(protocol).RANKED_BY
    read = partial(read_windows, paths, columns_of(analyzer_of(protocol).MESSAGE), None, "connection_id")
    if ranked_by is None:
        return ((window, None) for window in read())
    index = resolved(tables["index"], views(tables["index"]))
    return ranked_windows(read, index.filter(pc.is_valid(index["direction"])), ranked_by)


def former_ids(tables, protocol):
    """Session -> the id that it had before each observer had one: then all observers of a link shared a session."""
    found = {}
    for row in tables["relink"].to_pylist() if protocol == "relink" else ():
        if row["link_id"]:
            known = HandshakeReader()
            known.link = (int(row["epoch"]), int(row["link_id"]))
            found[view_id(known.session, OBSERVER)] = known.session
    return found


def fingerprint(rows):
    """Whatever their order, wherever the files lay, and whoever recorded them."""
    lines = sorted(repr(sorted((FORMER.get(name, name), value) for name, value in row.items() if name not in LATER)) for row in rows)
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.fixture(scope="module", params=WRITERS)
def recorded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    paths = sorted(path for seed in range(SEEDS) for path in WRITERS[request.param](folder, seed))
    return request.param, decoded(paths, request.param)


def test_rows_are_those_that_sql_gave(recorded):
    protocol, tables = recorded
    found = folded(tables, protocol, one_window(tables, protocol))
    former = former_ids(tables, protocol)
    for row in (row for rows in found.values() for row in rows):
        row["session_id"] = former.get(row["session_id"], row["session_id"])
    assert {name: fingerprint(rows) for name, rows in found.items()} == AS_SQL[protocol]


def test_rows_do_not_depend_on_files_and_row_groups(recorded, tmp_path):
    """Rows in any order, in files of any size, with windows of a few rows."""
    protocol, tables = recorded
    dice = random.Random(protocol)
    rows, paths = tables[protocol], []
    order = list(range(rows.num_rows))
    for start in range(0, len(order), 200):  # about in order, as recordings are
        part = order[start : start + 400]
        dice.shuffle(part)
        order[start : start + 400] = part
    at = 0
    while at < len(order):
        count = dice.choice((1, 700, 3000))
        paths.append(Path(tmp_path / f"{len(paths)}.parquet"))
        pq.write_table(rows.take(order[at : at + count]), paths[-1], row_group_size=dice.choice((100, 1000)))
        at += count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirelake.lake.gold.fold.windows.WINDOW_ROWS", dice.choice((100, 1000)))
        found = folded(tables, protocol, windows_of(paths, tables, protocol))
    whole = folded(tables, protocol, one_window(tables, protocol))
    assert {name: fingerprint(rows) for name, rows in found.items()} == {name: fingerprint(rows) for name, rows in whole.items()}


def test_a_rule_broken_by_the_last_word_waits_for_the_end(tmp_path):
    """The error that ends a session is in a later window than the message that it answers, wherever windows are cut."""
    tables = decoded([record(tmp_path / "cases.pcapng", CASES)], "emp")
    in_time = tables["emp"].sort_by("ts")
    whole = folded(tables, "emp", one_window(tables, "emp"))
    one_by_one = folded(tables, "emp", [(in_time.slice(at, 1), None) for at in range(in_time.num_rows)])
    assert {row["rule"] for row in whole["violations"] if row["ended_session"]} >= {"HELLO_REPEATED", "REQUEST_ID_IN_FLIGHT"}
    for name in FOLDED:
        assert sorted(map(repr, one_by_one[name])) == sorted(map(repr, whole[name]))


def print_fingerprints() -> None:
    """For whoever changes a rule on purpose: what to write down in AS_SQL."""
    import tempfile

    for protocol, write in WRITERS.items():
        with tempfile.TemporaryDirectory() as folder:
            paths = sorted(path for seed in range(SEEDS) for path in write(Path(folder), seed))
            tables = decoded(paths, protocol)
            rows = folded(tables, protocol, one_window(tables, protocol))
        print(f"    {protocol!r}: { ({name: fingerprint(each) for name, each in rows.items()})!r},")


if __name__ == "__main__":
    print_fingerprints()
