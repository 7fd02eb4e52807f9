"""A table with features of Delta Lake that are not honoured is refused by name: by every reader and every writer."""

from __future__ import annotations

import json

import pytest
from tests.lake.empty_lake import fresh_lake

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.errors import ErrorCode, TableFeature
from wirelake.lake.api import open_lake
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import compaction, delta, gold_commit, snapshot
from wirelake.lake.store.check_lake import check_lake
from wirelake.lake.store.delta import File
from wirelake.lake.tables import messages
from wirelake.lake.tables.catalog import GOLD

VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
}
"""The `protocol` action that Spark writes when it turns deletion vectors on."""


def turn_on(lake, protocol, table=messages.TABLE):
    """Write the next entry of a log by hand."""
    log = delta.folder(lake, table) / "_delta_log"
    entry = log / f"{len(list(log.glob('*.json'))):020d}.json"
    lines = [{"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES", "engineInfo": "Apache-Spark/4.3"}}, {"protocol": protocol}]
    entry.write_text("\n".join(map(json.dumps, lines)) + "\n")


@pytest.fixture
def lake(tmp_path):
    fresh_lake(tmp_path / "lake")
    snapshot.publish(tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "some.pcap"
    path.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    return path


USES = {
    "a snapshot": lambda lake, _: snapshot.current(lake).files("messages"),
    "the Python API": lambda lake, _: open_lake(lake).dataset("messages"),
    "a commit": lambda lake, _: delta.append(lake, messages.TABLE, [File("part-00000001-x.parquet", 1, 1)], 1),
    "compaction": lambda lake, _: compaction.tidy(lake, 1),
    "ingest": lambda lake, capture: ingest(lambda: pytest.fail("Spark was started"), lake, [capture]),
}


@pytest.mark.parametrize("use", USES)
def test_deletion_vectors_are_refused_by_name(lake, capture, use):
    turn_on(lake, VECTORS)
    with pytest.raises(TableFeature, match=r"table .*lake/messages has .*: deletionVectors\. .*DROP FEATURE") as refused:
        USES[use](lake, capture)
    assert refused.value.features == ("deletionVectors",)
    assert refused.value.code is ErrorCode.TABLE_FEATURE
    assert "\n" not in str(refused.value)


def test_readers_of_an_older_version_are_refused_as_soon_as_a_newer_one_has_the_feature(lake):
    """They would go on to show rows that were deleted."""
    seen = snapshot.current(lake)
    assert seen.files("messages") == []
    turn_on(lake, VECTORS)
    with pytest.raises(TableFeature):
        seen.files("messages")


def test_gold_tables_are_refused_too(lake):
    turn_on(lake, VECTORS, GOLD[0])
    with pytest.raises(TableFeature, match=GOLD[0].name):
        gold_commit.publish(lake, 1, [])


@pytest.mark.parametrize("command", [["query", "select count(*) from messages"], ["report"], ["check"], ["gold"]])
def test_commands_say_so_and_fail(lake, command, capsys):
    turn_on(lake, VECTORS)
    is_check = command == ["check"]
    assert run([command[0], str(lake), *command[1:]]) == (ExitCode.DATA if is_check else ExitCode.FAILED)
    output = capsys.readouterr()
    lines = [line for line in (output.out if is_check else output.err).splitlines() if "deletionVectors" in line]
    assert lines
    assert all(f"{lake}/messages" in line and "DROP FEATURE" in line for line in lines)


@pytest.mark.parametrize(
    ("protocol", "features"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, ("changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns")),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "invariants"]}, ("rowTracking",)),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}, ("later",)),
        ({"minReaderVersion": 4, "minWriterVersion": 8}, ("reader version 4", "writer version 8")),
    ],
)
def test_other_features_and_those_that_nobody_knows_yet_are_named(lake, protocol, features):
    turn_on(lake, protocol)
    for as_of in (None, 0):
        with pytest.raises(TableFeature) as refused:
            delta.files(lake, messages.TABLE, as_of)
        assert refused.value.features == features


def test_a_feature_that_was_turned_off_again_is_no_hindrance(lake):
    turn_on(lake, VECTORS)
    with pytest.raises(TableFeature):
        delta.files(lake, messages.TABLE)
    turn_on(lake, {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]})
    assert delta.files(lake, messages.TABLE) == snapshot.current(lake).files("messages") == []
    assert [problem for part in check_lake(lake, ["files", "snapshot"]) for problem in part.problems] == []
