"""Exchanges, violations and sessions of small conversations, each of which is known by heart."""

import pytest

from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.lake.tables.rules import threats
from wirelake.protocols import names
from wirelake.protocols.faults import VIOLATIONS


def rules(rows, case):
    return [row["rule"] for row in rows("violations", case)]


def test_a_request_is_paired_with_its_response(rows):
    (exchange,) = rows("exchanges", "plain")
    assert exchange["status"] == "answered"
    assert exchange["latency_us"] == 250_000
    assert exchange["requested_by"] == "client"
    assert exchange["correlation_id"] == "1"
    assert (exchange["late"], exchange["cancelled"], exchange["progress"]) == (False, False, 0)
    said = {row["message_id"]: row for row in rows("messages", "plain")}
    assert said[exchange["request_message_id"]]["kind"] == "request"
    assert said[exchange["response_message_id"]]["kind"] == "response"
    assert exchange["request_size"] == said[exchange["request_message_id"]]["size"]
    assert exchange["response_size"] == said[exchange["response_message_id"]]["size"]


def test_a_request_without_a_response_is_unanswered(rows):
    (exchange,) = rows("exchanges", "unanswered")
    assert exchange["status"] == "unanswered"
    assert exchange["response_message_id"] is None
    assert exchange["latency_us"] is None
    assert exchange["late"] is False


def test_an_answer_after_the_limit_is_late(rows):
    (exchange,) = rows("exchanges", "late")
    assert (exchange["status"], exchange["late"], exchange["latency_us"]) == ("late", True, 39_000_000)


def test_both_sides_may_use_the_same_id_at_once(rows):
    """EMP-13."""
    exchanges = {row["requested_by"]: row["latency_us"] for row in rows("exchanges", "both sides ask")}
    assert exchanges == {"client": 500_000, "server": 100_000}
    assert rules(rows, "both sides ask") == []


def test_an_id_that_is_used_again_once_answered_is_another_request(rows):
    """EMP-13: and it breaks a rule."""
    assert [row["latency_us"] for row in rows("exchanges", "reused id")] == [1_000_000, 2_000_000]
    assert rules(rows, "reused id") == ["REQUEST_ID_REUSED"]


def test_an_id_in_flight_may_not_be_used_again(rows):
    """EMP-18."""
    assert [row["status"] for row in rows("exchanges", "id in flight")] == ["unanswered", "unanswered"]
    (violation,) = rows("violations", "id in flight")
    assert (violation["rule"], violation["clause"], violation["severity"]) == ("REQUEST_ID_IN_FLIGHT", "EMP-18", "error")
    assert violation["direction"] == "to_server"
    assert violation["ended_session"] is True


def test_a_response_nobody_waits_for_is_a_violation_and_an_exchange_without_request(rows):
    """EMP-16."""
    (exchange,) = rows("exchanges", "unmatched")
    assert (exchange["status"], exchange["requested_by"], exchange["correlation_id"]) == ("unasked", "client", "9")
    assert (exchange["request_message_id"], exchange["requested"], exchange["latency_us"], exchange["attempts"]) == (None, None, None, 0)
    said = {row["message_id"]: row for row in rows("messages", "unmatched")}
    assert said[exchange["response_message_id"]]["kind"] == "response"
    (session,) = rows("sessions", "unmatched")
    assert (session["requests"], session["answered"]) == (0, 0)
    assert rules(rows, "unmatched") == ["RESPONSE_UNMATCHED"]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("plain", []),
        ("repeated hello", [("HELLO_REPEATED", "to_server")]),
        ("data before hello", [("HELLO_EXPECTED", "to_server")]),
        ("too soon", [("SPOKE_TOO_SOON", "to_server")]),
        ("spoke after bye", [("SPOKE_AFTER_PARTING", "to_server")]),
        ("who stays may finish", []),
        ("abnormal close", [("CLOSED_WITHOUT_PARTING", "to_client")]),
        ("version", [("VERSION_UNSUPPORTED", "to_server")]),
        ("pings", [("PING_OVERLAPPING", "to_server"), ("PONG_UNSOLICITED", "to_client")]),
        ("silent server", [("HANDSHAKE_TIMEOUT", "to_client")]),
        ("quickly gone", []),
        ("still open", []),
        ("middle", [("REQUEST_ID_ZERO", "to_client")]),
        ("cut", [("MESSAGE_CUT", "to_server"), ("CLOSED_INSIDE_MESSAGE", None)]),
        ("cut by the other", [("MESSAGE_CUT", "to_server"), ("CLOSED_WITHOUT_PARTING", "to_client")]),
        ("cut by itself", [("MESSAGE_CUT", "to_client"), ("CLOSED_INSIDE_MESSAGE", "to_client")]),
        ("pong behind a large message", []),
        ("late pong", [("PONG_TIMEOUT", "to_client")]),
        ("no pong", [("PING_OVERLAPPING", "to_client"), ("PONG_TIMEOUT", "to_server")]),
        ("never a pong", [("PONG_TIMEOUT", "to_client"), ("PONG_MISSING", "to_client")]),
        ("gone before the pong", []),
        ("not seen so long", []),
    ],
)
def test_every_broken_rule_is_found_once_and_nothing_else(rows, case, expected):
    assert [(row["rule"], row["direction"]) for row in rows("violations", case)] == expected


def test_what_is_tolerated_ends_no_session(rows):
    assert {row["severity"] for row in rows("violations", "pings")} == {"tolerated"}
    assert {row["ended_session"] for row in rows("violations", "pings")} == {False}


