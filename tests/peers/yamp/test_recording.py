"""What a YAMP peer records, over every transport, is what was said: both sides' recordings decode to the same messages."""

from __future__ import annotations

import msgspec
from tests.peers.world import run
from tests.peers.yamp.world import demo

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.peers.yamp import Options, connect, serve


def rows_of(path):
    """The `messages` and `connections` of a recording."""
    decoder, rows = Decoder(DecodeOptions()), {"messages": [], "connections": [], "quarantine": []}
    for block in read(identify(path), ports=protocols.ports(), sniff=protocols.sniff):
        for name, batches in decoder.feed(block).items():
            if name in rows:
                rows[name] += [row for batch in batches for row in batch.to_pylist()]
    return rows


def test_both_sides_record_the_same(way, tmp_path):
    paths = [tmp_path / "client.pcapng", tmp_path / "server.pcapng"]

    async def main():
        with Recorder(paths[0], protocol="yamp") as mine, Recorder(paths[1], protocol="yamp") as theirs:
            options = Options(serializer="msgpack")
            async with (
                serve(way.address, demo(), tls=way.server, options=Options(recorder=theirs)) as server,
                connect(server.address, tls=way.client, options=msgspec.structs.replace(options, recorder=mine)) as peer,
            ):
                assert await peer.request("echo", {"a": "x" * 3000}) == {"a": "x" * 3000}
                ask = await peer.ask("sum", [1, 2])
                assert [step async for step in ask] == [1, 3]
                await peer.send("news", [1])

    run(main)
    names = {}
    for path in paths:
        rows = rows_of(path)
        assert rows["quarantine"] == []
        ordered = sorted(rows["messages"], key=lambda row: row["offset"])
        names[path.name] = {
            direction: [(row["name"], row["subject"], row["body_json"]) for row in ordered if row["direction"] == direction]
            for direction in ("to_server", "to_client")
        }
        assert {row["transport"] for row in rows["connections"]} == {way.address.partition(":")[0]}
        assert "opened" in {row["what"] for row in rows["connections"]}
    one, other = names.values()
    assert one["to_client"] == other["to_client"]
    assert one["to_server"] == other["to_server"]
    assert [name for name, _, _ in one["to_server"]] == ["system.handshake", "request", "request", "event", "system.close"]
    assert one["to_client"][1] == ("response", "echo", '{"a":"' + "x" * 3000 + '"}')
    assert one["to_server"][2] == ("request", "sum", "[1,2]")
