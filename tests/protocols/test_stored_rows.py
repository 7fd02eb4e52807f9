"""Rows of numbers that kernels go on from: every row that is let in leads nowhere outside the arrays."""

from __future__ import annotations

import random

import pytest

from wirelake.protocols import websocket, xmpp

EDGES = [-(2**63), -2, -1, 0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 34, 39, 125, 126, 127, 128, 254, 255, 256, 2**46, 2**47, 2**63 - 1]


class Guarded(list):
    """A list without negative indexes."""

    def __getitem__(self, at):
        if isinstance(at, int) and at < 0:
            raise IndexError(at)
        return super().__getitem__(at)

    def __setitem__(self, at, value):
        if isinstance(at, int) and at < 0:
            raise IndexError(at)
        super().__setitem__(at, value)


def unframed(state: list[int], data: bytes) -> list[int]:
    row, spans = Guarded(state), Guarded([0] * (2 * len(data)))
    count, end = websocket.unframe(Guarded(data), 0, len(data), row, spans)
    assert 0 <= end <= len(data)
    assert count <= len(data)
    return row


def divided(state: list[int], data: bytes) -> list[int]:
    row, at = Guarded(state), 0
    units = Guarded([0] * (4 * xmpp.UNIT_COLUMNS))
    while at < len(data):
        count, at = xmpp.stanzas(Guarded(data), at, len(data), row, units)
        assert 3 * count <= len(units)
    row[xmpp.DONE], row[xmpp.BEGAN] = 0, min(row[xmpp.BEGAN], 0)
    return row


CASES = {"websocket": (websocket, unframed), "xmpp": (xmpp, divided)}


def noise(name: str, dice: random.Random) -> bytes:
    if name == "xmpp":
        return bytes(dice.choices(b"<>/!?-[]'\" amesg:tr", k=40))
    return bytes(dice.choices([0, 2, 0x82, 0x89, 0xFE, 0xFF, 126, 127, 255, 5], k=40))


@pytest.mark.parametrize("name", CASES)
def test_a_row_that_is_let_in_leads_nowhere_outside(name):
    dice = random.Random(name)
    module, run = CASES[name]
    good = [0] * module.STATE_COLUMNS
    let_in = 0
    for _ in range(4000):
        row = good.copy()
        for at in dice.sample(range(len(row)), dice.randint(0, 3)):
            row[at] = dice.choice(EDGES)
        if not module.is_state(row):
            continue
        let_in += 1
        good = list(run(row, noise(name, dice)))
        assert module.is_state(good), "what a kernel leaves behind can be stored"
    assert 500 < let_in < 4000


@pytest.mark.parametrize("name", CASES)
def test_a_row_of_another_length_is_not_let_in(name):
    module, _ = CASES[name]
    assert module.is_state([0] * module.STATE_COLUMNS)
    assert not module.is_state([0] * (module.STATE_COLUMNS - 1))
    assert not module.is_state([0] * (module.STATE_COLUMNS + 1))


@pytest.mark.parametrize(
    "row",
    [
        [websocket.FRAME, 0, 0, 0, 14, *[0] * 14],
        [websocket.FRAME, 0, 0, 0, 2, 2, 5, *[0] * 12],  # a header that is over and was not read
        [websocket.PAYLOAD, 9, 0, 0, 13, *[0] * 14],  # the next header begins behind its end
        [websocket.PAYLOAD, 0, 0, 0, 0, *[0] * 14],
        [websocket.PAYLOAD, 9, 0, 4, 0, *[0] * 14],
        [5, *[0] * 18],
    ],
)
def test_rows_of_a_websocket_that_would_lead_outside_are_known(row):
    assert not websocket.is_state(row)


@pytest.mark.parametrize(("at", "value"), [(0, 13), (0, -1), (1, -1), (2, 1), (3, -1), (3, 14), (4, -1), (5, 1), (5, -2), (6, 1)])
def test_rows_of_a_stream_that_would_lead_outside_are_known(at, value):
    row = [0] * xmpp.STATE_COLUMNS
    row[at] = value
    assert not xmpp.is_state(row)
