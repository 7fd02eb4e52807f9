"""Relink in the lake: packets read through their handshake, links over several connections, deliveries with their acknowledgements."""

from __future__ import annotations

import pytest
from tests.lake.relink_sessions import EPOCH, LINK, OBSERVER, STORY, record
from tests.protocols.relink import speech

from wirelake.capture.record.recorder import Recorder
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.lake.views import view_id
from wirelake.protocols.relink.handshake import HandshakeReader


def rows(lake, name, protocol="relink"):
    found = delta.dataset(lake, table(name)).to_table().to_pylist()
    return [row for row in found if row.get("protocol", protocol) == protocol]


@pytest.fixture(scope="module")
def session_id():
    known = HandshakeReader()
    known.link = (EPOCH, LINK)
    return view_id(known.session, OBSERVER)


def test_packets_are_read_with_the_sizes_of_their_handshake(lake):
    in_order = sorted(rows(lake, "relink"), key=lambda row: (row["ts"], row["offset"]))
    assert [row["type_name"] for row in in_order] == [name for _, _, name, data in STORY if data]
    request = next(row for row in in_order if row["type_name"] == "request")
    assert (request["endpoint"], request["connector_id_size"], request["listener_id_size"]) == ("demo", 2, 0)
    first = next(row for row in in_order if row["type_name"] == "message")
    assert (first["channel_ids"], first["payload"]) == ([b"aa"], [b"one"])


def test_a_link_is_a_session_over_its_connections(lake, session_id):
    found = {row["session_id"]: row for row in rows(lake, "sessions")}
    assert set(found) == {session_id}
    link = found[session_id]
    assert (link["connections"], link["handshake"], link["ended_how"]) == (2, "complete", "bye")
    assert {row["session_id"] for row in rows(lake, "messages")} == {session_id}
    assert len({row["connection_id"] for row in rows(lake, "messages")}) == 2


def test_deliveries_are_numbered_and_resolved_across_the_reconnection(lake):
    found = {row["correlation_id"]: row for row in rows(lake, "exchanges")}
    a, b = b"aa".hex(), b"bb".hex()
    assert set(found) == {f"{a}/0", f"{a}/1", f"{a}/2", f"{a}/3", f"{b}/0", "/0"}
    assert {name: row["attempts"] for name, row in found.items() if row["attempts"] > 1} == {f"{a}/2": 2}
    assert {name: row["status"] for name, row in found.items() if row["status"] != "answered"} == {"/0": "unanswered"}
    assert found[f"{a}/0"]["latency_us"] == 2_000_000  # consumed(1) covers both
    assert found[f"{a}/1"]["latency_us"] == 1_000_000
    assert found[f"{a}/2"]["latency_us"] == 17_000_000  # sent, lost, sent again, consumed
    assert found[f"{b}/0"]["outcome"] == "consumed"
    assert (found["/0"]["requested_by"], found[f"{a}/0"]["requested_by"]) == ("server", "client")


def test_a_well_behaved_link_breaks_no_rule(lake):
    assert rows(lake, "violations") == []


def test_what_cannot_be_read_without_the_handshake_is_kept(spark, tmp_path):
    """A recording whose beginning is lost: nobody knows the sizes of channel ids."""
    with Recorder(tmp_path / "cut.pcapng", protocol="relink") as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        talk.received(bytes(8) + speech.reply(EPOCH, LINK))
        talk.received(speech.message((b"",), (b"x",)))
        talk.sent(bytes(8) + speech.request(b"demo", (2, 0))[:-3])
    ingest(spark, tmp_path / "lake", [tmp_path / "cut.pcapng"])
    spoilt = {(row["reason"], row["direction"]) for row in rows(tmp_path / "lake", "quarantine")}
    assert spoilt == {("ID_SIZES_UNKNOWN", "to_client"), ("MESSAGE_CUT", "to_server")}


def test_packets_before_the_handshake_is_over_break_its_order(spark, tmp_path):
    record(tmp_path / "odd.pcapng", [*STORY[:4], (1, "client", "version", bytes(8))], first_port=31_000)
    with Recorder(tmp_path / "late.pcapng", protocol="relink") as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        talk.sent(bytes(8))
        talk.sent(speech.request(b"demo", (2, 0)) + speech.message((b"aa",), (b"too soon",)))
    ingest(spark, tmp_path / "lake", [tmp_path / "late.pcapng"])
    assert [row["rule"] for row in rows(tmp_path / "lake", "violations")] == ["HANDSHAKE_ORDER"]
