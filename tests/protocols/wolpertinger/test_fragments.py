"""Message Splitting: fragments in any order, contradicting, missing, and their limits (WOLP-9)."""

from __future__ import annotations

import itertools

import pytest
from tests.cases import each

from wirelake.errors import DecodeError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.fragments import OVERHEAD, Assembly, join, split
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope


def pieces(text: bytes = b"abcdefgh", count: int = 4, message_id: int = 9) -> list[Envelope]:
    cut = split(text, -(-len(text) // count))
    assert len(cut) == count
    return [Envelope(message_id, piece, fragment_index=index, fragment_count=count) for index, piece in enumerate(cut)]


def assembly(**changed) -> Assembly:
    return Assembly(**{"timeout": 20.0, "max_weight": 10_000, "max_sets": 3, **changed})


@each("size", range(12))
@each("limit", range(1, 13))
def test_pieces_are_as_few_as_can_be_and_nearly_equal(size, limit):
    text = bytes(range(size))
    cut = split(text, limit)
    assert b"".join(cut) == text
    assert len(cut) == max(1, -(-size // limit))
    assert max(map(len, cut)) <= limit
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_any_order_gives_the_message_once():
    for order in itertools.permutations(pieces()):
        held = assembly()
        assert [held.add(piece, 0.0) for piece in order] == [None, None, None, Envelope(9, b"abcdefgh")]
        assert (held.weight, held.deadline, len(held)) == (0, None, 0)


def test_a_piece_that_comes_twice_counts_once():
    held, (one, two, *_) = assembly(), pieces(count=2)
    assert [held.add(piece, 0.0) for piece in (one, one, one)] == [None] * 3
    assert held.weight == 4 + OVERHEAD
    assert held.add(two, 0.0) == Envelope(9, b"abcdefgh")


def test_empty_pieces_are_pieces_and_one_piece_is_a_message():
    held = assembly()
    assert held.add(Envelope(1, b"", fragment_index=1, fragment_count=2), 0.0) is None
    assert held.add(Envelope(1, b"aGk=", fragment_index=0, fragment_count=2), 0.0) == Envelope(1, b"aGk=")
    assert held.add(Envelope(1, b"aGk=", fragment_index=0, fragment_count=1), 0.0) == Envelope(1, b"aGk=")


@pytest.mark.parametrize(
    "liar",
    [
        Envelope(9, b"XY", fragment_index=0, fragment_count=4),
        Envelope(9, b"cd", fragment_index=1, fragment_count=3),
        Envelope(9, b"cd", 5, fragment_index=1, fragment_count=4),
        Envelope(9, b"cd", None, Encryption.AES, 1, 4),
    ],
)
def test_a_contradiction_is_reported_once_and_the_rest_is_ignored(liar):
    held, (first, _, third, fourth) = assembly(), pieces()
    assert held.add(first, 0.0) is None
    assert held.add(liar, 0.0) is Fault.FRAGMENT_CONFLICT
    assert [held.add(piece, 0.0) for piece in (third, fourth)] == [Fault.FRAGMENT_LATE] * 2
    assert (held.weight, len(held)) == (0, 0)


def test_a_refused_message_that_is_sent_again_is_delivered():
    held, all_of_them = assembly(), pieces()
    held.add(all_of_them[0], 0.0)
    held.add(Envelope(9, b"!", fragment_index=0, fragment_count=4), 0.0)
    assert [held.add(piece, 1.0) for piece in all_of_them] == [None, None, None, Envelope(9, b"abcdefgh")]


def test_what_does_not_come_in_time_is_given_up():
    held, all_of_them = assembly(), pieces()
    held.add(all_of_them[0], 5.0)
    assert held.deadline == 85.0
    assert held.expire(84.9) == []
    assert held.expire(85.0) == [9]
    assert (held.weight, held.deadline, len(held)) == (0, None, 0)
    assert held.add(all_of_them[1], 86.0) is None


def test_a_refusal_is_forgotten_in_time_too():
    held, all_of_them = assembly(), pieces()
    held.add(all_of_them[0], 0.0)
    held.add(Envelope(9, b"!", fragment_index=0, fragment_count=4), 0.0)
    assert held.expire(1000.0) == []
    assert held.deadline is None


def test_pieces_that_wait_cost_no_more_than_the_limit():
    held = assembly(max_weight=1000, max_sets=1000)
    parsed = [held.add(Envelope(number, b"x" * 100, fragment_index=0, fragment_count=2), 0.0) for number in range(50)]
    assert parsed.count(None) == 1000 // (100 + OVERHEAD)
    assert held.weight <= 1000
    assert set(parsed) == {None, Fault.FRAGMENTS_OVER_LIMIT}
    empty = assembly(max_weight=1000, max_sets=1000)
    for number in range(4096):
        empty.add(Envelope(1, b"", fragment_index=number, fragment_count=4096), 0.0)
    assert empty.weight <= 1000


def test_there_are_never_more_incomplete_messages_than_the_limit():
    held = assembly()
    for number in range(1000):
        held.add(Envelope(number, b"x", fragment_index=0, fragment_count=4096), 0.0)
        held.refuse(Envelope(number, fragment_index=-1, fragment_count=4096), Fault.FRAGMENT_OUT_OF_RANGE, 0.0)
    assert len(held.sets) == 3


def test_join_gives_the_message_or_a_fault():
    all_of_them = dict(enumerate(pieces()))
    assert join(all_of_them) == Envelope(9, b"abcdefgh")
    for wrong, fault in (
        ({0: all_of_them[0]}, Fault.FRAGMENT_INCOMPLETE),
        ({**all_of_them, 1: Envelope(8, b"cd", fragment_index=1, fragment_count=4)}, Fault.FRAGMENT_CONFLICT),
        ({**all_of_them, 1: all_of_them[2]}, Fault.FRAGMENT_CONFLICT),
    ):
        with pytest.raises(DecodeError) as caught:
            join(wrong)
        assert caught.value.fault is fault


def test_memory_counts_pieces_of_nothing_and_refused_ones():
    held = assembly(max_weight=1_000_000, max_sets=10)
    for index in range(1000):
        held.add(Envelope(1, b"", fragment_index=index, fragment_count=2000), 0.0)
    assert held.memory >= 1000 * 200
    held.add(Envelope(2, b"x" * 50_000, fragment_index=0, fragment_count=2), 1.0)
    before = held.memory
    assert held.refuse_oldest(2.0) == 1
    assert 1000 * 100 <= held.memory <= before - 100_000, "the indices of refused pieces are known until they expire"
    assert held.refuse_oldest(2.0) == 2
    assert held.refuse_oldest(2.0) is None
    held.expire(1e9)
    assert (held.memory, held.weight) == (0, 0)
