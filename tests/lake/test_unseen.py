"""Nobody is accused of what was not seen, in a lake as in `wirelake read`."""

from __future__ import annotations

import pytest
from tests.capture.build import Talk, pcap
from tests.lake.judged import accused, in_lake, read
from tests.protocols.yamp import speech

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
