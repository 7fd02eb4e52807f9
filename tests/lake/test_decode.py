"""Blocks to rows, without Spark: the same messages however a capture was cut, and an account of every byte whatever it holds."""

import random
import struct
from collections import Counter

import pyarrow as pa
import pytest
from tests.cases import seeds

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.emp.messages import (
    Application,
    Bye,
    Compression,
    Data,
    Error,
    Hello,
    Message,
    OtherExtension,
    Ping,
    Pong,
    RequestResponse,
)
from wirelake.protocols.emp.options import Limits
from wirelake.protocols.emp.wire import encode, pack
from wirelake.protocols.kernel import use_compiled

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 5040)
TO_SERVER: list[Message] = [
    Hello(),
    Data(b'{"a": 1}', (RequestResponse(True, 2**64 - 1),)),
    Data(pack(b"tea" * 50), (RequestResponse(True, 2), Compression(1))),
    Data(b"not gzip", (Compression(1),)),
    Application(200, b"mine", (OtherExtension(130, b"xyz"),)),
    Data(b"z" * 5000),
    Ping((RequestResponse(True, 3),)),
    Bye(),
]
TO_CLIENT: list[Message] = [Hello(), Pong(), Data(b"", (RequestResponse(False, 2),)), Error(4, 1, 3, "été")]


@pytest.fixture(autouse=True)
def _fast(_same_kernels):
    use_compiled()


def decoded(
    path, *, window: int = 8 << 20, options: DecodeOptions | None = None, ports: dict[int, str] | None = None
) -> dict[str, list[dict]]:
    """All rows of a file by table, with the ledger held to the file's size."""
    decoder = Decoder(options or DecodeOptions())
    out: dict[str, list[dict]] = {name: [] for name in TABLES}
    source = identify(path)
    known = {"ports": protocols.ports() if ports is None else ports, "sniff": protocols.sniff, "dialect": protocols.dialect}
    steps = [decoder.feed(block) for block in read(source, window=window, **known)]
    for batches in [*steps, decoder.finish()]:
        for name, made in batches.items():
            for batch in made:
                assert batch.schema.names == TABLES[name].schema.names
                plain = pa.Table.from_batches([batch]).cast(TABLES[name].schema)
                out[name] += plain.to_pylist()
    assert sum(row["bytes"] for row in out["ledger"]) == source.size
    return out


def recorded(path, pieces, role="client"):
    """A recording of (direction, bytes)."""
    path.unlink(missing_ok=True)
    with Recorder(path) as recorder:
        connection = recorder.connection(protocol="emp", role=role, local=CLIENT, remote=SERVER)
        for to_server, data in pieces:
            (connection.sent if to_server else connection.received)(data)
        connection.closed("bye")
    return path


