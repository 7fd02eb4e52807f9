"""Runs gathered by kernels are decoded as runs one by one: the same rows, the same ledger, the same stored state."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.capture.build import Talk, pcap
from tests.cases import seeds
from tests.protocols.relink.speech import control, message, reply, request
from tests.protocols.yamp import speech

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import read_split, read_tasks
from wirelake.capture.files.identity import identify
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.decode.whole_handshakes import read_whole_handshakes
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols import kernel
from wirelake.protocols.emp.messages import Data, Hello, Ping, RequestResponse
from wirelake.protocols.emp.wire import encode

PORTS = {5040: "emp", 7000: "relink", 7001: "yamp"}


def emp_stream(dice: random.Random) -> bytes:
    """Messages of EMP, some broken."""
    made = [encode(Hello())]
    for number in range(dice.randrange(12)):
        blocks = (RequestResponse(dice.random() < 0.5, number),) if dice.random() < 0.5 else ()
        made.append(encode(dice.choice([Ping(), Data(dice.randbytes(dice.choice([0, 3, 60, 300])), blocks)])))
    if dice.random() < 0.2:
        made.insert(dice.randrange(len(made)), dice.randbytes(dice.randrange(1, 40)))
    return b"".join(made)


def yamp_stream(dice: random.Random) -> bytes:
    """Messages of YAMP, some broken; some connections begin like a WebSocket."""
    made = [speech.handshake(1, dice.choice([b"json", b"msgpack", b""]))]
    made += [dice.choice([speech.event(b"e", b'{"a": 1}'), speech.request(b"sum", b"[1,2]")]) for _ in range(dice.randrange(9))]
    if dice.random() < 0.2:
        made.insert(dice.randrange(len(made)), dice.randbytes(dice.randrange(1, 40)))
    if dice.random() < 0.1:
        made[0] = b"GET / HTTP/1.1\r\n"
    return b"".join(made)


def relink_streams(dice: random.Random) -> list[bytes]:
    """Both sides of a Relink connection, some with a broken handshake, or with none."""
    sizes = dice.choice([(2, 0), (2, 2), (0, 255)])
    asked = request(dice.choice([b"demo", b"", b"x" * 255]), sizes, link=dice.choice([0, 0, 1 << 63]), epoch=5)
    client, server = [bytes(8), asked], [bytes(8), reply(dice.choice([1_700_000_000_000_000] * 4 + [0]), dice.randrange(9))]
    client += [message((bytes(sizes[0]),), (dice.randbytes(dice.randrange(90)),)) for _ in range(dice.randrange(4))]
    server += [control(3, 1, (bytes(sizes[0]),), number) for number in range(dice.randrange(3))]
    for said in (client, server):
        if dice.random() < 0.15:
            said.insert(dice.randrange(len(said)), dice.randbytes(dice.randrange(1, 40)))
        if dice.random() < 0.1:
            del said[dice.randrange(2) :]
    return [b"".join(client), b"".join(server)]


def captured(path, seed: int, *, of_relink: bool = False):
    """A capture of many connections, interleaved; bytes are lost, cut anywhere, and missing at the beginning."""
    dice = random.Random(seed)
    waiting = []
    for number in range(dice.randrange(3, 14)):
        port, stream = dice.choice([(5040, emp_stream), (7001, yamp_stream)])
        port = 7000 if of_relink else port
        talk = Talk(("10.0.0.1", 40000 + number), ("10.0.0.2", port), ts=1_700_000_000_000_000 + number)
        if dice.random() < 0.85:
            talk.open()
        else:
            talk.next = [talk.next[0] + 1, talk.next[1] + 1]
        left = relink_streams(dice) if of_relink else [stream(dice), stream(dice)]
        while any(left):
            side = dice.randrange(2)
            size = dice.choice([1, 7, 40, 200, 1000])
            chunk, left[side] = left[side][:size], left[side][size:]
            if chunk and dice.random() < 0.04:
                talk.next[side] += len(chunk)
            elif chunk:
                talk.say(side, chunk)
        if dice.random() < 0.5:
            talk.close()
        waiting.append(talk.frames())
    frames = []
    while waiting:
        mine = dice.choice(waiting)
        frames.append(mine.pop(0))
        waiting = [one for one in waiting if one]
    path.write_bytes(pcap(frames))
    return path


def decoded(path, window: int, seed: int) -> tuple[dict[str, list[dict]], list[bytes]]:
    """Rows of all tables in their order, and the states that decoding went on from."""
    dice = random.Random(seed)
    source = identify(path)
    (task,) = read_tasks(source, [])
    assembly, decoder = Assembly(PORTS, protocols.sniff, protocols.dialect), Decoder(DecodeOptions())
    out: dict[str, list[dict]] = {name: [] for name in TABLES}
    states: list[bytes] = []

    def put(batches) -> None:
        for name, parts in batches.items():
            for part in parts:
                out[name] += pa.Table.from_batches([part]).cast(TABLES[name].schema).to_pylist()

    for item in read_split(task, ports=PORTS, window=window):
        if not isinstance(item, PacketBatch):
            put(decoder.feed(item))
            continue
        for block in (*assembly.feed(item), *assembly.rest()):
            put(decoder.feed(block))
        if dice.random() < 0.3:
            put(decoder.rest())
            states.append(decoder.decoder_state.take())
            decoder = Decoder(DecodeOptions(), decoder_state=DecoderState.put(states[-1]))
    for block in assembly.finish():
        put(decoder.feed(block))
    put(decoder.finish())
    assert sum(row["bytes"] for row in out["ledger"]) == source.size
    return out, states


@pytest.mark.parametrize("seed", seeds(16, quick=3))
@pytest.mark.parametrize("way", ["plain", "compiled"])
def test_gathered_runs_are_decoded_as_one_by_one(tmp_path, monkeypatch, way, seed):
    path = captured(tmp_path / "a.pcap", seed)
    window = (1_000, 6_000, 1 << 20)[seed % 3]
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_is_plain", lambda *_: False)
        expected = decoded(path, window, seed)
    monkeypatch.setattr(kernel, "_use_plain", way == "plain")
    assert decoded(path, window, seed) == expected
    assert expected[0]["messages"]


def test_bare_streams_are_gathered(tmp_path, monkeypatch):
    """The comparison above would prove nothing if all runs were read one by one."""
    path, bare = captured(tmp_path / "a.pcap", 1), []
    is_plain = Decoder._is_plain

    def noted(self, scanner, runs):
        bare.append(is_plain(self, scanner, runs))
        return bare[-1]

    monkeypatch.setattr(Decoder, "_is_plain", noted)
    decoded(path, 1_000, 1)
    assert sum(bare) > len(bare) / 2


def test_handshakes_of_many_short_links_are_read_together(tmp_path, monkeypatch):
    """Reading each part by itself took 5 ms of a link, and more with every link beside it."""
    frames, calls = [], []
    for number in range(60):
        talk = Talk(("10.0.0.1", 40000 + number), ("10.0.0.2", 7000), ts=1_700_000_000_000_000 + 100 * number).open()
        talk.say(0, bytes(8)).say(1, bytes(8)).say(0, request(b"demo", (2, 0))).say(1, reply(1_700_000_000_000_000, 100 + number))
        talk.say(0, message((b"aa",), (b"%d" % number,))).say(1, control(3, 1, (b"aa",), 0)).close()
        frames += talk.frames()
    (tmp_path / "a.pcap").write_bytes(pcap(sorted(frames)))
    put = Decoder._put

    def counted(self, *arguments):
        calls.append(arguments)
        return put(self, *arguments)

    monkeypatch.setattr(Decoder, "_put", counted)
    found, _ = decoded(tmp_path / "a.pcap", 1 << 20, 1)
    assert len(calls) < 10
    links: dict[bytes, list[bytes]] = {}
    for row in sorted(found["relink"], key=lambda row: row["ts"]):
        links.setdefault(row["connection_id"], []).append(row["session_id"])
    kinds: dict[bytes, list[str]] = {}
    for row in sorted(found["messages"], key=lambda row: row["ts"]):
        kinds.setdefault(row["connection_id"], []).append(row["kind"])
    assert list(kinds.values()) == [["handshake"] * 4 + ["event", "ack"]] * 60
    sessions = [set(names) for names in links.values()]
    assert all(len(names) == 1 for names in sessions)
    assert len(set.union(*sessions)) == 60, "each link has a session of its own"
    assert not found["quarantine"]


def in_order(rows: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """Rows of all tables, each table sorted: handshakes that are read together have their rows together."""
    return {name: sorted(mine, key=repr) for name, mine in rows.items()}


@pytest.mark.parametrize("seed", seeds(40, quick=4))
@pytest.mark.parametrize("way", ["plain", "compiled"])
def test_handshakes_that_are_read_together_give_the_rows_of_those_read_alone(tmp_path, monkeypatch, way, seed):
    path = captured(tmp_path / "a.pcap", seed, of_relink=True)
    window = (1_000, 6_000, 1 << 20)[seed % 3]
    with monkeypatch.context() as patch:
        patch.setattr("wirelake.lake.decode.decoder.read_whole_handshakes", lambda *given: (given[3], None))
        expected, _ = decoded(path, window, seed)
    monkeypatch.setattr(kernel, "_use_plain", way == "plain")
    found, _ = decoded(path, window, seed)
    assert in_order(found) == in_order(expected)
    assert expected["relink"] or expected["quarantine"]


def test_whole_handshakes_are_read_together(tmp_path, monkeypatch):
    """The comparison above would prove nothing if all were left to the other way."""
    together = []

    def noted(*given):
        rest, opened = read_whole_handshakes(*given)
        together.append(len(given[3]) - len(rest))
        return rest, opened

    monkeypatch.setattr("wirelake.lake.decode.decoder.read_whole_handshakes", noted)
    for seed in range(6):
        decoded(captured(tmp_path / f"{seed}.pcap", seed, of_relink=True), 1 << 20, seed)
    assert sum(together) > 30


def test_the_half_of_a_handshake_is_read_without_the_other(tmp_path):
    """A capture that has only one direction of a link: its parts are messages, and packets behind them cannot be read."""
    talk = Talk(("10.0.0.1", 40000), ("10.0.0.2", 7000)).open()
    talk.say(1, bytes(8)).say(1, reply(1_700_000_000_000_000, 7)).say(1, control(3, 1, (b"aa",), 0)).close()
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    found, _ = decoded(tmp_path / "a.pcap", 1 << 20, 1)
    assert [row["type_name"] for row in found["relink"]] == ["version", "reply"]
    assert [row["reason"] for row in found["quarantine"]] == ["ID_SIZES_UNKNOWN"]