def test_what_did_not_happen_in_time_is_told_when_the_time_was_up(rows):
    """EMP-32: at the ping that was not answered."""
    ping, (late,) = rows("messages", "late pong")[2], rows("violations", "late pong")
    assert (ping["name"], late["message_id"], (late["ts"] - ping["ts"]).total_seconds()) == ("ping", None, 10)
    assert (late["source"], late["offset"], late["length"]) == (ping["source"], ping["offset"], ping["length"])
    assert not late["ended_session"]
    assert late["detail"] == "it came after 11.000 s"
    assert rows("violations", "no pong")[1]["ended_session"]


def test_a_violation_leads_back_to_its_message(rows):
    (violation,) = rows("violations", "repeated hello")
    (message,) = [row for row in rows("messages", "repeated hello") if row["message_id"] == violation["message_id"]]
    assert message["name"] == "hello"
    assert (message["source"], message["offset"], message["length"]) == (violation["source"], violation["offset"], violation["length"])


@pytest.mark.parametrize(
    ("case", "handshake", "ended_how", "ended_by"),
    [
        ("plain", "complete", "bye", "client"),
        ("both sides ask", "complete", "bye", "server"),
        ("id in flight", "complete", "error", "server"),
        ("abnormal close", "complete", "eof", "server"),
        ("version", "refused", "error", "server"),
        ("quickly gone", "refused", "bye", "server"),
        ("silent server", "refused", "error", "client"),
        ("data before hello", "refused", "error", "server"),
        ("still open", "complete", "open", None),
        ("middle", "incomplete", "eof", None),
    ],
)
def test_a_session_says_how_it_began_and_ended(rows, case, handshake, ended_how, ended_by):
    (session,) = rows("sessions", case)
    assert (session["handshake"], session["ended_how"], session["ended_by"]) == (handshake, ended_how, ended_by)


def test_a_session_counts_what_was_said(rows):
    (session,) = rows("sessions", "plain")
    assert (session["messages_to_server"], session["messages_to_client"]) == (3, 2)
    assert (session["bytes_to_server"], session["bytes_to_client"]) == (12 + 31 + 8, 12 + 32)
    assert (session["requests"], session["answered"], session["violations"]) == (1, 1, 0)
    assert (session["client_version"], session["server_version"], session["error_code"]) == (1, 1, None)
    assert session["duration_us"] == 3_000_000
    assert (session["ended"] - session["opened"]).total_seconds() == 3
    assert (session["client_address"], session["server_address"], session["server_port"]) == ("127.0.0.1", "127.0.0.1", 5040)


def test_a_refused_session_shows_the_error_and_the_version(rows):
    (session,) = rows("sessions", "version")
    assert (session["client_version"], session["server_version"], session["error_code"], session["violations"]) == (2, None, 3, 0)


def test_a_session_that_did_not_end_has_no_end_but_a_duration(rows):
    (session,) = rows("sessions", "still open")
    assert session["ended"] is None
    assert session["duration_us"] == 1_000_000


def test_every_violation_has_its_clause_its_gravity_and_its_place(lake):
    found = delta.dataset(lake, table("violations")).to_table().to_pylist()
    assert {row["protocol"] for row in found} >= {"emp", "event_mesh", "yamp"}
    for row in found:
        missing = [
            name for name in ("clause", "severity", "text", "ended_session", "ts", "source", "offset", "length") if row[name] is None
        ]
        assert not missing, (row["protocol"], row["rule"], missing)


def test_metrics_count_every_message_and_request_once(lake):
    said, asked, minutes = (delta.dataset(lake, table(name)).to_table().to_pylist() for name in ("messages", "exchanges", "metrics"))
    assert sum(row["messages"] for row in minutes) == len(said)
    assert sum(row["bytes"] for row in minutes) == sum(row["size"] for row in said)
    assert sum(row["requests"] for row in minutes) == sum(row["status"] != "unasked" for row in asked)
    found = delta.dataset(lake, table("violations")).to_table(columns=["severity"]).column("severity").to_pylist()
    assert sum(row["violations"] for row in minutes) == sum(severity in VIOLATIONS for severity in found)


def test_the_topology_counts_every_message_once(lake):
    pairs = delta.dataset(lake, table("topology")).to_table().to_pylist()
    counted = sum(row["messages_to_server"] + row["messages_to_client"] for row in pairs)
    assert counted == delta.dataset(lake, table("messages")).count_rows()
    assert {row["protocol"] for row in pairs} == set(names())


def test_a_run_wrote_down_what_it_did(lake):
    (run,) = delta.dataset(lake, table("runs")).to_table().to_pylist()
    assert (run["kind"], run["outcome"], run["batch"], run["skipped"]) == ("ingest", "done", 1, 0)
    got = {row["table"]: row["rows"] for row in run["rows"]}
    assert got["messages"] == delta.dataset(lake, table("messages")).count_rows()
    assert [stage["stage"] for stage in run["stages"]] == ["recover", "plan", "start", "decode", "build"]
    assert run["files"] == len(run["inputs"]) > 4


def test_threats_of_every_room_are_told_beside_those_to_belief(lake):
    def told(name):
        return [row for row in delta.dataset(lake, table(name)).to_table().to_pylist() if row["protocol"] != "event_mesh"]

    known = threats()
    rules = {(row["source"], row["offset"], row["rule"]): known.get(f"{row['protocol']}/{row['rule']}") for row in told("violations")}
    found = {(row["source"], row["offset"], row["rule"]): row["threat"] for row in told("security")}
    assert found == {place: threat for place, threat in rules.items() if threat is not None}
    assert {"downgrade", "forged", "bomb"} <= set(found.values())
    assert {row["accepted"] for row in told("security")} == {False}
