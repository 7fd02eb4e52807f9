"""Twice the runs take about twice the work to decode, however little each brings: counted in lines and bytes copied, never in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.line_count import lines_run
from tests.protocols.relink import speech as relink
from tests.protocols.test_websocket import REQUEST
from tests.protocols.test_xmpp import HEADER

from wirelake.capture.blocks.block import Endpoint, Flow
from wirelake.lake.decode import decoder as decode_decoder
from wirelake.lake.decode import handshake, websocket, xmpp
from wirelake.lake.decode import state as decode_state
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.handshake import PendingHandshakes
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState, Segment
from wirelake.lake.decode.websocket import Unwrapper
from wirelake.lake.decode.xmpp import Stanzas
from wirelake.protocols.relink import Limits

ABOUT_TWICE = 2.3
FLOW = Flow(bytes(16), "relink", "tcp", Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2), "port", "wire")
REQUESTED, REPLIED = bytes(8) + relink.request(b"demo", (2, 2)), bytes(8) + relink.reply(10**15, 7)


def runs_of(chunks: list[bytes], missing: dict[int, int] | None = None) -> tuple[Any, Any, Any, list[Flow]]:
    """What `take` and `unwrap` are given: the client says these, each in a run of its own."""
    edges = np.cumsum([0, *map(len, chunks)])
    lost = [(missing or {}).get(number, 0) for number in range(len(chunks))]
    runs = np.array([(edges[number], edges[number + 1], 0, 1, lost[number]) for number in range(len(chunks))], np.int64)
    pieces = np.array([(at, 100 * number, number) for number, at in enumerate(edges[:-1])], np.int64)
    return np.frombuffer(b"".join(chunks), np.uint8), runs, pieces, [FLOW]


class CountingNumpy:
    """NumPy, with the bytes counted that it makes room for."""

    def __init__(self) -> None:
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def _counted(self, array: Any) -> Any:
        self.made += array.nbytes
        return array

    def concatenate(self, *given: Any) -> Any:
        return self._counted(np.concatenate(*given))

    def zeros(self, *given: Any) -> Any:
        return self._counted(np.zeros(*given))


@pytest.mark.parametrize("opening", [REQUESTED, b"no prologue at all", b""], ids=["agreed", "strange", "empty"])
@pytest.mark.parametrize("to_server", [1, 0])
def test_a_connection_of_which_one_side_was_seen_waits_at_a_cost_per_run(opening, to_server):
    def work(count: int) -> int:
        reading, waits = Scanner("relink", Limits()), PendingHandshakes(DecoderState())
        said = [opening] * bool(opening) + [relink.GENERAL["ping"]] * count
        heard = [Segment(FLOW, to_server, 0, np.frombuffer(one, np.uint8), np.zeros((1, 3), np.int64)) for one in said]
        return lines_run(lambda: waits.feed(reading, heard), handshake)

    assert work(400) < ABOUT_TWICE * work(200)


def test_what_waited_is_read_as_soon_as_the_other_side_has_spoken_whoever_remembers_it():
    reading, remembered = Scanner("relink", Limits()), DecoderState()
    pieces = np.zeros((1, 3), np.int64)

    def said(to_server: int, data: bytes, missing: int = 0) -> list[Segment]:
        return [Segment(FLOW, to_server, missing, np.frombuffer(data, np.uint8), pieces)]

    for at in range(len(REPLIED)):
        assert PendingHandshakes(remembered).feed(reading, said(0, REPLIED[at : at + 1])) == ([], [])
    waits = PendingHandshakes(remembered)
    for at in range(len(REQUESTED) - 1):
        assert waits.feed(reading, said(1, REQUESTED[at : at + 1])) == ([], [])
    (opened,), known = waits.feed(reading, said(1, REQUESTED[-1:]))
    assert [part.data.tobytes() for _, part in opened.parts] == [REQUESTED[:8], REQUESTED[8:], REPLIED[:8], REPLIED[8:]]
    assert (opened.rest, known) == ([], [])
    assert waits.feed(reading, said(0, b"later"))[1]


def test_a_side_with_a_gap_is_waited_for_no_longer():
    reading, waits = Scanner("relink", Limits()), PendingHandshakes(DecoderState())

    def heard(to_server: int, data: bytes, missing: int = 0) -> int:
        return len(waits.feed(reading, [Segment(FLOW, to_server, missing, np.frombuffer(data, np.uint8), np.zeros((1, 3), np.int64))])[0])

    assert [heard(1, b"x"), heard(0, REPLIED), heard(0, b"z", 5), heard(1, b"y", 9)] == [0, 0, 0, 1]


def test_connections_are_let_go_at_a_cost_per_connection(monkeypatch):
    def work(count: int) -> int:
        decoder = Decoder(DecodeOptions())
        monkeypatch.setattr(decoder, "_open", lambda *_: None)
        for number in range(count):
            flow = Flow(number.to_bytes(16), "relink", "tcp", Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2), "port", "wire")
            decoder.decoder_state.pending[flow.session_id] = [Segment(flow, 1, 0, np.zeros(8, np.uint8), np.zeros((1, 3), np.int64))]
        return lines_run(lambda: decoder._let_go(0), decode_decoder, decode_state)

    assert work(200) < ABOUT_TWICE * work(100)


@pytest.mark.slow
def test_a_stanza_in_many_runs_is_copied_a_few_times(monkeypatch):
    monkeypatch.setattr(xmpp, "UNITS", 8)

    def copied(count: int) -> int:
        counting = CountingNumpy()
        monkeypatch.setattr(xmpp, "np", counting)
        heard = runs_of([HEADER, b"<iq><query>", *[b"abcdefgh"] * count, b"</query></iq>", b"<iq"])
        directions: dict = {}
        taken = Stanzas(directions).take(*heard, lambda _: False)
        (left,) = directions.values()
        assert left.data.tobytes() == b"<iq"
        assert left.origins.tolist() == [[0, 100 * (count + 3), count + 3]]
        lengths = [length for *_, spans in taken.accounts for _, length in spans]
        assert sum(lengths) + 3 == len(heard[0])
        assert 8 * count + len(b"<iq><query></query></iq>") in lengths
        return counting.made

    assert copied(2_000) < ABOUT_TWICE * copied(1_000)


@pytest.mark.slow
def test_bytes_that_frames_are_looked_for_in_are_copied_a_few_times(monkeypatch):
    def copied(count: int) -> int:
        counting = CountingNumpy()
        monkeypatch.setattr(websocket, "np", counting)
        heard = runs_of([REQUEST, b"\x82\xfe", *[bytes(8)] * count], {2: 10})
        directions: dict = {}
        Unwrapper(directions).unwrap(*heard)
        (left,) = directions.values()
        assert len(left.data) == 8 * count
        assert left.origins[:, 1].tolist() == [100 * number for number in range(2, count + 2)]
        return counting.made

    assert copied(2_000) < ABOUT_TWICE * copied(1_000)
