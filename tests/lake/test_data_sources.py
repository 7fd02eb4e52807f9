"""Captures as DataFrames, without a lake; filters on time and port are applied while reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, StringContains
from tests.capture.build import Talk, ethernet, ipv4, pcap, udp

from wirelake.capture.packets.filter import PacketFilter
from wirelake.errors import UsageError
from wirelake.lake import register
from wirelake.lake.sources import messages, packets
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources.filters import interest
from wirelake.lake.sources.silver import CapturedSource
from wirelake.protocols.emp.messages import Data, Hello
from wirelake.protocols.emp.wire import encode

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    talks = []
    for port in (20_001, 20_002):
        talk = Talk(("10.0.0.1", port), ("10.0.0.2", 5040)).open().say(0, encode(Hello())).say(1, encode(Hello()))
        for number in range(5):
            talk.say(0, encode(Data(b"%d %d" % (port, number))))
        talks += talk.close().frames()
    talks.append((1_700_000_100_000_000, ethernet(ipv4("10.0.0.3", "10.0.0.4", udp(53, 9999, b"other"), protocol=17))))
    talks.append((1_700_000_100_000_000, ethernet(b"\x45", kind=0x0806)))
    (folder / "a.pcap").write_bytes(pcap(talks))
    return folder


def test_messages_are_read_without_a_lake(spark, captures):
    frame = register(spark).read.format("wirelake").option("protocol", "emp").load(str(captures))
    rows = frame.collect()
    assert len(rows) == 14
    assert {(row["client_address"], row["server_port"], row["transport"]) for row in rows} == {("10.0.0.1", 5040, "tcp")}
    assert {bytes(row["body"]) for row in rows if row["client_port"] == 20_001 and row["body"]} == {b"20001 %d" % n for n in range(5)}
    late = frame.where(frame.ts > START + timedelta(milliseconds=6)).where("client_port = 20001").collect()
    assert sorted(bytes(row["body"]) for row in late) == [b"20001 2", b"20001 3", b"20001 4"]
    assert register(spark).read.format("wirelake").option("protocol", "event-mesh").load(str(captures)).count() == 0


def test_packets_are_read_with_their_ends(spark, captures):
    frame = register(spark).read.format("wirelake.packets").load(str(captures / "a.pcap"))
    rows = frame.collect()
    assert len(rows) == 2 * (3 + 7 + 3) + 2
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("tcp"), kinds.count("udp"), kinds.count("not ip")) == (26, 1, 1)
    raw = (captures / "a.pcap").read_bytes()
    for row in rows:
        if row["payload"]:
            assert bytes(row["payload"]) in raw[row["offset"] : row["offset"] + 16 + row["size"]]
    (other,) = frame.where("destination_port = 9999").collect()
    assert (other["source_address"], other["source_port"], bytes(other["payload"]), other["sequence"]) == ("10.0.0.3", 53, b"other", None)
    assert frame.where("source_port in (20001)").count() == 2 + 1 + 5 + 2


def test_filters_become_an_interest():
    at = START + timedelta(microseconds=5)
    micro = 1_700_000_000_000_005
    cases = [
        ([GreaterThan(("ts",), at)], PacketFilter(since=micro + 1), 0),
        ([GreaterThanOrEqual(("ts",), at), LessThan(("ts",), at)], PacketFilter(since=micro, until=micro - 1), 0),
        ([LessThanOrEqual(("ts",), at), LessThan(("ts",), at + timedelta(seconds=1))], PacketFilter(until=micro), 0),
        ([EqualTo(("ts",), at)], PacketFilter(since=micro, until=micro), 0),
        ([EqualTo(("client_port",), 5)], PacketFilter(ports=(5,)), 1),
        ([In(("source_port",), (5, 6)), EqualTo(("destination_port",), 6)], PacketFilter(ports=(6,)), 2),
        ([StringContains(("source",), "a"), EqualTo(("ts",), "text"), EqualTo(("a", "ts"), at)], PacketFilter(), 3),
    ]
    for filters, expected, left in cases:
        found, rest = interest(filters)
        assert found == expected
        assert len(rest) == left


def test_a_reader_without_paths_says_what_is_missing():
    with pytest.raises(Exception, match="no path to read"):
        messages.MessageSource({}).reader(None).partitions()


@pytest.mark.parametrize(
    ("source", "options", "complaint"),
    [
        (messages.MessageSource, {"foo": "1", "path": "x"}, r"format\(\"wirelake\"\) has no option 'foo': it knows protocol, ports"),
        (messages.MessageSource, {"Protocoll": "emp"}, "has no option 'protocoll'"),
        (messages.MessageSource, {"protocol": "smtp"}, "unknown protocol 'smtp'"),
        (messages.MessageSource, {"ports": "6000=emp"}, "option ports"),
        (messages.MessageSource, {"ports": '{"6000": "smtp"}'}, "unknown protocol 'smtp'"),
        (packets.PacketSource, {"protocol": "emp"}, r"format\(\"wirelake\.packets\"\) has no option 'protocol': it knows none"),
        (CapturedSource, {"table": "emp", "tables": "emp"}, "has no option 'tables': it knows table, ports"),
    ],
)
def test_options_that_a_source_does_not_know_are_refused_by_name(source, options, complaint):
    made = source(options)
    with pytest.raises(UsageError, match=complaint):
        made.reader(made.schema())


def test_options_that_a_source_knows_are_taken_whatever_their_case():
    assert (
        messages.MessageSource({"PROTOCOL": "emp", "ports": '{"6000": "event-mesh"}', "paths": "[]"}).reader(None).options["protocol"]
        == "emp"
    )
    assert sources_options.ports({"ports": '{"6000": "event-mesh"}'}) == {6000: "event_mesh"}


def test_an_unknown_option_is_told_to_who_loads(spark, captures):
    with pytest.raises(AnalysisException, match="has no option 'foo': it knows protocol, ports"):
        register(spark).read.format("wirelake").option("foo", "1").load(str(captures)).collect()
