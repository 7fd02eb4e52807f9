"""A recorded link, read back as the lake reads it: every run through its connection's prologue, over a cut and a resume."""

from __future__ import annotations

import numpy as np
from tests.capture.build import read_checked
from tests.peers.relink_world import ANY, DEMO, QUICK, Proxy, make_options
from tests.peers.world import run, until

from wirelake.capture.blocks.block import SEGMENT_FLOW, SEGMENT_START, SEGMENT_STOP, SEGMENT_TO_SERVER
from wirelake.capture.record.recorder import Recorder
from wirelake.peers.relink import connect, serve
from wirelake.protocols import kernel
from wirelake.protocols.kernel import FAULT, compiled
from wirelake.protocols.relink import HandshakeReader, Speaker, walk
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.scanner import PART_COLUMNS, ROW_COLUMNS
from wirelake.protocols.relink.wire import message


def read_back(path) -> dict[bytes, tuple[HandshakeReader, list[tuple[Speaker, m.AnyMessage]]]]:
    """Connection -> its prologue and everything that was said on it, in the order of the recording."""
    found: dict[bytes, tuple[HandshakeReader, list[tuple[Speaker, m.AnyMessage]]]] = {}
    for block in read_checked(path):
        data = np.frombuffer(block.data, np.uint8)
        for one in block.segments.tolist():
            flow = block.flows[one[SEGMENT_FLOW]]
            prologue, said = found.setdefault(flow.session_id, (HandshakeReader(), []))
            speaker = Speaker.CONNECTOR if one[SEGMENT_TO_SERVER] else Speaker.LISTENER
            for limits, start, stop in prologue.pieces(speaker, data, one[SEGMENT_START], one[SEGMENT_STOP]):
                assert limits is not None
                rows, run_of = np.zeros(512 * ROW_COLUMNS, np.int64), np.zeros(512, np.int64)
                parts, ends = np.zeros(2048 * PART_COLUMNS, np.int64), np.zeros(1, np.int64)
                bounds = np.array([start]), np.array([stop])
                at, index = start, 0
                while index < 1:
                    count, used, index, at = compiled(walk)(data, *bounds, index, at, rows, run_of, parts, ends, limits)
                    for row in rows[: count * ROW_COLUMNS].reshape(count, ROW_COLUMNS).tolist():
                        assert row[FAULT] == 0
                        said.append((speaker, message(bytes(block.data), row, parts[: used * PART_COLUMNS].tolist())))
                assert ends[0] == stop, "a record holds whole packets"
    return found


def test_a_recorded_link_is_read_back_through_its_handshakes(tmp_path, monkeypatch):
    """RELINK-7, RELINK-20: both directions, two connections, one link."""
    monkeypatch.setattr(kernel, "_use_compiled", False)
    path = tmp_path / "talk.pcapng"
    seen = []

    async def take(link):
        async for one in link:
            seen.append(one.body)

    async def main(recorder):
        async with (
            serve(ANY, {DEMO: take}, options=make_options(recorder=recorder)) as listener,
            Proxy(listener.address) as proxy,
            connect(proxy.address, DEMO, options=make_options(), reconnect=QUICK) as link,
        ):
            await link.channel(b"chan").send(b"one")
            proxy.cut()
            await until(lambda: proxy.connections == 2)
            await link.channel(b"chan").send(b"two", b"parts")

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    assert seen == [b"one", b"twoparts"]
    found = list(read_back(path).values())
    assert len(found) == 2
    assert found[0][0].link == found[1][0].link, "two connections are one link by epoch and link id"
    assert [prologue.id_sizes for prologue, _ in found] == [(4, 4)] * 2
    for (_, said), request_link in zip(found, (0, found[0][0].link[1]), strict=True):
        assert [type(one) for _, one in said[:4]] == [m.Version, m.Version, m.Request, m.Reply]
        assert said[2][1].link_id == request_link
    told = [one.parts for _, said in found for speaker, one in said if isinstance(one, m.Message) and speaker is Speaker.CONNECTOR]
    assert told == [(b"one",), (b"two", b"parts")]
    assert m.Resume() in [one for _, one in found[1][1]]
