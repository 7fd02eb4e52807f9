"""Pairing in bulk does what `message` does with every message: random conversations, mostly regular, cut into stretches of any size."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import numpy as np
import pytest

from wirelake.protocols import bulk_pairs, used_ids
from wirelake.protocols.analyzer import Exchange, Part
from wirelake.protocols.emp import analyzer as emp
from wirelake.protocols.request_pairs import MAX_WAITING
from wirelake.protocols.yamp import analyzer as yamp

CONNECTIONS = (b"a" * 16, b"b" * 16)


class Ids:
    def __init__(self, values):
        self._known = {value: number for number, value in enumerate(dict.fromkeys(values))}
        self.codes = np.array([self._known[value] for value in values], np.int64)

    def find(self, ids):
        return np.array([self._known[one] for one in ids if one in self._known], np.int64)

    def numbers(self):
        return np.array([int(value or 0) for value in self._known], np.uint64)


class Messages:
    """A stretch of messages."""

    def __init__(self, messages):
        self._messages = messages

    def __len__(self):
        return len(self._messages)

    def _values(self, name):
        return [getattr(message, name) for message in self._messages]

    def numbers(self, name):
        return np.array([value or 0 for value in self._values(name)], np.int64)

    def flags(self, name):
        return np.array([bool(value) for value in self._values(name)], bool)

    def is_null(self, name):
        return np.array([value is None for value in self._values(name)], bool)

    def codes(self, name):
        ids = Ids(self._values(name))
        return ids.codes, list(dict.fromkeys(self._values(name)))

    def ids(self, name, other=None, where=None):
        values = self._values(name)
        return Ids(
            values
            if other is None
            else [two if is_other else one for one, two, is_other in zip(values, self._values(other), where, strict=True)]
        )

    def keys(self, name):
        return np.array([value or bytes(16) for value in self._values(name)], "V16")

    def messages(self, places):
        return (self._messages[place] for place in places.tolist())


def place(number, ts, dice, *, length=None):
    """What every message has."""
    return {
        "message_id": number.to_bytes(16),
        "connection_id": CONNECTIONS[dice.random() < 0.002],
        "ts": ts,
        "source": "f",
        "offset": 100 * number,
        "length": length or dice.choice([12, 40, 40, 300] if dice.random() < 0.99 else [1 << 20]),
        "size": 7,
        "fault": "BODY_UNDECODABLE" if dice.random() < 0.003 else None,
        "oddities": int(dice.random() < 0.01),
    }


def emp_history(dice, count):
    """Greetings, then requests and answers of both sides, and now and then something else."""
    nothing = {"version": None, "error_code": None, "request": None, "request_id": None}
    ts, waiting, fresh = 1_000_000, {True: [], False: []}, 0
    for number in range(count):
        ts += dice.choice([0, 10, 1000]) if dice.random() < 0.997 else 90_000_000
        to_server, chance = dice.random() < 0.5, dice.random()
        common = place(number, ts, dice)
        if number < 2 or chance < 0.0002:
            said = {"to_server": number == 0, "type_name": "hello"} | nothing | {"version": 1}
        elif chance < 0.01 and number > 0.9 * count:
            said = {"to_server": to_server, "type_name": dice.choice(["bye", "error"])} | nothing | {"error_code": 3}
        elif chance < 0.02:
            said = {"to_server": to_server, "type_name": dice.choice(["ping", "pong"])} | nothing
        elif chance < 0.05:
            said = {"to_server": to_server, "type_name": "data"} | nothing
        elif waiting[not to_server] and chance < 0.5:
            mine = waiting[not to_server]
            answered = mine.pop(dice.randrange(len(mine))) if dice.random() < 0.99 else dice.choice(mine)
            said = {"to_server": to_server, "type_name": "data"} | nothing | {"request": False, "request_id": answered}
        else:
            fresh += 1
            asked = str(fresh) if dice.random() < 0.99 else str(dice.randrange(max(1, fresh - 50), fresh + 1))
            waiting[to_server].append(asked)
            said = {"to_server": to_server, "type_name": "data"} | nothing | {"request": True, "request_id": asked}
        yield emp.Seen(**common | said)


def yamp_history(dice, count):
    nothing = dict.fromkeys(
        ("version", "serializer", "payload", "reason", "url", "uid", "uri", "progressive", "request_uid", "kill", "response_type")
    )
    ts, waiting, fresh = 1_000_000, {True: [], False: []}, 0
    for number in range(count):
        ts += dice.choice([0, 10, 1000]) if dice.random() < 0.997 else 90_000_000
        to_server, chance = dice.random() < 0.5, dice.random()
        common = place(number, ts, dice)
        said = {"to_server": to_server} | nothing
        mine = waiting[not to_server]
        if number < 2 or chance < 0.0002:
            said |= {"to_server": number == 0, "type": 0, "version": 1, "serializer": "json"}
        elif chance < 0.01 and number > 0.9 * count:
            said |= {"type": dice.choice([3, 4]), "reason": "late", "url": "ws://h/"}
        elif chance < 0.005:
            said |= {"type": dice.choice([1, 2, 2]), "payload": dice.choice([b"", b"x"])}
        elif chance < 0.03:
            said |= {"type": 5, "uri": "news"}
        elif chance < 0.04 and waiting[to_server]:
            said |= {"type": 7, "request_uid": dice.choice(waiting[to_server]), "kill": dice.random() < 0.5}
        elif chance < 0.06 and mine:
            said |= {"type": 8, "request_uid": dice.choice(mine), "response_type": 2}
        elif mine and chance < 0.5:
            answered = mine.pop(dice.randrange(len(mine))) if dice.random() < 0.99 else dice.choice(mine)
            said |= {"type": 8, "request_uid": answered, "response_type": dice.choice([0, 1, 3])}
            said |= {"uid": b"own" + (number if dice.random() < 0.99 else dice.randrange(number)).to_bytes(13)}
        else:
            fresh += 1
            asked = fresh if dice.random() < 0.99 else dice.randrange(max(1, fresh - 50), fresh + 1)
            waiting[to_server].append(asked.to_bytes(16))
            said |= {"type": 6, "uid": asked.to_bytes(16), "uri": "sum", "progressive": dice.random() < 0.5}
        yield yamp.Seen(**common | said)


REUSED = {"emp": ["REQUEST_ID_REUSED"], "yamp": ["UID_REUSED"]}
HISTORIES = {"emp": (emp.Analyzer, emp_history), "yamp": (yamp.Analyzer, yamp_history)}


def told(columns, requests, answers):
    """Exchanges of pairs."""
    for asked, answer in zip(requests, answers, strict=True):
        number = getattr(asked, columns.correlation_id)
        yield Exchange(
            asked.to_server,
            number if isinstance(number, str) else number.hex(),
            getattr(asked, columns.subject) if columns.subject else None,
            Part(asked.ts, asked.message_id, asked.size),
            Part(answer.ts, answer.message_id, answer.size),
            0,
            False,
            1,
            columns.outcomes.get(getattr(answer, columns.outcome)) if columns.outcome else "returned",
        )


def held_together(kind, messages, sizes, stored=None):
    """Feed messages in bulk to one analyzer and singly to another, and compare them after every stretch. Returns the pairs in bulk.

    With dice, the state of the one in bulk is stored and read again now and then.
    """
    bulk, single, pairs = kind(), kind(), 0
    at = 0
    while at < len(messages):
        part = messages[at : at + next(sizes)]
        found = bulk_pairs.pair_in_bulk(bulk, Messages(part))
        pairs += len(found.requests)
        bulk.exchanges += told(kind.PAIRS, *([part[place] for place in places.tolist()] for places in found))
        for message in part:
            single.message(message)
        assert state(bulk) == state(single), f"after {at + len(part)} messages"
        bulk.exchanges.clear()
        single.exchanges.clear()
        if stored is not None and stored.random() < 0.5:
            bulk = kind.decode(bulk.encode())
        at += len(part)
    bulk.end()
    single.end()
    assert state(bulk) == state(single)
    return bulk, pairs


def state(analyzer):
    """Everything that an analyzer knows and told; the order of exchanges says nothing."""
    fields = {name: getattr(analyzer, name) for name in analyzer.__struct_fields__}
    return fields | {"exchanges": sorted(map(repr, analyzer.exchanges)), "findings": list(map(repr, analyzer.findings))}


@pytest.mark.parametrize("protocol", HISTORIES)
def test_bulk_and_single_messages_end_in_the_same_state(protocol, monkeypatch):
    kind, history = HISTORIES[protocol]
    pairs, found = 0, Counter()
    for seed in range(10):
        dice = random.Random(f"{protocol} {seed}")
        monkeypatch.setattr(bulk_pairs, "SINGLE", dice.choice([1, 3, 64]))
        messages = list(history(dice, 3000))
        most = dice.choice([20, 400, 5000])
        bulk, told_in_bulk = held_together(kind, messages, iter(lambda dice=dice, most=most: dice.randint(1, most), None), stored=dice)
        pairs += told_in_bulk
        found.update(finding.rule for finding in bulk.findings)
    assert pairs > 1500, "nothing was paired in bulk"
    assert all(found[rule] > 10 for rule in REUSED[protocol]), found


@pytest.mark.parametrize("protocol", HISTORIES)
def test_what_is_remembered_of_identifiers_does_not_depend_on_bulk(protocol, monkeypatch):
    """With small limits, identifiers are forgotten all the time: counters, counters with a step, shuffled and random ones."""
    kind, history = HISTORIES[protocol]
    monkeypatch.setattr(bulk_pairs, "SINGLE", 1)
    found = Counter()
    for seed in range(12):
        dice = random.Random(f"identifiers {protocol} {seed}")
        for limit in ("MAX_RUNS", "MAX_KEYS"):
            monkeypatch.setattr(used_ids, limit, dice.choice([1, 2, 7, 50]))
        greetings = list(history(dice, 2))
        plain = msgspec.structs.replace(greetings[0], connection_id=CONNECTIONS[0], version=None, fault=None, length=12, oddities=0)
        numbers = [n * dice.choice([1, 1, 2]) + 1 for n in range(1500)]
        for _ in range(dice.choice([0, 20, 600])):
            one, other = dice.randrange(1400), dice.randrange(20)
            numbers[one], numbers[one + other] = numbers[one + other], numbers[one]
        messages = [msgspec.structs.replace(one, fault=None, oddities=0, length=12, connection_id=CONNECTIONS[0]) for one in greetings]
        for number in numbers:
            to_server = dice.random() < 0.8
            for is_answer in (False, True):
                common = {
                    "to_server": to_server is not is_answer,
                    "ts": 2_000_000 + len(messages),
                    "message_id": len(messages).to_bytes(16),
                }
                messages.append(msgspec.structs.replace(plain, **common, **_said(protocol, number, is_answer, len(messages))))
        bulk, _ = held_together(kind, messages, iter(lambda dice=dice: dice.randint(1, 900), None), stored=dice)
        found.update(finding.rule for finding in bulk.findings)
    assert set(found) == set(REUSED[protocol])


def _said(protocol, number, is_answer, place):
    if protocol == "emp":
        return {"type_name": "data", "request": not is_answer, "request_id": str(number)}
    own = {"uid": place.to_bytes(16), "request_uid": number.to_bytes(16), "type": 8, "response_type": 0}
    return own if is_answer else {"uid": number.to_bytes(16), "type": 6, "uri": "sum", "serializer": None}


def test_what_waits_is_forgotten_as_without_bulk(monkeypatch):
    """EMP limits no requests in flight: with too many, messages go one by one, and the oldest are forgotten alike."""
    monkeypatch.setattr(bulk_pairs, "SINGLE", 1)
    dice = random.Random(1)
    greetings = list(emp_history(dice, 2))
    request = msgspec.structs.replace(greetings[0], type_name="data", version=None, fault=None, length=12, oddities=0)
    flood = [
        msgspec.structs.replace(request, message_id=n.to_bytes(16), ts=2_000_000 + n, request=True, request_id=str(n))
        for n in range(2 * MAX_WAITING + 10)
    ]
    answers = [msgspec.structs.replace(one, to_server=False, request=False, ts=3_000_000) for one in (*flood[-20:], *flood[:5])]
    messages = [*greetings, *flood, *answers]
    sizes = iter([2, MAX_WAITING, MAX_WAITING - 10, 100])
    assert held_together(emp.Analyzer, messages, sizes)[0].pairs.client_forgotten


@pytest.mark.parametrize("protocol", HISTORIES)
def test_a_pair_may_be_the_first_that_a_session_says(protocol):
    """No protocol of ours begins so: a greeting comes first. An analyzer that knows the connection as open already may see it."""
    kind, history = HISTORIES[protocol]
    messages = list(history(random.Random(3), 200))
    greeted, opened = kind(), kind()
    for message in messages[:2]:
        greeted.message(message)
    opened.states = dict(greeted.states)
    request = next(one for one in messages if (one.type == 6 if protocol == "yamp" else one.request))
    plain = msgspec.structs.replace(request, connection_id=CONNECTIONS[0], fault=None, oddities=0)
    pairs = [
        msgspec.structs.replace(plain, ts=5 + is_answer, to_server=not is_answer, **_said(protocol, number, is_answer, number))
        for number in range(1, bulk_pairs.SINGLE + 1)
        for is_answer in (False, True)
    ]
    assert len(bulk_pairs.pair_in_bulk(opened, Messages(pairs)).requests) == bulk_pairs.SINGLE
    assert (opened.first_said, opened.last_said, opened.last_word) == (5, 6, 6)


@pytest.mark.parametrize("first", [1 << 15, 2, 203], ids=["in one stretch", "in two", "cut after the ping"])
def test_answers_after_a_ping_show_that_the_pong_is_missing(first):
    """YAMP-18: what the other side sends when the pong is due tells that it is missing, requests and answers included."""
    dice = random.Random(2)
    messages = list(yamp_history(dice, 2))
    plain = msgspec.structs.replace(messages[0], type=6, version=None, serializer=None, fault=None, length=12, oddities=0, uri="sum")

    def said(ts, **more):
        messages.append(msgspec.structs.replace(plain, message_id=len(messages).to_bytes(16), ts=ts, **more))

    for number in range(200):
        if number == 100:
            said(3_000_000, type=1, payload=b"")
        ts = 2_000_000 + number if number < 100 else 200_000_000 + number
        said(ts, uid=number.to_bytes(16))
        said(ts, type=8, to_server=False, request_uid=number.to_bytes(16), response_type=0)
    analyzer, pairs = held_together(yamp.Analyzer, messages, iter([first, 1 << 15]))
    assert pairs > 100
    assert "PING_TIMEOUT" in {finding.rule for finding in analyzer.findings}
