"""Which protocol a captured connection speaks: by port, by its first bytes, or by nothing at all."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from tests.capture.build import ACK, Talk, ethernet, interface, ipv4, packet_block, pcap, section, simple_packet_block, udp
from tests.lake.test_gaps import decoded
from tests.protocols.relink import speech

from wirelake import protocols
from wirelake.capture.blocks import accounting
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.packets.tracked import by_port
from wirelake.capture.record.exported_pdu import LINK_EXPORTED, Tags, build
from wirelake.cli.commands import commands
from wirelake.cli.ingest import print_result
from wirelake.lake.decode import unrecognised
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.jobs.ingest import IngestResult
from wirelake.lake.tables.unrecognised import TABLE
from wirelake.protocols.emp.messages import Data, Hello
from wirelake.protocols.emp.wire import encode as encode_emp
from wirelake.protocols.relink.messages import Reply, Request
from wirelake.protocols.relink.wire import encode

EPOCH = 1_700_000_000_000_000


def relink(path, *, is_answered: bool = True):
    """A connection to an endpoint without a name, on a port that says nothing about its protocol."""
    talk = Talk(server=("10.0.0.2", 6123)).open()
    talk.say(0, bytes(8))
    if is_answered:
        talk.say(1, bytes(8))
    talk.say(0, encode(Request("")))
    if is_answered:
        talk.say(1, encode(Reply(EPOCH, 77)))
    talk.say(0, speech.message(parts=(b"hello",)))
    path.write_bytes(pcap(talk.close().frames()))
    return path


def test_relink_without_an_endpoint_name_is_recognised_by_the_listeners_reply(tmp_path):
    rows = decoded(relink(tmp_path / "a.pcap"))
    in_time = sorted(rows["relink"], key=lambda row: row["ts"])
    assert [row["type_name"] for row in in_time] == ["version", "version", "request", "reply", "message"]
    assert {(row["protocol"], row["known_by"]) for row in rows["connections"]} == {("relink", "bytes")}
    assert rows["quarantine"] == []


def test_relink_without_an_endpoint_name_and_a_listener_is_recognised_by_its_first_message(tmp_path):
    rows = decoded(relink(tmp_path / "a.pcap", is_answered=False))
    assert [row["type_name"] for row in rows["relink"]] == ["version", "request", "message"]


def test_every_protocol_has_a_port_that_serve_listens_on_and_captures_are_known_by():
    assert protocols.names()[:5] == ("emp", "event_mesh", "relink", "yamp", "wolpertinger")
    assert protocols.ports() == {5040: "emp", 5041: "event_mesh", 5047: "relink", 8888: "yamp", 8844: "wolpertinger"}
    for port, name in protocols.ports().items():
        assert protocols.get(name).default_port in (None, port)
        serve = commands(name).serve
        address = next(one for one in serve.params if one.name == "address")
        assert address.default.endswith(f"://127.0.0.1:{port}")


@pytest.mark.parametrize("name", protocols.names())
def test_a_connection_on_a_protocols_own_port_is_of_that_protocol_whatever_it_says(name):
    assert by_port(protocols.get(name).port, 50_000, protocols.ports()) == name


TS = 1_700_000_000_000_000


def web(number: int, port: int = 80, text: bytes = b"GET / HTTP/1.0\r\n\r\n") -> Talk:
    """A connection that no protocol recognises."""
    return Talk(("10.0.0.1", 20_000 + number), ("10.0.0.2", port)).open().say(0, text).say(1, b"HTTP/1.0 200 OK\r\n\r\n").close()


def sums(rows) -> set[tuple]:
    names = ("transport", "client_address", "server_address", "server_port", "reason", "packets", "bytes")
    return {tuple(row[name] for name in names) for row in rows["unrecognised"]}


def check_sums(rows) -> None:
    """The table has what the ledger has."""
    told = [row for row in rows["ledger"] if row["reason"] == "unrecognised"]
    for name, other in (("bytes", "bytes"), ("items", "packets")):
        assert sum(row[name] for row in told) == sum(row[other] for row in rows["unrecognised"])


def test_what_no_protocol_recognises_is_listed_by_host_and_port(tmp_path):
    frames = [frame for number in range(3) for _, frame in web(number).frames()] + [frame for _, frame in web(9, 8080).frames()]
    frames += [ethernet(ipv4("10.0.0.9", "10.0.0.5", udp(777, 53, b"who is it" * 3), protocol=17))] * 2
    frames += [frame for _, frame in Talk(("10.0.0.1", 999), ("10.0.0.3", 22)).say(0, b"from the middle").frames()]
    (tmp_path / "a.pcap").write_bytes(pcap([(TS + number, frame) for number, frame in enumerate(frames)]))
    for window in (200, 8 << 20):
        rows = decoded(tmp_path / "a.pcap", window)
        assert sums(rows) == {
            ("tcp", "10.0.0.1", "10.0.0.2", 80, "no protocol begins like this", 6, 3 * 37),
            ("tcp", "10.0.0.1", "10.0.0.2", 8080, "no protocol begins like this", 2, 37),
            ("udp", "10.0.0.9", "10.0.0.5", 53, "no protocol begins like this", 2, 54),
            ("tcp", "10.0.0.1", "10.0.0.3", 22, "beginning not captured", 1, 15),
        }
        check_sums(rows)
        (dns,) = [row for row in rows["unrecognised"] if row["transport"] == "udp"]
        assert (dns["last_seen"] - dns["first_seen"]).microseconds == 1


def test_a_recording_of_another_protocol_is_listed_too(tmp_path):
    ends = {"source": "10.0.0.1", "source_port": 1234, "destination": "10.0.0.2", "destination_port": 99}
    records = [
        build(Tags(dissector="sip", **ends)) + b"INVITE",
        build(Tags(**ends)) + b"what?",
        build(Tags(dissector="sip", **ends)) + b"BYE",
    ]
    (tmp_path / "a.pcap").write_bytes(pcap([(TS + number, one) for number, one in enumerate(records)], link=LINK_EXPORTED))
    source = identify(tmp_path / "a.pcap")
    decoder = Decoder(DecodeOptions())
    fed = [decoder.feed(block) for block in read(source, ports=protocols.ports(), sniff=protocols.sniff, protocols=protocols.names())]
    (rows,) = decoder.finish()["unrecognised"]
    assert len(fed) == 1
    found = {(row["reason"], row["server_port"], row["packets"], row["bytes"]) for row in rows.to_pylist()}
    assert found == {("recorded as sip", 99, 2, 9), ("neither a tag nor a known port", 99, 1, 5)}


def test_more_hosts_than_are_listed_are_summed_in_one_row(tmp_path, monkeypatch):
    """A scan of many ports takes no more memory than the limit, and not a byte is lost."""
    frames = [frame for number in range(40) for _, frame in web(number, 1000 + number).frames()]
    (tmp_path / "a.pcap").write_bytes(pcap([(TS + number, frame) for number, frame in enumerate(frames)]))
    for module, name, left in ((accounting, "MAX_UNRECOGNISED", 40), (unrecognised, "MAX_ROWS", 40)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 12)
            rows = decoded(tmp_path / "a.pcap", 1000 if module is unrecognised else 8 << 20)
        listed = [row for row in rows["unrecognised"] if row["server_port"] is not None]
        (rest,) = [row for row in rows["unrecognised"] if row["server_port"] is None]
        assert 5 <= len(listed) <= 12
        assert (rest["reason"], rest["transport"], rest["client_address"]) == ("more than are listed", None, None)
        assert rest["packets"] == 2 * (left - len(listed))
        check_sums(rows)


def test_sums_of_many_tasks_become_one_row_of_each_host():
    def row(port: int, size: int, first: int | None, source: bytes = b"s") -> dict:
        names = {"source": source.decode(), "source_id": source, "transport": "tcp", "client_address": "a", "server_address": "b"}
        return {**names, "server_port": port, "reason": "r", "packets": 1, "bytes": size, "first_seen": first, "last_seen": first}

    tasks = [[row(1, 10, 5), row(2, 1, None)], [row(1, 10, 3), row(3, 2, 9)], [row(3, 2, 9, b"t"), row(4, 1, 1)], []]
    batches = [pa.RecordBatch.from_pylist(rows, schema=TABLE.schema) for rows in tasks]
    merged = unrecognised.merge(batches, 7).to_pylist()
    assert [(one["source"], one["server_port"], one["bytes"], one["packets"]) for one in merged[:1]] == [("s", 1, 20, 2)]
    assert (merged[0]["first_seen"].microsecond, merged[0]["last_seen"].microsecond) == (3, 5)
    assert {one["batch"] for one in merged} == {7}
    assert len(merged) == 5
    few = unrecognised.merge(batches, 7, most=2).to_pylist()
    assert {(one["source"], one["server_port"], one["bytes"]) for one in few} == {("s", 1, 20), ("s", 3, 2), ("s", None, 2), ("t", None, 2)}
    assert unrecognised.merge([], 7).num_rows == 0


def test_a_packet_without_a_time_has_none_in_any_table(tmp_path):
    """Simple packet blocks do not say when; an enhanced one between them does."""
    greeting, data = encode_emp(Hello()), encode_emp(Data(b"data"))
    talk = Talk().open().say(0, greeting).say(0, data).say(0, data + b"no message")
    frames = [frame for _, frame in (*talk.frames(), *web(1).frames())]
    blocks = [simple_packet_block(frame) for frame in frames]
    blocks[4] = packet_block(TS, frames[4])
    (tmp_path / "a.pcapng").write_bytes(section() + interface(1) + b"".join(blocks))
    rows = decoded(tmp_path / "a.pcapng")
    when = [row["ts"] and int(row["ts"].timestamp() * 1e6) for row in sorted(rows["messages"], key=lambda row: row["offset"])]
    assert when == [None, TS, None]
    assert {row["ts"] for name in ("connections", "quarantine") for row in rows[name]} == {None}
    assert [(row["first_seen"], row["last_seen"]) for row in rows["unrecognised"]] == [(None, None)]


def test_a_connection_without_times_and_beginning_is_the_same_however_often_it_is_read(tmp_path):
    frames = [
        Talk(("10.0.0.1", port)).segment(0, ACK, encode_emp(Data(b"data")), seq=seq) for port, seq in ((1, 5), (1, 5 + (1 << 27)), (2, 5))
    ]
    (tmp_path / "a.pcapng").write_bytes(section() + interface(101) + b"".join(map(simple_packet_block, frames)))
    ids = [row["connection_id"] for row in decoded(tmp_path / "a.pcapng")["connections"]]
    assert ids == [row["connection_id"] for row in decoded(tmp_path / "a.pcapng", 100)["connections"]]
    assert len(set(ids)) == 2


def test_the_summary_of_an_ingest_tells_what_nobody_recognised(tmp_path, capsys):
    result = IngestResult(1, 1, 5000, 3, 0, (), (), (), (), (), (), resumed=False, seconds=1.0, unrecognised=1234)
    print_result(result, tmp_path)
    assert f"1,234 bytes were recognised by no protocol: `wirelake query {tmp_path} unrecognised`" in capsys.readouterr().err
    print_result(msgspec.structs.replace(result, unrecognised=0), tmp_path)
    assert "recognised" not in capsys.readouterr().err
