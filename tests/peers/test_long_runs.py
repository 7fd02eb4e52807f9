"""What peers say in one breath is recorded in pieces that Wireshark opens, cut between frames."""

from __future__ import annotations

import asyncio

import pytest
from tests.capture.build import payloads
from tests.peers.ends import ANY
from tests.peers.world import run

from wirelake.capture.record.recorder import SHOWN_BY_WIRESHARK, Recorder
from wirelake.peers import emp, wolpertinger, yamp
from wirelake.peers.wolpertinger.demo_component import Demo

BODY, COUNT = 30_000, 40


async def talk_emp(recorder):
    options = emp.Options(recorder=recorder, on_request=lambda _peer, request: request.body)
    async with emp.serve(ANY, options=options) as server, emp.connect(server.address) as peer:
        await asyncio.gather(*(peer.request(bytes(BODY)) for _ in range(COUNT)))


async def talk_yamp(recorder):
    service = yamp.Service()
    service.otherwise(lambda _, asked: asked.body)
    options = yamp.Options(service=service, recorder=recorder)
    async with yamp.serve(ANY, options=options) as server, yamp.connect(server.address) as peer:
        await asyncio.gather(*(peer.request("echo", "x" * BODY) for _ in range(COUNT)))


async def talk_wolpertinger(recorder):
    options = wolpertinger.Options(recorder=recorder)
    async with wolpertinger.serve(ANY, Demo, options=options) as server, wolpertinger.connect(server.address) as peer:
        await asyncio.gather(*(peer.call("Demo", "Echo", "x" * BODY) for _ in range(COUNT)))


@pytest.mark.parametrize("talk", [talk_emp, talk_yamp, talk_wolpertinger])
def test_no_record_of_small_frames_is_too_long_for_wireshark(tmp_path, talk):
    path = tmp_path / "talk.pcapng"
    with Recorder(path) as recorder:
        run(lambda: talk(recorder))
    longest = max(map(len, payloads(path)))
    assert BODY < longest <= SHOWN_BY_WIRESHARK
