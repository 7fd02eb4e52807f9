"""Streams of XMPP in captures: stanzas in both forms and cut anywhere, whatever is between them, and what messages say to whom."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from wirelake.protocols.kernel import compiled
from wirelake.protocols.wolpertinger.scanner import is_text
from wirelake.protocols.xmpp import (
    BEGAN,
    DONE,
    GAP,
    NOTHING,
    PHASE,
    SEARCH,
    STANZA,
    STATE_COLUMNS,
    STRANGE,
    UNIT_COLUMNS,
    WRAPPING,
    body,
    inside,
    secures,
    stanzas,
)

HEADER = b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' to=\"a>b\" version='1.0'>"
MESSAGE = b"<message to=\"Bob@x/phone\" type='chat'><body>message_id:1;AA==</body></message>"
STANZAS = [
    MESSAGE,
    b"<presence/>",
    b"<iq id='/>'><query xmlns='a'><item/></query></iq>",
    b"<message><body><![CDATA[</body></message>]]></body></message>",
    b"<a><!-- <b> -- ></b> --><?x <c> ??></a>",
    b"<streams/>",
    b"<a><stream:stream></stream:stream></a>",
]


def units(data: bytes, cuts=(), phase: int = 0, room: int = 64):
    """What a direction is found to be that arrives in pieces, the unfinished end carried along; plain and compiled must agree."""
    state, fast = [0] * STATE_COLUMNS, np.zeros(STATE_COLUMNS, np.int64)
    for one in (state, fast):
        one[BEGAN], one[PHASE] = NOTHING, phase
    found, held = [], b""
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    for start, stop in itertools.pairwise(edges):
        whole = held + data[start:stop]
        at = len(held)
        for one in (state, fast):
            one[DONE] = 0
            one[BEGAN] = 0 if one[BEGAN] != NOTHING else NOTHING
        while at < len(whole):
            table, quick = [0] * (room * UNIT_COLUMNS), np.zeros(room * UNIT_COLUMNS, np.int64)
            count, after = stanzas(whole, at, len(whole), state, table)
            assert compiled(stanzas)(np.frombuffer(whole, np.uint8), at, len(whole), fast, quick) == (count, after)
            assert quick.tolist() == table
            assert fast.tolist() == state
            assert after > at or count
            at = after
            for number in range(count):
                first, last, what = table[UNIT_COLUMNS * number : UNIT_COLUMNS * (number + 1)]
                found.append((whole[first:last], what))
        held = whole[state[DONE] :]
    assert b"".join(part for part, _ in found) + held == data
    return found, held


def told(found):
    """The stanzas, and all bytes of each other kind together: how those are cut is chance."""
    kinds = {what: b"".join(part for part, kind in found if kind == what) for what in (WRAPPING, GAP, STRANGE)}
    return [part for part, what in found if what == STANZA], kinds


def test_stanzas_come_out_wherever_the_stream_is_cut():
    data = HEADER + b" \n".join(STANZAS) + HEADER + STANZAS[0] + b"</stream:stream>"
    expected, held = units(data)
    assert told(expected)[0] == [*STANZAS, STANZAS[0]]
    assert held == b""
    dice = random.Random(7)
    for _ in range(60):
        cuts = [dice.randrange(len(data)) for _ in range(dice.choice([1, 5, 60]))]
        found, held = units(data, cuts, room=dice.choice([3, 4, 64]))
        assert told(found) == told(expected)
    assert told(units(data, range(len(data)))[0]) == told(expected)


@pytest.mark.parametrize("strange", [b"\x16\x03\x01\x02", b"hello", b"<!DOCTYPE x>"])
def test_what_is_no_xml_is_strange_to_the_end(strange):
    data = HEADER + MESSAGE + b"\n" + strange + MESSAGE
    for cuts in ((), range(len(data))):
        found, held = units(data, cuts)
        assert told(found) == ([MESSAGE], {WRAPPING: HEADER + b"\n", GAP: b"", STRANGE: strange + MESSAGE})
        assert held == b""


def test_a_stanza_without_a_stream_is_strange():
    assert told(units(MESSAGE)[0])[0] == []


def test_after_a_gap_the_next_message_is_found():
    data = b"dy></message><messages/><mess<message/>" + MESSAGE + b"<presence/>" + MESSAGE[:20]
    for cuts in ((), range(len(data))):
        found, held = units(data, cuts, SEARCH)
        assert told(found) == (
            [b"<message/>", MESSAGE, b"<presence/>"],
            {WRAPPING: b"", GAP: b"dy></message><messages/><mess", STRANGE: b""},
        )
        assert held == MESSAGE[:20]


def test_a_body_keeps_its_places():
    stanza = b"<message to='Bob@X/1'><body xml:lang='en'>a&amp;b&#x20ac;<![CDATA[<c>]]>\r\nd</body><body>other</body></message>"
    found = body(stanza, by_client=True)
    assert (found.peer, found.text) == ("bob@x", "a&b€<c>\nd".encode())
    for place, chunk in found.chunks:
        assert stanza[place : place + len(chunk)] == chunk or stanza[place : place + 1] in (b"&", b"\r")
    assert body(b"<message from='a@b/c' to='d'><body>x</body></message>", by_client=False).peer == "a@b"


@pytest.mark.parametrize(
    "stanza",
    [
        b"<presence to='a'><body>x</body></presence>",
        b"<message to='a'><x><body>x</body></x></message>",
        b"<message to='a' type='error'><body>x</body></message>",
        b"<message to='a' type='groupchat'><body>x</body></message>",
        b"<message><body>x</body></message>",
        b"<message to='/a'><body>x</body></message>",
        b"<message to='a'><body/></message>",
        b"<message to='a'><body>&unknown;</body></message>",
        b"<message to='a'><body>\xff</body></message>",
        b"<message to='a'><body>x</message></body>",
        b"<messages to='a'><body>x</body></messages>",
    ],
)
def test_what_says_nothing_to_anybody_has_no_body(stanza):
    assert body(stanza, by_client=True) is None


def test_a_stream_is_recognised_by_what_is_inside():
    assert inside(HEADER + MESSAGE, is_text)
    assert inside(b"<stream:stream><message><body xml:lang='en'>result:0;message_id:1;", is_text)
    assert not inside(HEADER + b"<message><body>hello</body></message>", is_text)
    assert not inside(MESSAGE, is_text)


def test_the_last_word_before_tls():
    assert secures(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    assert secures(b"<starttls/>")
    assert not secures(MESSAGE)
