"""Captures through Spark: files cut and connections dealt among tasks, and every message as one reader would have it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.capture.build import Talk, fragment_v4, pcap
from tests.lake.test_xmpp import BOB, CAROL, NOBODY, SPOKEN, captured

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.sources import plan
from wirelake.lake.store import delta
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import TABLES, table
from wirelake.protocols.emp.messages import Data, Hello
from wirelake.protocols.emp.wire import encode


def talks(seed: int, count: int = 12, *, fragments: bool = True) -> list[tuple[int, bytes]]:
    """IP packets of many EMP connections at once: some reordered, some lost, some in fragments."""
    dice = random.Random(seed)
    packets = []
    for number in range(count):
        talk = Talk(("10.0.0.1", 20_000 + 100 * seed + number), ("10.0.0.2", 5040 if number % 3 else 6000)).open()
        stream = encode(Hello()) + b"".join(encode(Data(b"%03d" % n + dice.randbytes(dice.choice([5, 700])))) for n in range(15))
        at = 0
        while at < len(stream):
            size = dice.choice([10, 100, 500])
            if dice.random() < 0.04 and at:
                talk.next[0] += len(stream[at : at + size])
            else:
                talk.say(0, stream[at : at + size])
            at += size
        talk.say(1, encode(Hello()))
        talk.close()
        mine = [packet for _, packet in talk.packets]
        if number % 4 == 0:
            mine[5], mine[6] = mine[6], mine[5]
        cut = [fragment_v4(one, [104, 200], dice.randrange(2**16)) if fragments and len(one) > 400 else [one] for one in mine]
        packets.append([part for parts in cut for part in parts])
    for number in range(3):
        web = Talk(("10.0.0.1", 30_000 + 100 * seed + number), ("10.0.0.3", 80)).open().say(0, b"GET / HTTP/1.0\r\n\r\n").close()
        packets.append([packet for _, packet in web.packets])
    mixed = []
    while packets:
        one = dice.choice(packets)
        mixed.append(one.pop(0))
        if not one:
            packets.remove(one)
    return [(1_700_000_000_000_000 + seed * 10**9 + n * 1000, packet) for n, packet in enumerate(mixed)]


def sequential(path: Path) -> dict[str, list[dict]]:
    """What one reader and one decoder make of a file."""
    decoder = Decoder(DecodeOptions())
    out: dict[str, list[dict]] = {name: [] for name in TABLES}
    fed = [decoder.feed(block) for block in read(identify(path), ports=protocols.ports(), sniff=protocols.sniff)]
    for batches in (*fed, decoder.finish()):
        for name, parts in batches.items():
            for part in parts:
                out[name] += pa.Table.from_batches([part]).cast(TABLES[name].schema).to_pylist()
    return out


def rows(lake: Path, name: str, path: Path | None = None) -> list[dict]:
    found = delta.dataset(lake, table(name)).to_table().to_pylist()
    return sorted((row for row in found if path is None or row["source"] == str(path)), key=repr)


def test_files_cut_and_dealt_among_tasks_give_what_one_reader_gives(spark, tmp_path, monkeypatch):
    path, packed = tmp_path / "all.pcap", tmp_path / "more.pcap.gz"
    path.write_bytes(pcap(talks(1), link=101))
    packed.write_bytes(gzip.compress(pcap(talks(2), link=101)))
    monkeypatch.setattr(plan, "SPLIT_BYTES", 20_000)
    monkeypatch.setattr(plan, "SMALL_BYTES", 10_000)
    monkeypatch.setattr(plan.plan, "__defaults__", (20_000,))
    chat = captured(tmp_path / "chat.pcap", SPOKEN, cuts=7)
    result = ingest(spark, tmp_path / "lake", [path, packed, chat])
    assert result.files == 3
    spans = {(row["offset"], row["length"]) for row in rows(tmp_path / "lake", "ledger", path)}
    assert len(spans) > 3
    for source in (path, packed):
        expected = sequential(source)
        assert len(expected["messages"]) > 100
        assert any(row["reason"] == "GAP" for row in expected["quarantine"])
        for name in ("messages", "emp", "quarantine", "connections"):
            assert rows(tmp_path / "lake", name, source) == sorted(expected[name], key=repr), (source, name)
        sums: dict[tuple[str, str], list[int]] = {}
        for row in rows(tmp_path / "lake", "ledger", source):
            before = sums.setdefault((row["category"], row["reason"]), [0, 0])
            before[0] += row["bytes"]
            before[1] += row["items"]
        assert sums == {(row["category"], row["reason"]): [row["bytes"], row["items"]] for row in expected["ledger"]}
        listed = [row | {"batch": None} for row in rows(tmp_path / "lake", "unrecognised", source)]
        assert sorted(listed, key=repr) == sorted(expected["unrecognised"], key=repr)
    assert result.unrecognised == sum(row["bytes"] for row in rows(tmp_path / "lake", "unrecognised")) > 0
    assert check_ledger(tmp_path / "lake").problems == ()
    expected = sequential(chat)
    for name in ("messages", "wolpertinger", "quarantine", "connections"):
        assert rows(tmp_path / "lake", name, chat) == sorted(expected[name], key=repr), name
    over_xmpp = [row for row in rows(tmp_path / "lake", "sessions") if row["transport"] == "xmpp"]
    assert {row["server_address"] for row in over_xmpp} == {BOB, CAROL, NOBODY}
    ids = {row["session_id"]: row["server_address"] for row in over_xmpp}
    called = {ids[row["session_id"]]: row["status"] for row in rows(tmp_path / "lake", "exchanges") if row["session_id"] in ids}
    assert called == {BOB: "answered", CAROL: "confirmed", NOBODY: "unanswered"}


def test_a_connection_goes_on_in_the_next_file(spark, tmp_path):
    packets = talks(3, fragments=False)  # a datagram in parts is put together in one file
    paths = []
    third = len(packets) // 3
    for number, (start, stop) in enumerate([(0, third), (third, 2 * third), (2 * third, len(packets))]):
        # Named against their order in time: only their first packets tell it.
        path = tmp_path / f"part-{9 - number}.pcap"
        path.write_bytes(pcap(packets[start:stop], link=101))
        paths.append(path)
    whole = tmp_path / "whole" / "all.pcap"
    whole.parent.mkdir()
    whole.write_bytes(pcap(packets, link=101))
    ingest(spark, tmp_path / "lake", paths)
    expected = sequential(whole)
    found = rows(tmp_path / "lake", "messages")
    key = lambda row: (row["connection_id"], row["direction"], row["body"] or b"", row["size"], row["ts"])  # noqa: E731 - used twice
    assert sorted(map(key, found)) == sorted(map(key, expected["messages"]))
    assert len({row["source"] for row in found}) == 3
    for path in paths:
        for row in rows(tmp_path / "lake", "ledger", path):
            assert (row["offset"], row["length"]) == (0, path.stat().st_size)
        assert sum(row["bytes"] for row in rows(tmp_path / "lake", "ledger", path)) == path.stat().st_size
        raw = path.read_bytes()
        for row in rows(tmp_path / "lake", "messages", path):
            assert 0 <= row["offset"] < row["offset"] + row["length"] <= len(raw)


@pytest.mark.parametrize("sizes", [[], [0], [10, 20]])
def test_a_plan_leaves_nothing_out(tmp_path, sizes):
    sources = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(bytes(size))
        sources.append(identify(path))
    made = plan.plan(sources, lambda cuts: [plan.guess_here(one) for one in cuts], 2)
    assert [work.source for work in [*made.direct, *made.partitioned]] == sources
