"""YAMP in the lake: exchanges with progress and cancels, bodies as JSON whatever they were, sessions, and every rule that history shows."""

from __future__ import annotations

import json

import pytest
from tests.lake.yamp_sessions import BROKEN, CASES, FIRST_PORT


@pytest.fixture(scope="module")
def told(lake):
    """told(table, case): the rows of one conversation, in the order of time."""
    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import table

    names = ("sessions", "exchanges", "violations", "messages", "yamp")
    tables = {name: delta.dataset(lake, table(name)).to_table().to_pylist() for name in names}
    ids = {row["client_port"]: row["session_id"] for row in tables["sessions"] if row["protocol"] == "yamp"}
    cases = {case: ids[port] for port, case in enumerate(CASES, FIRST_PORT)}
    order = {"exchanges": "requested", "sessions": "opened"}

    def rows(name, case):
        mine = [row for row in tables[name] if row["session_id"] == cases[case]]
        return sorted(mine, key=lambda row: (str(row[order.get(name, "ts")]), row.get("offset", 0)))

    return rows


@pytest.mark.parametrize("case", CASES)
def test_the_rules_that_are_broken(told, case):
    found = told("violations", case)
    assert sorted(row["rule"] for row in found) == BROKEN.get(case, [])
    assert all(row["clause"].startswith("YAMP-") for row in found)


def test_a_pong_that_is_late_is_told_at_its_ping(told):
    """YAMP-18: the one with the other payload was answered."""
    (late,) = told("violations", "pongs")
    assert (late["direction"], late["message_id"], late["ts"].second, late["length"]) == (
        "to_client",
        None,
        told("messages", "pongs")[2]["ts"].second + 10,
        3,
    )


def test_what_a_server_refuses_is_the_client_s_fault(told):
    (refused,) = told("violations", "refused")
    assert (refused["direction"], refused["message_id"]) == ("to_server", told("messages", "refused")[0]["message_id"])


def test_a_request_with_all_that_came_of_it_is_one_exchange(told):
    (row,) = told("exchanges", "progress")
    assert (row["subject"], row["requested_by"], row["status"], row["progress"], row["cancelled"]) == (
        "work",
        "client",
        "answered",
        3,
        False,
    )
    assert (row["latency_us"], row["correlation_id"]) == (1_000_000, bytes(range(0x10, 0x20)).hex())
    (row,) = told("exchanges", "cancelled")
    assert (row["status"], row["cancelled"], row["latency_us"]) == ("answered", True, 2_000_000)
    (row,) = told("exchanges", "killed")
    assert (row["status"], row["cancelled"]) == ("killed", True)
    (row,) = told("exchanges", "failed")
    assert (row["status"], row["requested_by"]) == ("answered", "server")
    assert [row["status"] for row in told("messages", "failed") if row["kind"] == "response"] == ["error"]


@pytest.mark.parametrize(
    ("case", "outcomes"),
    [
        ("plain", ["returned"]),
        ("progress", ["returned"]),
        ("failed", ["failed"]),
        ("cancelled", ["cancelled"]),
        ("killed", ["killed"]),
        ("answered, not cancelled", ["returned"]),
        ("cancelled, then killed", ["killed"]),
        ("killed and answered", ["killed", "failed"]),
        ("unmatched", [None]),
        ("uid in flight", [None, None]),
    ],
)
def test_an_exchange_tells_what_came_of_its_request(told, case, outcomes):
    """0x07, 0x08: done, error, cancelled, or killed, which no answer undoes; a uid that is free again is another request."""
    found = told("exchanges", case)
    assert [row["outcome"] for row in found] == outcomes
    assert {row["kind"] for row in found} == {"request"}


def test_what_only_a_ruling_forbids_is_no_violation(told):
    """YAMP-5: the text asks for a size, and 0 is one; the finding stays, but no count includes it."""
    assert {(row["severity"], row["origin"]) for row in told("violations", "empty serializer")} == {("info", "ruling")}
    assert told("sessions", "empty serializer")[0]["violations"] == 0
    assert told("sessions", "uid in flight")[0]["violations"] == 1


def test_bodies_are_json_in_whatever_they_were_sent(told):
    bodies = [row["body_json"] for row in told("messages", "msgpack") if row["kind"] == "event"]
    assert [body and json.loads(body) for body in bodies] == [{"a": [1, None]}, {"a": [1, None]}, None]
    assert [row["body_serializer"] for row in told("yamp", "msgpack") if row["type"] == 5] == ["msgpack"] * 3
    bodies = [row["body_json"] for row in told("messages", "empty serializer") if row["kind"] == "event"]
    assert [body and json.loads(body) for body in bodies] == [{"a": [1, None]}, {"a": 1}, None]
    answer = next(row for row in told("messages", "progress") if row["kind"] == "response")
    assert json.loads(answer["body_json"]) == {"b": [True]}


def test_sql_reaches_into_bodies(spark, lake):
    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import table

    messages = spark.createDataFrame(delta.dataset(lake, table("messages")).to_table().to_pandas()[["protocol", "subject", "body_json"]])
    found = messages.where("protocol = 'yamp' AND subject = 'work' AND body_json IS NOT NULL").selectExpr(
        "variant_get(parse_json(body_json), '$.b[0]', 'boolean') AS b"
    )
    assert [row.b for row in found.collect() if row.b is not None] == [True]


def test_sessions(told):
    (row,) = told("sessions", "plain")
    assert (row["handshake"], row["client_version"], row["server_version"]) == ("complete", 1, 1)
    assert (row["requests"], row["answered"], row["ended_how"], row["ended_by"]) == (1, 1, "bye", "client")
    (row,) = told("sessions", "version")
    assert (row["handshake"], row["client_version"], row["server_version"]) == ("refused", 2, None)
    assert told("sessions", "large version")[0]["client_version"] is None
    assert told("yamp", "large version")[0]["version"] == 65535
    (row,) = told("sessions", "redirected")
    assert (row["ended_how"], row["ended_by"]) == ("bye", "server")
    assert told("sessions", "gone")[0]["ended_how"] == "eof"


def test_a_serializer_is_known_in_the_next_block_to_whoever_greeted_with_it(tmp_path):
    """Small blocks, so that the handshake lies in one and bodies in others; one side was not heard greeting, and its bodies are guessed."""
    from tests.lake.yamp_sessions import HANDS, PACKED
    from tests.protocols.yamp import speech

    from wirelake import protocols
    from wirelake.capture.blocks.read_file import read
    from wirelake.capture.files.identity import identify
    from wirelake.capture.record.recorder import Recorder
    from wirelake.lake.decode.decoder import DecodeOptions, Decoder

    with Recorder(tmp_path / "a.pcapng", protocol="yamp") as recorder:
        connection = recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        connection.sent(speech.handshake(1, b"msgpack"))
        for _ in range(300):
            connection.received(speech.event(b"e", b"\x17" * 1) + speech.event(b"e", PACKED))
            connection.sent(speech.event(b"e", b"\x17"))
    decoder, found, count = Decoder(DecodeOptions()), [], 0
    for block in read(identify(tmp_path / "a.pcapng"), ports=protocols.ports(), sniff=protocols.sniff, window=4096):
        count += 1
        for batch in decoder.feed(block).get("yamp", []):
            found += batch.to_pylist()
    assert count > 2
    said = {
        way: [row["body_serializer"] for row in found if row["type"] == 5 and row["direction"] == way] for way in ("to_server", "to_client")
    }
    assert said["to_server"] == ["msgpack"] * 300
    assert None in said["to_client"]
    assert len(found) == 901
    assert HANDS
