"""The way in for people who have their own Spark: each piece alone, and the examples as they are."""

import subprocess
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.protocols.event_mesh.receiving import store

import wirelake.lake
from wirelake import protocols
from wirelake.errors import LakeError, UsageError
from wirelake.lake import build_table, decode_table, inputs_of, open_lake, read_messages, read_packets, read_table, table_names, write_table
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import SILVER, TABLES, table

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "emp": "answered 9\nunanswered 1\n",
    "event_mesh": "events 4\naccepted 3\nnot accepted 1\n",
    "relink": "committed 2\nrolled back 1\n",
    "wolpertinger": "Stock.Price failed 1\nStock.Price returned 2\nStock.Sold confirmed 1\n",
    "yamp": "warmest 24\nexchanges 2\nsum answered after 3 steps\nsum answered after 2 steps\n",
}


@pytest.mark.parametrize("name", SAID)
def test_the_example_of_a_protocol_prints_what_it_should(spark, capsys, name):
    found = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    example = module_from_spec(found)
    found.loader.exec_module(example)
    example.main(spark)
    assert capsys.readouterr().out == SAID[name]


def test_every_protocol_that_has_peers_has_an_example():
    with_peers = {name for name in protocols.names() if (EXAMPLES.parent / "src/wirelake/peers" / name).exists()}
    with_peers |= {name for name in protocols.names() if (EXAMPLES.parent / "src/wirelake/peers" / f"{name}.py").exists()}
    assert with_peers == set(SAID)


