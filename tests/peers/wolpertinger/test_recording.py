"""What a wolpertinger peer records is what was said: both sides' recordings hold the same lines, whole."""

from __future__ import annotations

import pytest
from tests.peers.wolpertinger.world import Shop
from tests.peers.world import run

from wirelake import protocols
from wirelake.capture.blocks.block import SEGMENT_START, SEGMENT_STOP, SEGMENT_TO_SERVER
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.peers.wolpertinger import Options, connect, serve


def lines_of(path):
    """The lines of a recording, by direction."""
    said = {True: [], False: []}
    for block in read(identify(path), ports=protocols.ports(), sniff=protocols.sniff):
        for one in block.segments:
            text = bytes(block.data[one[SEGMENT_START] : one[SEGMENT_STOP]])
            assert text.endswith(b"\n"), "a record holds whole lines"
            said[bool(one[SEGMENT_TO_SERVER])] += text.splitlines()
    return said


@pytest.mark.slow
def test_both_sides_record_the_same_lines(way, tmp_path):
    paths = [tmp_path / "client.pcapng", tmp_path / "server.pcapng"]

    async def main():
        with Recorder(paths[0], protocol="wolpertinger") as mine, Recorder(paths[1], protocol="wolpertinger") as theirs:
            async with (
                serve(way.address, Shop, tls=way.server, options=Options(recorder=theirs)) as server,
                connect(server.address, tls=way.client, options=Options(recorder=mine)) as peer,
            ):
                assert await peer.Shop.testMethod1("x" * 50_000, False) == "x" * 50_000
                await peer.Shop.Note.tell("y")

    run(main)
    one, other = (lines_of(path) for path in paths)
    assert one == other
    assert [line.partition(b":")[0] for line in one[True]][:2] == [b"fragment_index", b"fragment_index"]
    assert b"result:0;message_id:1;" in one[False]