def captured(path, pieces):
    """A pcap of raw IPv4 packets of one TCP flow, in order."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)]
    seq = {True: 1000, False: 5000}

    def packet(to_server: bool, flags: int, data: bytes = b"") -> None:
        (a, p), (b, q) = (CLIENT, SERVER) if to_server else (SERVER, CLIENT)
        segment = struct.pack(">HHIIBBHHH", p, q, seq[to_server], seq[not to_server], 0x50, flags, 1024, 0, 0) + data
        addresses = bytes(map(int, a.split("."))) + bytes(map(int, b.split(".")))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, 6, 0) + addresses + segment
        out.append(struct.pack("<IIII", 1_700_000_000 + len(out), 0, len(ip), len(ip)) + ip)
        seq[to_server] += len(data) + (1 if flags & 3 else 0)

    packet(True, 2)
    packet(False, 18)
    for to_server, data in pieces:
        packet(to_server, 24, data)
    packet(True, 17)
    packet(False, 17)
    path.write_bytes(b"".join(out))
    return path


def told(rows: list[dict]) -> list[tuple]:
    """What messages say, wherever their bytes lie."""
    keys = ("direction", "kind", "name", "correlation_id", "size", "status", "fault", "body", "body_json")
    return sorted((tuple(row[key] for key in keys) for row in rows), key=repr)


def whole() -> list[tuple[bool, bytes]]:
    return [(True, encode(one)) for one in TO_SERVER] + [(False, encode(one)) for one in TO_CLIENT]


def test_every_message_of_a_recording_is_a_row_in_both_tables(tmp_path):
    rows = decoded(recorded(tmp_path / "talk.pcapng", whole()))
    assert Counter(row["name"] for row in rows["messages"]) == {
        "hello": 2,
        "data": 5,
        "application": 1,
        "ping": 1,
        "pong": 1,
        "bye": 1,
        "error": 1,
    }
    assert [row["message_id"] for row in rows["messages"]] == [row["message_id"] for row in rows["emp"]]
    assert rows["quarantine"] == []
    by_id = {row["message_id"]: row for row in rows["messages"]}
    for row in rows["emp"]:
        raw = (tmp_path / "talk.pcapng").read_bytes()[row["offset"] : row["offset"] + row["length"]]
        assert int.from_bytes(raw[:4]) == row["size"] == by_id[row["message_id"]]["size"]


def test_fields_and_vocabulary_of_each_message(tmp_path):
    rows = decoded(recorded(tmp_path / "talk.pcapng", whole()))
    wire = {row["body"]: row for row in rows["emp"] if row["body"]}
    plain = {row["body"]: row for row in rows["messages"] if row["body"]}
    biggest = wire[b'{"a": 1}']
    assert (int(biggest["request_id"]), biggest["request"], biggest["extensions"][0]["content"][:1]) == (2**64 - 1, True, b"\x80")
    assert plain[b'{"a": 1}']["body_json"] == '{"a": 1}'
    assert (plain[b"tea" * 50]["kind"], plain[b"tea" * 50]["correlation_id"]) == ("request", "2")
    spoilt = next(row for row in rows["messages"] if row["fault"] == "GZIP_INVALID")
    assert (spoilt["status"], spoilt["body"]) == ("faulty", None)
    mine = wire[b"mine"]
    assert (mine["type"], mine["type_name"], mine["extensions"][0]["id"], mine["extensions"][0]["content"]) == (
        200,
        "application",
        130,
        b"xyz",
    )
    error = next(row for row in rows["emp"] if row["type_name"] == "error")
    assert (error["error_code"], error["extension_id"], error["extension_error_code"], error["message"]) == (4, 1, 3, "été")
    assert next(row for row in rows["messages"] if row["name"] == "ping")["fault"] == "REQUEST_BLOCK_MISPLACED"
    answer = next(row for row in rows["messages"] if row["kind"] == "response")
    assert (answer["body"], answer["direction"]) == (b"", "to_client")


@pytest.mark.parametrize("size", [1, 3, 100, 1460])
def test_a_capture_gives_the_same_messages_wherever_segments_and_blocks_are_cut(tmp_path, size):
    expected = told(decoded(recorded(tmp_path / "talk.pcapng", whole()))["messages"])
    streams = {to_server: b"".join(data for side, data in whole() if side is to_server) for to_server in (True, False)}
    pieces = [(side, stream[at : at + size]) for side, stream in streams.items() for at in range(0, len(stream), size)]
    random.Random(size).shuffle(order := [side for side, _ in pieces])
    waiting = {side: iter([data for one, data in pieces if one is side]) for side in (True, False)}
    path = captured(tmp_path / "talk.pcap", [(side, next(waiting[side])) for side in order])
    places = []
    for window in (8 << 20, 4096):
        rows = decoded(path, window=window)
        assert told(rows["messages"]) == expected
        assert rows["quarantine"] == []
        places.append(sorted((row["offset"], row["length"], row["ts"]) for row in rows["messages"]))
    assert places[0] == places[1]


def test_a_message_in_pieces_carries_the_time_of_its_last_byte(tmp_path):
    hello = encode(Hello())
    (row,) = decoded(captured(tmp_path / "talk.pcap", [(True, hello[:5]), (True, hello[5:])]))["messages"]
    assert row["ts"].timestamp() == 1_700_000_000 + 4
    assert row["length"] > row["size"] == 12


def test_garbage_between_messages_is_quarantined_and_the_rest_is_read(tmp_path):
    garbage = b"\xff\xfe no EMP at all"
    rows = decoded(recorded(tmp_path / "talk.pcapng", [(True, encode(Hello()) + garbage + encode(Ping()) * 2)]))
    (spoilt,) = rows["quarantine"]
    assert (spoilt["raw"], spoilt["reason"], spoilt["clause"]) == (garbage, "SIZE_OVER_LIMIT", "EMP-35")
    assert [row["name"] for row in rows["messages"]] == ["hello", "ping", "ping"]


def test_blocks_of_a_message_that_cannot_be_read_are_not_given_to_the_next(tmp_path):
    spoilt = bytes.fromhex("0000001c058000000000001400800000800000000000000000000001")  # a good block, then one that is missing
    rows = decoded(recorded(tmp_path / "r.pcapng", [(True, spoilt + encode(Data(b"x", (RequestResponse(True, 7),))))]))
    (block,) = rows["emp"][0]["extensions"]
    assert (int(block["request_id"]), rows["quarantine"][0]["reason"]) == (7, "NEXT_BLOCK_MISSING")


def test_a_cut_message_at_the_end_is_quarantined(tmp_path):
    cut = encode(Data(b"abcdef"))[:-2]
    for path in (recorded(tmp_path / "r.pcapng", [(True, cut)]), captured(tmp_path / "c.pcap", [(True, cut)])):
        (spoilt,) = decoded(path)["quarantine"]
        assert (spoilt["raw"], spoilt["reason"], spoilt["clause"]) == (cut, "MESSAGE_CUT", "EMP-43")


def test_a_long_stretch_takes_several_rows_and_loses_nothing(tmp_path):
    garbage = bytes(range(1, 251)) * 20
    rows = decoded(recorded(tmp_path / "r.pcapng", [(True, garbage)]), options=DecodeOptions(max_raw=1000))
    assert b"".join(row["raw"] for row in rows["quarantine"]) == garbage
    assert max(len(row["raw"]) for row in rows["quarantine"]) == 1000


SHORT = Limits(sizes_exclude_themselves=True)
FLAG = ("sizes_exclude_themselves",)


def bodies(paths, **rooms: dict) -> tuple[list[bytes], int]:
    """The bodies in files, and how many stretches cannot be read."""
    rows = [decoded(path, options=DecodeOptions(rooms)) for path in paths]
    return [row["body"] for one in rows for row in one["messages"]], sum(len(one["quarantine"]) for one in rows)


def in_dialect(path, protocol: str, said: list[bytes], dialect, **more):
    with Recorder(path, **more) as recorder:
        connection = recorder.connection(protocol=protocol, role="client", local=CLIENT, remote=SERVER, dialect=lambda: dialect)
        for data in said:
            connection.sent(data)
        connection.closed("bye")
    return recorder.paths


def test_a_recording_is_read_in_the_dialect_it_was_spoken_in(tmp_path):
    said = [encode(Hello(), SHORT), *(encode(Data(b"%d" % number, (RequestResponse(True, number),)), SHORT) for number in range(1, 40))]
    whole = ([None] + [b"%d" % number for number in range(1, 40)], 0)
    paths = in_dialect(tmp_path / "one.pcapng", "emp", said, FLAG)
    assert bodies(paths) == whole
    rotated = in_dialect(tmp_path / "many.pcapng", "emp", said, FLAG, max_bytes=2000)
    assert len(rotated) > 3, "every file says it"
    assert bodies(rotated) == whole
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(rotated[0].read_bytes()[:-3])
    assert bodies([cut])[0] == bodies(rotated[:1])[0][:-1]


@pytest.mark.parametrize("ports", [{5040: "emp"}, {}], ids=["port", "bytes"])
@pytest.mark.parametrize("cut", [1, 3, 5, 12, 1000])
def test_a_captured_connection_is_read_in_the_dialect_of_its_hello(tmp_path, cut, ports):
    for limits in (SHORT, Limits()):
        there = encode(Hello(), limits) + encode(Data(b"x", (RequestResponse(True, 1),)), limits)
        back = encode(Hello(), limits) + encode(Data(b"y", (RequestResponse(False, 1),)), limits)
        pieces = [(to_server, said[at : at + cut]) for to_server, said in ((True, there), (False, back)) for at in range(0, len(said), cut)]
        rows = decoded(captured(tmp_path / "c.pcap", pieces), ports=ports)
        assert [row["body"] for row in rows["messages"]] == [None, b"x", None, b"y"]
        assert (rows["quarantine"], {row["known_by"] for row in rows["connections"]}) == ([], {"port" if ports else "bytes"})


def test_a_captured_connection_that_says_too_little_is_still_one_of_its_port(tmp_path):
    for said, spoilt in ((b"", []), (b"\x00\x00\x00", [b"\x00\x00\x00"])):
        rows = decoded(captured(tmp_path / "c.pcap", [(True, said)] if said else []))
        assert [row["what"] for row in rows["connections"]][:2] == ["seen", "opened"]
        assert [row["raw"] for row in rows["quarantine"]] == spoilt


def test_what_is_set_at_ingest_wins_over_what_a_recording_says(tmp_path):
    said = [encode(Hello(), SHORT), encode(Data(b"x"), SHORT)]
    paths = in_dialect(tmp_path / "r.pcapng", "emp", said, FLAG)
    assert bodies(paths, emp={"sizes_exclude_themselves": "auto", "max_body_size": 9}) == ([None, b"x"], 0)
    assert bodies(paths, emp={"sizes_exclude_themselves": True}) == ([None, b"x"], 0)
    assert bodies(paths, emp={"sizes_exclude_themselves": False})[1] > 0
    silent = in_dialect(tmp_path / "s.pcapng", "emp", said, ())
    assert bodies(silent, emp={"sizes_exclude_themselves": True}) == ([None, b"x"], 0)


def test_connections_of_both_dialects_in_one_recording_keep_apart(tmp_path):
    with Recorder(tmp_path / "r.pcapng") as recorder:
        both = [
            (limits, recorder.connection(protocol="emp", role="server", local=SERVER, remote=("127.0.0.1", 4000 + number), dialect=one))
            for number, (limits, one) in enumerate([(Limits(), lambda: ()), (SHORT, lambda: FLAG)] * 2)
        ]
        for body in (b"a", b"b", b"c"):
            for limits, connection in both:
                connection.received(encode(Data(body), limits))
                connection.sent(encode(Ping(), limits))
    rows = decoded(tmp_path / "r.pcapng")
    assert not rows["quarantine"]
    assert Counter(row["body"] for row in rows["messages"]) == {b"a": 4, b"b": 4, b"c": 4, None: 12}


@pytest.mark.parametrize("dialect", [("no_such_flag",), ("max_body_size",), ("sizes_exclude_themselves", "x" * 200), ("",)])
def test_a_recording_may_say_any_dialect(tmp_path, dialect):
    limits = SHORT if dialect[0] in FLAG else Limits()
    paths = in_dialect(tmp_path / "r.pcapng", "emp", [encode(Data(b"x"), limits)], dialect)
    assert bodies(paths) == ([b"x"], 0)


def test_a_yamp_recording_says_how_long_the_size_of_a_redirect_is(tmp_path):
    said = [b"\x04\x09tcp://a:1"]
    assert len(decoded(in_dialect(tmp_path / "y.pcapng", "yamp", said, ("one_byte_redirect_size",))[0])["yamp"]) == 1
    assert decoded(in_dialect(tmp_path / "n.pcapng", "yamp", said, ())[0])["quarantine"]


def test_limits_are_told(tmp_path):
    path = recorded(tmp_path / "r.pcapng", [(True, encode(Data(b"x" * 100)))])
    assert decoded(path, options=DecodeOptions({"emp": {"max_message_size": 50}}))["quarantine"][0]["reason"] == "SIZE_OVER_LIMIT"
    dialect = encode(Data(b"abc"), Limits(sizes_exclude_themselves=True))
    path = recorded(tmp_path / "d.pcapng", [(True, dialect)])
    assert decoded(path, options=DecodeOptions({"emp": {"sizes_exclude_themselves": True}}))["messages"][0]["body"] == b"abc"


def test_empty_and_foreign_files_are_accounted_for(tmp_path):
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "notes.pcap").write_bytes(b"this is no capture" * 100)
    assert [row["bytes"] for row in decoded(tmp_path / "empty.pcap")["ledger"]] == [0]
    rows = decoded(tmp_path / "notes.pcap")
    assert b"".join(row["raw"] for row in rows["quarantine"]) == b"this is no capture" * 100


@pytest.mark.parametrize("seed", seeds(60, quick=6, test=24))
def test_damaged_files_lose_no_byte(tmp_path, seed):
    chance = random.Random(seed)
    make = recorded if seed % 2 else captured
    data = bytearray(make(tmp_path / "x", whole()).read_bytes())
    match seed % 3:
        case 0:
            del data[chance.randrange(len(data)) :]
        case 1:
            for _ in range(20):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case 2:
            at = chance.randrange(len(data))
            data[at:at] = chance.randbytes(chance.randrange(1, 200))
    path = tmp_path / "damaged"
    path.write_bytes(data)
    decoded(path, window=4096)  # the ledger is held to the size in there