@pytest.mark.slow
def test_importing_the_way_in_imports_no_spark_and_says_what_it_has():
    names = ("open_lake", "table_names", "query", "report", "spark_session")  # these work without Spark, or start it themselves
    code = f"import sys, wirelake.lake as lake; dir(lake); [getattr(lake, name) for name in {names}]; print('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert set(wirelake.lake.__all__) <= set(dir(wirelake.lake))
    for name in wirelake.lake.__all__:
        assert f"`{name}`" in wirelake.lake.__doc__, name
        assert getattr(wirelake.lake, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'ingest_everything'"):
        _ = wirelake.lake.ingest_everything


def test_a_name_that_needs_a_missing_library_says_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None; import wirelake.lake as lake; lake.ingest"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra: pyspark is not installed: run `pip install 'wirelake[lake]'`" in done.stderr


def test_tables_come_straight_from_captures_as_an_ingest_makes_them(spark, lake):
    """But for what the lake judged or opened by keys, and for what the ledger says of batches."""
    seen = open_lake(lake)
    paths = sorted(str(path) for path in lake.parent.glob("*.pcap*") if path.name not in ("mesh.pcapng", "wolpertinger.pcapng"))
    for each in SILVER:
        rows = decode_table(spark, each.name, *paths).toArrow().to_pylist()
        held = [row for row in seen.dataset(each.name).to_table().to_pylist() if row["source"] in paths]
        told = [name for name in each.schema.names if name not in ("mark", "batch")]
        plain = [sorted(repr([row[name] for name in told]) for row in one) for one in (rows, held)]
        assert plain[0] == plain[1], each.name
        assert rows or each.name in ("event_mesh", "wolpertinger")


def test_inputs_of_a_table_are_named():
    assert inputs_of("exchanges") == (
        *("messages", "emp", "event_mesh", "relink", "yamp", "wolpertinger"),
        *("connections", "quarantine"),
    )


# Violations and sessions come of the same fold as exchanges; metrics of DataFrames are compared in test_arrow_metrics.py.
@pytest.mark.parametrize(
    "name", ["exchanges", "security", "topology", *(pytest.param(each, marks=pytest.mark.long) for each in ("sessions", "metrics"))]
)
def test_a_table_is_built_from_frames_as_an_ingest_builds_it(spark, lake, name):
    seen = open_lake(lake)
    given = {one: seen.frame(spark, one) for one in inputs_of(name)}
    if name in ("sessions", "security", "metrics"):  # what is given is not built again
        given |= {one: seen.frame(spark, one) for one in ("exchanges", "violations")}
    options = {"keys": store()} if name == "security" else {}
    built = build_table(spark, name, given, **options).toArrow().to_pylist()
    assert sorted(map(repr, built)) == sorted(map(repr, seen.dataset(name).to_table().to_pylist())), name


def test_what_is_missing_or_unknown_is_named(spark, lake):
    messages = read_table(spark, lake, "messages")
    with pytest.raises(
        UsageError, match=r"exchanges is built from messages, emp, .*, connections, quarantine: give emp, .*, connections, quarantine, too"
    ):
        build_table(spark, "exchanges", {"messages": messages})
    with pytest.raises(UsageError, match="exchanges knows no option colour"):
        build_table(spark, "exchanges", {name: read_table(spark, lake, name) for name in inputs_of("exchanges")}, colour="red")
    with pytest.raises(LakeError, match="messages is not built from other tables; these are: exchanges"):
        inputs_of("messages")
    with pytest.raises(LakeError, match="unknown table 'mesages': choose one of messages, "):
        read_table(spark, lake, "mesages")
    with pytest.raises(LakeError, match="is a lake, which only ingests write: name another folder"):
        write_table(messages, lake, "messages")
    with pytest.raises(LakeError, match="s3://bucket/lake: a lake is a folder that driver and executors share"):
        read_table(spark, "s3://bucket/lake", "messages")


def test_a_lake_is_opened_by_path_and_its_tables_by_name(spark, lake):
    seen = open_lake(str(lake))
    assert seen.path == lake
    assert seen.version > 0
    assert set(seen.tables) == set(table_names())
    assert seen.frame(spark, "messages").count() == seen.dataset("messages").count_rows() > 0
    assert all(path.suffix == ".parquet" for path in seen.files("messages"))
    for call in (seen.files, seen.dataset, lambda name: seen.frame(spark, name)):
        with pytest.raises(LakeError, match="unknown table 'mesages'"):
            call("mesages")


def test_sql_and_report_are_in_the_api(lake, tmp_path):
    assert wirelake.lake.query(str(lake), "select count(*) as n from messages").to_pylist() == [
        {"n": open_lake(lake).dataset("messages").count_rows()}
    ]
    assert "Wirelake report" in wirelake.lake.report(str(lake), str(tmp_path)).read_text()


def test_a_table_is_written_and_read_back(spark, lake, tmp_path):
    rows = read_table(spark, lake, "sessions")
    assert write_table(rows, (tmp_path / "mine").as_uri(), "sessions") == rows.count()
    again = read_table(spark, tmp_path / "mine", "sessions")
    assert sorted(map(repr, again.collect())) == sorted(map(repr, rows.collect()))
    assert write_table(rows.limit(1), tmp_path / "mine", "sessions") == 1
    assert read_table(spark, tmp_path / "mine", "sessions").count() == 1
    with pytest.raises(LakeError, match="mine is not a lake"):
        read_table(spark, tmp_path / "mine", "messages")
    assert table_names() == tuple(TABLES)


def test_a_session_that_somebody_else_set_writes_times_as_the_lake_wants_them_and_is_theirs_again(spark, lake, tmp_path):
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        write_table(read_table(spark, lake, "sessions"), tmp_path / "mine", "sessions")
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    columns = pq.read_schema(delta.files(tmp_path / "mine", table("sessions"))[0])
    assert columns.field("opened").type == table("sessions").schema.field("opened").type


def test_any_thread_of_a_program_may_read(spark, lake):
    """Spark looks for data sources in the session of the thread that asks, and a new thread has none."""
    counted = []
    thread = threading.Thread(target=lambda: counted.append(read_messages(spark, lake.parent / "cases.pcapng").count()))
    thread.start()
    thread.join()
    assert counted == [read_messages(spark, lake.parent / "cases.pcapng").count()]


def test_messages_and_packets_are_read_without_a_lake(spark, lake):
    recording = lake.parent / "cases.pcapng"
    messages = read_messages(spark, recording, protocol="emp")
    assert messages.count() == read_table(spark, lake, "messages").where(f"source = '{recording}'").count()
    assert {"client_address", "server_port"} <= set(messages.columns)
    assert read_packets(spark, recording).count() > 0
