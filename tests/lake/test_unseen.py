"""Nobody is accused of what was not seen, in a lake as in `wirelake read`."""

from __future__ import annotations

import random

import pytest
from tests.capture.build import Talk, ethernet, pcap
from tests.cases import seeds
from tests.lake import clean
from tests.lake.judged import accused, grave, in_lake, read
from tests.protocols.yamp import speech

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.messages import Data, Hello, Ping, Pong, RequestResponse
from wirelake.protocols.emp.wire import encode

YAMP = ("10.0.0.2", 8888)


def captured(folder, talk):
    path = folder / "c.pcap"
    path.write_bytes(pcap(talk.frames()))
    return path


@pytest.mark.parametrize("cut", [1, 2, 5, 99])
def test_a_redirect_with_one_byte_of_size_ends_a_session_in_words(tmp_path, cut):
    """YAMP-1: it reaches to the end of the stream and names an address; so the server did not close without a word."""
    said = speech.redirect(b"tcp://127.0.0.1:5000", short=True)
    talk = Talk(server=YAMP).open().say(0, speech.handshake()).say(1, speech.handshake())
    for at in range(0, len(said), cut):
        talk.say(1, said[at : at + cut])
    path = captured(tmp_path, talk.close())
    assert not accused(path, "yamp")
    assert [one.name for one in read(path)[0]] == ["system.handshake", "system.handshake", "system.close-redirect"]
    assert in_lake(path, "yamp")[0] == 3


@pytest.mark.parametrize(
    "said",
    [
        speech.redirect(b"tcp://127.0.0.1:5000", short=True)[:-1],
        speech.redirect(b"127.0.0.1:5000", short=True),
        speech.redirect(b"tcp://127.0.0.1:5000", short=True) + b"\x04",
        speech.redirect(b"tcp://127.0.0.1:5000/" + b"w" * 300)[:-1],
    ],
    ids=["cut", "no address", "more follows", "two bytes, cut"],
)
def test_what_only_begins_like_such_a_redirect_is_a_message_that_is_cut(tmp_path, said):
    talk = Talk(server=YAMP).open().say(0, speech.handshake()).say(1, speech.handshake()).say(1, said).close()
    assert set(accused(captured(tmp_path, talk), "yamp")) >= {("MESSAGE_CUT", "info")}


# EMP-1: a capture that begins after the hello.


DIALECTS = pytest.mark.parametrize("limits", [Limits(), Limits(sizes_exclude_themselves=True)], ids=["text", "short"])


def conversation(limits, count: int, dice: random.Random) -> list[tuple[int, bytes]]:
    """Requests of the client with answers, and pings of the server with pongs."""
    said = []
    for number in range(1, count + 1):
        body = dice.randbytes(dice.choice((0, 1, 8, 100)))
        said += [(0, encode(Data(body, (RequestResponse(True, number),)), limits))]
        said += [(1, encode(Data(bytes(dice.choice((0, 1, 8, 300))), (RequestResponse(False, number),)), limits))]
        if not dice.randrange(10):
            said += [(1, encode(Ping(), limits)), (0, encode(Pong(), limits))]
    return said


def midway(said) -> Talk:
    """A conversation of which the first packets are not in the capture."""
    talk = Talk()
    talk.next = [7000, 9000]
    for speaker, data in said:
        talk.say(speaker, data)
    return talk


@DIALECTS
def test_a_capture_without_the_hello_is_read_whole_in_the_dialect_that_its_sizes_show(tmp_path, limits):
    said = conversation(limits, 2400, random.Random(1))
    path = captured(tmp_path, midway(said))
    assert not accused(path, "emp")
    assert len(read(path)[0]) == in_lake(path, "emp")[0] == len(said)


@DIALECTS
@pytest.mark.parametrize("seed", seeds(40, 2, 8))
def test_wherever_such_a_capture_begins_and_however_it_is_cut_nobody_is_accused(tmp_path, limits, seed):
    dice = random.Random(seed)
    said = conversation(limits, 40, dice)[dice.randrange(20) :]
    first, size = dice.randrange(len(said[0][1])), dice.choice((1, 3, 7, 20, 1000))
    pieces = [
        (speaker, data[at : at + size])
        for speaker, data in [(said[0][0], said[0][1][first:]), *said[1:]]
        for at in range(0, len(data), size)
    ]
    if dice.random() < 0.3:
        pieces = [(speaker, data) for speaker, data in pieces if speaker == 0]
    path = captured(tmp_path, midway(pieces))
    assert not accused(path, "emp")
    whole = sum(speaker == 0 or len(pieces) > len([0 for one in pieces if not one[0]]) for speaker, _ in said)
    assert in_lake(path, "emp")[0] >= whole - 4


# What a capture misses.


@pytest.mark.parametrize("loss", clean.LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("protocol", clean.CONVERSATIONS)
@pytest.mark.parametrize("seed", seeds(60, 1, 3))
def test_nobody_is_accused_of_what_was_not_seen(tmp_path, protocol, loss, seed):
    """Whatever of a conversation without a fault is not in the capture: no rule counts as broken."""
    every = clean.packets(protocol, random.Random(seed))
    found = accused(written(tmp_path / "whole.pcap", every), protocol)
    assert not grave(found)
    some = loss(random.Random(f"{protocol} {seed}"), every)
    assert not grave(accused(written(tmp_path / "some.pcap", some), protocol))


def written(path, packets):
    path.write_bytes(pcap([(ts, ethernet(packet)) for ts, _, packet in packets]))
    return path


def test_a_broken_rule_of_a_capture_counts_when_the_other_side_is_seen_again(tmp_path):
    """An answer to no request: the client's next message shows that nothing of it is missing."""
    hello, answer = encode(Hello()), encode(Data(b"", (RequestResponse(False, 7),)))
    talk = Talk().open().say(0, hello).say(1, hello).say(1, answer)
    assert not grave(accused(captured(tmp_path, talk), "emp"))
    talk.say(0, encode(Ping()))
    assert grave(accused(captured(tmp_path, talk), "emp")) == {("RESPONSE_UNMATCHED", "error"): 1}


def test_nothing_follows_from_the_hole_of_a_message_that_is_cut(tmp_path):
    """EMP-43: the request is cut in a recording, and its answer is there."""
    request, answer = (encode(Data(b"?", (RequestResponse(is_request, 7),))) for is_request in (True, False))
    for cut, expected in ((len(request), {}), (0, {("RESPONSE_UNMATCHED", "error"): 1}), (9, {})):
        with Recorder(tmp_path / f"{cut}.pcapng", protocol="emp") as recorder:
            talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
            talk.sent(encode(Hello()))
            talk.received(encode(Hello()))
            if cut:
                talk.sent(request[:cut])
            talk.received(answer)
            talk.sent(encode(Ping()))
            talk.closed("bye")
        assert grave(accused(tmp_path / f"{cut}.pcapng", "emp")) == expected
