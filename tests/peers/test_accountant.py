"""The accountant: who is charged, who stops reading, and who is given up; and how much memory a body takes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import tracemalloc

import msgspec
import pytest
from tests.peers.ends import two_ends
from tests.peers.world import run, until

from wirelake.peers.accountant import CONNECTION, Account, Accountant
from wirelake.peers.emp import Options, Peer
from wirelake.peers.turns import TIGHT
from wirelake.protocols.weight import weigh


class Holder:
    """A connection that holds what it is told to."""

    def __init__(self, accountant, host="a", *, max_memory=1000, refuses=True):
        self.host = host
        self.account = Account(self, max_memory)
        self.refuses = refuses
        self.refused = 0
        self.reason = ""
        self.balanced = 0
        accountant.open(self.account, host)
        self.account.size -= CONNECTION  # these are small numbers

    def refresh(self):
        pass

    def balance(self):
        self.balanced += 1

    def refuse_oldest(self, reason):
        self.refused += 1
        if self.refuses:
            self.account.report_unfinished(self.account.unfinished // 2)
        else:
            self.evict(reason)

    def evict(self, reason):
        self.reason = reason


def made(total=1_000_000, host=400_000):
    return Accountant(total, host)


def test_the_oldest_unfinished_input_is_given_up_first():
    accountant = made()
    old, young = Holder(accountant), Holder(accountant)
    old.account.report_unfinished(150_000)
    young.account.report_unfinished(200_000)
    assert (old.refused, young.refused) == (0, 0)
    young.account.report_unfinished(300_000)
    assert (old.refused, young.refused) == (0, 1)  # the old one is below the average


def test_a_half_message_below_the_average_is_safe_however_old():
    accountant = made()
    honest = Holder(accountant)
    honest.account.report_unfinished(5000)
    greedy = [Holder(accountant, refuses=False) for _ in range(10)]
    for one in greedy:
        one.account.report_unfinished(90_000)
    assert not honest.refused
    assert [one.refused for one in greedy] == [1] * 6 + [0] * 4
    assert all("memory" in one.reason for one in greedy[:6])


def test_input_that_goes_on_is_not_old():
    accountant = made()
    one, other = Holder(accountant), Holder(accountant)
    one.account.report_unfinished(190_000)
    other.account.report_unfinished(190_000)
    one.account.report_unfinished(0)  # it was finished, and another begins
    one.account.report_unfinished(190_000)
    other.account.report_unfinished(220_000)
    assert (one.refused, other.refused) == (0, 1)


def test_the_largest_holder_is_closed_where_little_is_unfinished():
    accountant = made()
    small, large = Holder(accountant), Holder(accountant)
    small.account.wait(150_000)
    large.account.report_unsent(230_000)
    small.account.wait(30_000)
    assert (small.reason, bool(large.reason)) == ("", True)


def test_the_host_that_keeps_most_pays_for_the_budget_of_the_server():
    accountant = made(total=600_000)
    mine, theirs = Holder(accountant, "a", refuses=False), [Holder(accountant, "b", refuses=False) for _ in range(3)]
    mine.account.report_unfinished(250_000)
    for one in theirs:
        one.account.report_unfinished(110_000)
    mine.account.report_unfinished(290_000)
    assert not mine.refused
    assert [one.refused for one in theirs] == [1, 0, 0]


def test_a_tight_host_stops_connections_with_something_waiting_and_no_others():
    accountant = made()
    busy, idle, elsewhere = Holder(accountant), Holder(accountant), Holder(accountant, "b")
    for one in (busy, elsewhere):
        one.account.wait(10)
        assert not one.account.is_full()
    idle.account.report_unsent(310_000)
    assert [one.account.is_full() for one in (busy, idle, elsewhere)] == [True, False, False]
    idle.account.report_unsent(200_000)
    assert busy.account.is_full(), "half of the budget is not free yet"
    idle.account.report_unsent(100_000)
    assert not busy.account.is_full()
    assert (busy.balanced, idle.balanced, elsewhere.balanced) == (2, 0, 0)


def test_a_full_connection_is_read_again_when_half_is_free():
    account = Account(None, 1000)
    account.wait(1000)
    assert account.is_full()
    account.wait(-400)
    assert account.is_full(was_full=True)
    account.wait(-101)
    assert not account.is_full(was_full=True)


def test_a_closed_account_is_in_no_budget():
    accountant = made()
    holder = Holder(accountant)
    holder.account.wait(50_000)
    holder.account.report_unfinished(50_000)
    holder.account.close()
    assert accountant.total == 0
    assert not accountant._hosts
    holder.account.wait(-50_000)  # its handlers end later
    assert accountant.total == 0


def test_while_memory_is_tight_connections_take_turns_with_a_little_each():
    size, count = 1000, 100

    async def main():
        order = []
        async with contextlib.AsyncExitStack() as stack:
            pairs = []
            for number in range(2):

                def take(_, data, number=number):
                    order.append(number)

                pair = await stack.enter_async_context(two_ends(Peer, Options(), Options(on_data=take)))
                pairs.append(pair)
            for _, peer in pairs:
                peer.account.tight = 1
            for other, _ in pairs:
                for _ in range(count):
                    await other.send(bytes(size))
            await until(lambda: len(order) == 2 * count)
        longest = max(len(list(turn)) for _, turn in itertools.groupby(order))
        assert longest <= TIGHT // size + 1
        assert sorted(order) == [0] * count + [1] * count

    run(main)


BODIES = {
    "empty lists": [[] for _ in range(20_000)],
    "empty mappings": [{} for _ in range(20_000)],
    "rows": [{"id": number, "name": f"name {number}", "values": [number * 1000, 0.5]} for number in range(3000)],
    "numbers": [number * 1000 for number in range(20_000)],
    "floats": [number / 7 for number in range(20_000)],
    "texts": [f"text {number}" * 20 for number in range(3000)],
    "wide texts": ["x" * 3000 + "\N{SNOWMAN}" + "\U0001f40b" for _ in range(100)],
    "one wide text": "x" * 100_000 + "\U0001f40b",
    "nested": [[[[[]]]] for _ in range(5000)],
    "bytes": b"x" * 100_000,
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_weighs_what_it_takes_within_a_factor(name):
    data = msgspec.msgpack.encode(BODIES[name])
    gc.collect()
    tracemalloc.start()
    try:
        body = msgspec.msgpack.decode(data)
        real = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.8 * real <= weigh(body, len(data)) <= 5 * real


def test_objects_that_lead_to_their_classes_are_not_walked():
    class Row(msgspec.Struct):
        number: int

    rows = [Row(number) for number in range(1000)]
    assert weigh(rows, 5000) < 1_000_000
