"""Wolpertinger in the lake: both layers, pieces joined, gzip and encryption undone, calls with what came of them, and every rule."""

from __future__ import annotations

import json

import pytest
from tests.lake.wolpertinger_sessions import BROKEN, CASES, FIRST_PORT, IN_PIECES, LONG, SEALED

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2 import documents


@pytest.fixture(scope="module")
def told(lake):
    """told(table, case): the rows of one conversation, in the order of time."""
    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import table

    names = ("sessions", "exchanges", "violations", "messages", "wolpertinger", "quarantine")
    tables = {name: delta.dataset(lake, table(name)).to_table().to_pylist() for name in names}
    ids = {row["client_port"]: row["session_id"] for row in tables["sessions"] if row["protocol"] == "wolpertinger"}
    cases = {case: ids[port] for port, case in enumerate(CASES, FIRST_PORT)}
    order = {"exchanges": "requested", "sessions": "opened"}

    def rows(name, case):
        mine = [row for row in tables[name] if row["session_id"] == cases[case]]
        return sorted(mine, key=lambda row: (row[order.get(name, "ts")], row.get("offset", 0)))

    return rows


@pytest.mark.parametrize("case", CASES)
def test_the_rules_that_are_broken(told, case):
    found = told("violations", case)
    assert sorted(row["rule"] for row in found) == BROKEN.get(case, [])
    assert [row["clause"] for row in found] == [Fault[row["rule"]].clause for row in found]
    assert all((row["length"] > 0) == (row["rule"] != "CLOSED_INSIDE_MESSAGE") for row in found)


def test_both_layers_are_columns(told):
    call, confirmed, answer, _ = told("wolpertinger", "plain")
    assert (call["type"], call["text_id"], call["root"], call["component"], call["method"]) == (
        "message",
        1,
        "RemoteMethodCall",
        "Sample",
        "Add",
    )
    assert [(one["type"], json.loads(one["value"])) for one in call["parameters"]] == [
        ("int32", -3),
        ("uint64", 2**64 - 1),
        ("string", 'a "b" & <c>'),
        ("boolean", True),
        ("double", 1.5),
    ]
    assert (confirmed["type"], confirmed["result_code"], confirmed["result_name"], confirmed["payload"]) == ("result", 0, "success", None)
    assert (answer["value"], answer["parameters"]) == ({"type": "int32", "value": "7"}, None)
    kinds = [(row["kind"], row["name"], row["subject"]) for row in told("messages", "plain")]
    assert kinds == [
        ("request", "RemoteMethodCall", "Sample.Add"),
        ("ack", "result", None),
        ("response", "RemoteMethodResponse", None),
        ("ack", "result", None),
    ]
    assert {row["correlation_id"] for row in told("messages", "plain") if row["kind"] != "ack"} == {call["call_id"]}
    assert [row["kind"] for row in told("messages", "heartbeat")].count("keepalive") == 1
    assert [row["kind"] for row in told("messages", "encrypted")].count("control") == 1


def test_the_text_that_completes_a_message_says_it(told):
    rows = told("wolpertinger", "pieces")
    assert [row["root"] for row in rows[: len(IN_PIECES)]] == [None] * (len(IN_PIECES) - 1) + ["RemoteMethodCall"]
    last = told("messages", "pieces")[len(IN_PIECES) - 1]
    assert last["body"] == documents.encode(LONG)
    assert json.loads(last["body_json"])["parameters"][0]["value"] == "tea " * 100
    assert {row["root"] for row in told("wolpertinger", "pieces missing")} == {None}


def test_what_keys_open_is_read_and_what_they_do_not_is_marked(told):
    rows = [row for row in told("wolpertinger", "encrypted") if row["encryption"]]
    assert [row["decrypted"] for row in rows] == [True, True, *[False] * (len(SEALED) - 1), True, True]
    assert [row["method"] for row in rows if row["method"]] == ["Secret", "Echo", "SendResetNotice"]
    (row,) = [row for row in told("wolpertinger", "closed book") if row["encryption"]]
    assert (row["decrypted"], row["root"], row["fault"]) == (False, None, None)
    (row,) = [row for row in told("messages", "closed book") if row["name"] == "encrypted"]
    assert (row["body"], row["status"]) == (None, "ok")


def test_a_call_with_what_came_of_it_is_one_exchange(told):
    found = {case: told("exchanges", case) for case in ("plain", "void", "failed", "refused", "sent again", "unconfirmed", "pieces")}
    assert {
        case: [(row["status"], row["outcome"], row["attempts"], row["latency_us"]) for row in rows] for case, rows in found.items()
    } == {
        "plain": [("answered", "returned", 1, 250_000)],
        "void": [("confirmed", "confirmed", 1, 500_000)],
        "failed": [("answered", "failed", 1, 100_000)],
        "refused": [("answered", "refused", 1, 100_000)],
        "sent again": [("answered", "returned", 2, 21_000_000)],
        "unconfirmed": [("unanswered", None, 1, None)],
        "pieces": [("answered", "returned", 1, 3_000_000 - 1_000_000 - 100_000 * (len(IN_PIECES) - 1))],
    }
    assert found["failed"][0]["requested_by"] == "server"
    assert found["plain"][0]["subject"] == "Sample.Add"
    assert told("exchanges", "heartbeat")[0]["latency_us"] == 26_000_000


def test_sessions(told):
    (row,) = told("sessions", "plain")
    assert (row["handshake"], row["ended_how"], row["requests"], row["answered"], row["error_code"]) == (None, "eof", 1, 1, None)
    (row,) = told("sessions", "life goes on")
    assert (row["ended_how"], row["error_code"]) == ("eof", 500)
    (row,) = told("sessions", "clear when encrypted")
    assert (row["ended_how"], row["ended_by"], row["error_code"]) == ("error", "server", 202)


def test_a_result_after_the_error_is_no_word_after_it(told):
    (row,) = told("violations", "clear when encrypted")
    assert row["ended_session"]
    assert not told("violations", "sent again")[0]["ended_session"]


def test_an_omission_is_the_fault_of_who_kept_silent(told):
    (row,) = told("violations", "unconfirmed")
    assert (row["direction"], row["message_id"]) == ("to_client", None)
    (row,) = told("violations", "pieces missing")
    assert (row["direction"], row["severity"]) == ("to_server", "info")


def test_a_callee_s_word_is_told_of_the_call_and_a_misfit_of_the_answer(told):
    said = {row["message_id"]: (row["name"], row["direction"]) for row in told("messages", "refused calls")}
    assert {said[row["message_id"]] for row in told("violations", "refused calls")} == {("RemoteMethodCall", "to_server")}
    said = {row["message_id"]: (row["name"], row["direction"]) for row in told("messages", "misfit")}
    assert [said[row["message_id"]] for row in told("violations", "misfit")] == [("RemoteMethodResponse", "to_client")]
    (silent,) = told("violations", "no answer")
    assert (silent["direction"], silent["message_id"], silent["ended_session"]) == ("to_client", None, True)


def test_texts_that_cannot_be_read_are_kept_line_by_line(told):
    assert [row["raw"] for row in told("quarantine", "broken texts")] == [b"message_id:1;colour:red;\n", b"nonsense\n", b"\n"]
