"""Kernels that follow packets in order give what `Tracker.packet` gives, one packet at a time, compiled and uncompiled."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.capture.random_captures import KNOWN, capture, dialect, sniff
from tests.cases import seeds

from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.read_split import PacketBatch, read_split, read_tasks
from wirelake.capture.files.identity import identify
from wirelake.capture.packets import in_order, tcp_flows, tcp_stream
from wirelake.capture.packets import remembered as remembered_module
from wirelake.capture.packets.tcp_flows import Tracker
from wirelake.protocols.kernel import compiled

ONE_BY_ONE, PLAIN, COMPILED = "one by one", "plain", "compiled"


def use(monkeypatch, way: str) -> None:
    """Follow packets in this way from now on."""
    monkeypatch.setattr(Tracker, "uses_kernels", property(lambda _: way != ONE_BY_ONE))
    monkeypatch.setattr(tcp_flows, "active", compiled if way == COMPILED else lambda kernel: kernel)
    monkeypatch.setattr(tcp_flows, "octets", (lambda data: np.frombuffer(data, np.uint8)) if way == COMPILED else bytes)


def whole(block: Block) -> tuple:
    return (
        bytes(block.data),
        block.segments.tolist(),
        block.origins.tolist(),
        block.flows,
        list(block.events),
        block.accounts,
        block.unreadable,
        block.last,
    )


def read_whole(path, window: int) -> list[tuple]:
    blocks = read(identify(path), ports=KNOWN, sniff=sniff, dialect=dialect, window=window)
    return [whole(block) for block in blocks]


def read_in_parts(path, window: int, seed: int) -> tuple[list[tuple], list[bytes], list[int]]:
    """Blocks of packet batches, the stored states that reading went on from, and the bytes remembered after each batch."""
    dice = random.Random(seed)
    assembly, blocks, states, remembered = Assembly(KNOWN, sniff, dialect), [], [], []
    (task,) = read_tasks(identify(path), [])
    for item in read_split(task, ports=KNOWN, window=window):
        if not isinstance(item, PacketBatch):
            continue
        blocks += [whole(block) for block in assembly.feed(item)]
        remembered.append(assembly._flow_assembler._tracker._budget.remembered)
        if dice.random() < 0.3:
            blocks += [whole(block) for block in assembly.rest()]
            states.append(assembly.take())
            assembly = Assembly.put(states[-1], KNOWN, sniff, dialect)
    return blocks + [whole(block) for block in assembly.finish()], states, remembered


@pytest.mark.parametrize("seed", seeds(24, quick=4, test=12))
@pytest.mark.parametrize("way", [PLAIN, COMPILED])
def test_kernels_follow_as_python_does(tmp_path, monkeypatch, way, seed):
    path = tmp_path / "a.pcapng"
    path.write_bytes(capture(seed))
    window = (2_000, 10_000, 1 << 20)[seed % 3]
    if seed % 4 == 1:
        monkeypatch.setattr(tcp_flows, "MAX_FLOWS", 4)
    if seed % 4 == 2:
        monkeypatch.setattr(tcp_flows, "REMEMBERED", 50)
        monkeypatch.setattr(tcp_stream, "REMEMBERED", 50)
        monkeypatch.setattr(tcp_flows, "HELD_TOTAL", 2000)
    if seed % 4 == 3:
        monkeypatch.setattr(tcp_flows, "UNDECIDED_TOTAL", 10)
        monkeypatch.setattr(remembered_module, "SPARE_PIECES", 1)
        monkeypatch.setattr(remembered_module, "SPARE_BYTES", 1)
    use(monkeypatch, ONE_BY_ONE)
    expected, expected_parts = read_whole(path, window), read_in_parts(path, window, seed)
    use(monkeypatch, way)
    assert read_whole(path, window) == expected
    assert read_in_parts(path, window, seed) == expected_parts


def test_most_packets_are_followed_by_kernels(tmp_path, monkeypatch):
    """The comparison above would prove nothing if kernels left all packets to Python."""
    path, taken = tmp_path / "a.pcapng", [0, 0]
    path.write_bytes(capture(5, connections=200))
    verdict, packet = in_order._verdict, Tracker.packet

    def counted(*arguments):
        made = verdict(*arguments)
        taken[0] += made[0] != in_order.SPECIAL
        return made

    def one(self, *arguments):
        taken[1] += 1
        packet(self, *arguments)

    use(monkeypatch, PLAIN)
    monkeypatch.setattr(in_order, "_verdict", counted)
    monkeypatch.setattr(Tracker, "packet", one)
    read_whole(path, 1 << 20)
    assert taken[0] > taken[1] > 100
