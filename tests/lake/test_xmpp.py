"""Wolpertinger inside captured streams of XMPP is found and decoded, wherever segments are cut, and told apart by who exchanges it.

The stream is what a client and Prosody said to each other, written down by a proxy between them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.capture import build
from tests.capture.build import pcap
from tests.lake.test_gaps import decoded

from wirelake.lake.decode import xmpp

SPOKEN = [(side, text.encode()) for side, text in json.loads((Path(__file__).parent / "prosody.json").read_text())]
CLIENT, SERVER = (b"".join(text for side, text in SPOKEN if side == mine) for mine in (0, 1))
BOB, CAROL, NOBODY = "bob@localhost", "carol@localhost", "nobody@localhost"
SAID = {
    BOB: [
        ("to_server", "RemoteMethodCall"),
        ("to_client", "result"),
        ("to_client", "RemoteMethodResponse"),
        ("to_server", "result"),
    ],
    CAROL: [("to_server", "fragment"), ("to_client", "result"), ("to_server", "RemoteMethodCall"), ("to_client", "result")],
    NOBODY: [("to_server", "RemoteMethodCall")],
}


def captured(path, spoken, cuts: int = 0, seed: int = 0):
    """A capture of a connection to a port that says nothing about its protocol, cut after the login; so many bytes as a number are lost."""
    dice, talk = random.Random(seed), build.Talk(server=(build.SERVER[0], 5222)).open()
    for side, text in spoken:
        if isinstance(text, int):
            talk.next[side] += text
            continue
        is_login = talk.ts < build.Talk().ts + 13_000
        places = sorted(dice.randrange(len(text) + 1) for _ in range(0 if is_login else cuts))
        for start, stop in zip([0, *places], [*places, len(text)], strict=True):
            if stop > start:
                talk.say(side, text[start:stop])
    path.write_bytes(pcap(talk.close().frames()))
    return path


def said_in(rows):
    """What was said with whom, in the order of time."""
    peers = {row["connection_id"]: row["server_address"] for row in rows["connections"] if row["transport"] == "xmpp"}
    found: dict[str, list] = {}
    for row in sorted(rows["messages"], key=lambda row: (row["ts"], row["offset"])):
        found.setdefault(peers[row["session_id"]], []).append((row["direction"], row["name"]))
    return found


def sums(rows, category):
    out: dict[str, int] = {}
    for row in rows["ledger"]:
        if row["category"] == category:
            out[row["reason"]] = out.get(row["reason"], 0) + row["bytes"]
    return out


@pytest.mark.parametrize("cuts", [0, 1, 7])
@pytest.mark.parametrize("window", [300, 8 << 20])
def test_texts_are_found_with_whom_they_are_exchanged_wherever_segments_are_cut(tmp_path, cuts, window):
    rows = decoded(captured(tmp_path / "a.pcap", SPOKEN, cuts, seed=cuts), window)
    assert said_in(rows) == SAID
    assert rows["quarantine"] == []
    assert {row["protocol"] for row in rows["connections"]} == {"wolpertinger"}
    opened = {row["server_address"] for row in rows["connections"] if row["what"] == "opened"}
    assert opened == {build.SERVER[0], BOB, CAROL, NOBODY}
    texts = sum(row["size"] for row in rows["messages"])
    assert sum(row["bytes"] for row in rows["ledger"] if row["category"] == "message") == texts
    chat = b"<body>tea &amp; &lt;cake&gt;?</body>"
    assert chat in SERVER
    assert sums(rows, "other")["xmpp"] > len(chat)
    unknown = sums(rows, "other").keys() - {"xmpp"}
    assert not {reason for reason in unknown if "xmpp" in reason or "tls" in reason}


def test_every_text_leads_back_to_its_bytes(tmp_path):
    path = captured(tmp_path / "a.pcap", SPOKEN)
    data = path.read_bytes()
    for row in decoded(path)["messages"]:
        wire = data[row["offset"] : row["offset"] + row["length"]]
        assert len(wire) == row["size"]
        assert wire.startswith((b"message_id:", b"result:", b"fragment_index:"))


def test_escapes_are_undone_and_accounted_for(tmp_path):
    plain = b"<body>result:0;message_id:1;</body>"
    odd = b"<body>&#114;esult&#x3a;0;<![CDATA[message_id:1]]>;</body>"
    spoken = [(side, text.replace(plain, odd)) for side, text in SPOKEN]
    rows = decoded(captured(tmp_path / "a.pcap", spoken, 5))
    assert said_in(rows) == SAID
    results = [row for row in rows["messages"] if row["name"] == "result"]
    assert {row["size"] for row in results} == {len(b"result:0;message_id:1;")}
    more = sums(rows, "headers")["xmpp"] - sums(decoded(captured(tmp_path / "b.pcap", SPOKEN)), "headers")["xmpp"]
    assert more == len(results) * (len(odd) - len(plain))


def test_a_gap_costs_the_stanza_it_is_in_and_nobody_is_judged_across_it(tmp_path):
    place = next(number for number, (side, text) in enumerate(SPOKEN) if side == 1 and b"<body>message_id:1;" in text)
    text = SPOKEN[place][1]
    spoken = [*SPOKEN[:place], (1, text[:150]), (1, 40), (1, text[190:]), *SPOKEN[place + 1 :]]
    rows = decoded(captured(tmp_path / "a.pcap", spoken))
    assert said_in(rows) == SAID | {BOB: [one for one in SAID[BOB] if one[1] != "RemoteMethodResponse"]}
    assert sums(rows, "other")["xmpp beside a gap"] == len(text) - 40
    whose = {row["connection_id"]: row["server_address"] for row in rows["connections"]}
    assert [(whose[row["session_id"]], row["reason"], row["length"]) for row in rows["quarantine"]] == [(CAROL, "GAP", 0)]
    again = next((1, text) for side, text in SPOKEN if side == 1 and b"from='bob@" in text)
    rows = decoded(captured(tmp_path / "b.pcap", [*spoken[:-2], again, again]))
    assert sorted(whose[row["session_id"]] for row in rows["quarantine"]) == [BOB, CAROL]


def test_what_tls_hides_is_told_as_such(tmp_path):
    place = next(number for number, (side, text) in enumerate(SPOKEN) if side == 0 and b"<body>fragment_index:0" in text)
    hidden = b"\x16\x03\x01" + b"<message/>" * 50
    spoken = [*SPOKEN[:place], (0, b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"), (1, b"<proceed/>"), (0, hidden), (1, hidden)]
    for window in (200, 8 << 20):
        rows = decoded(captured(tmp_path / "a.pcap", spoken, 3), window)
        assert said_in(rows) == {BOB: SAID[BOB]}
        assert sums(rows, "other")["starttls"] == 2 * len(hidden)
        assert rows["quarantine"] == []


def test_a_stanza_without_end_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(xmpp, "LONGEST", 1000)
    long = b"<iq><query>" + b"<item>x</item>" * 500 + b"</query></iq>"
    spoken = [*SPOKEN[:-2], (0, long), *((side, text) for side, text in SPOKEN if b"carol" in text), *SPOKEN[-2:]]
    for window in (300, 8 << 20):
        rows = decoded(captured(tmp_path / "a.pcap", spoken, 9), window)
        assert len(said_in(rows)[CAROL]) == 2 * len(SAID[CAROL])
    rows = decoded(captured(tmp_path / "a.pcap", [*SPOKEN[:-2], (0, long[:-8])]))
    assert said_in(rows) == SAID


def test_no_more_waits_than_may(tmp_path, monkeypatch):
    monkeypatch.setattr("wirelake.lake.decode.decoder.MAX_CARRIED", 200)
    path = captured(tmp_path / "a.pcap", SPOKEN, 3)
    rows = decoded(path, window=300)
    assert sums(rows, "other")["xmpp that is not finished"] > 0
    assert 0 < len(rows["messages"]) < sum(map(len, SAID.values()))
    assert {row["reason"] for row in rows["quarantine"]} == {"GAP"}


def test_a_stream_that_ends_inside_a_stanza_is_accounted_for(tmp_path):
    rows = decoded(captured(tmp_path / "a.pcap", [*SPOKEN[:-2], (0, b"<message to='bob@localhost'><body>message_id:9;")]))
    assert said_in(rows) == SAID
    assert sums(rows, "other")["xmpp that is not finished"] == 47


def test_a_stream_of_xmpp_with_other_messages_is_other_traffic(tmp_path):
    spoken = [(side, text) for side, text in SPOKEN if b"message_id" not in text]
    rows = decoded(captured(tmp_path / "a.pcap", spoken))
    assert rows["messages"] == []
    assert rows["connections"] == []
