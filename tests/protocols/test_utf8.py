"""UTF-8 against Python's own reader, in pieces and in both forms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples

from wirelake.protocols.kernel import compiled
from wirelake.protocols.utf8 import fit, is_ascii, utf8

TEXTS = st.text(max_size=30).map(lambda text: text.encode(errors="ignore"))
BYTES = TEXTS | st.binary(max_size=12) | st.builds(lambda text, tail: text + tail, TEXTS, st.binary(max_size=4))


def is_valid(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@examples(400)
@given(BYTES, st.integers(0, 40))
def test_text_is_read_as_python_reads_it_in_one_piece_or_two(data, at):
    array, cut = np.frombuffer(data, np.uint8), min(at, len(data))
    for form, view in ((utf8, data), (compiled(utf8), array)):
        pending, _ = form(view, 0, len(data), 0)
        assert (pending == 0) is is_valid(data)
        first, _ = form(view, 0, cut, 0)
        assert form(view, cut, len(data), first)[0] == pending
    for form, view in ((is_ascii, data), (compiled(is_ascii), array)):
        assert form(view, 0, len(data)) is data.isascii()  # type: ignore[call-arg]  # a tuple of two forms


@each("lead", range(0x7F, 0x100))
def test_every_first_byte_with_every_second(lead):
    """What follows may be too short, right or too long: the edges of what a second byte may be depend on the first."""
    for second in range(0x70, 0x100):
        for more in (b"", b"\x80", b"\xbf\xbf", b"\xbf\xbf\xbf"):
            data = bytes((lead, second)) + more
            assert (utf8(data, 0, len(data), 0)[0] == 0) is is_valid(data)


@each("size", range(20))
def test_every_place_is_looked_at_for_what_is_not_ascii(size):
    for place in range(size):
        data = bytearray(b"x" * size)
        data[place] = 0x80
        assert not is_ascii(bytes(data), 0, size)
        assert not compiled(is_ascii)(np.frombuffer(data, np.uint8), 0, size)
    assert is_ascii(b"\xff" + b"x" * size + b"\xff", 1, size + 1)


def test_text_is_cut_at_a_character():
    assert fit("été", 5) == "été".encode()
    assert fit("été", 4) == "ét".encode()
    assert fit("été", 1) == b""
    assert fit("", 0) == b""
