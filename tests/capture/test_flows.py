"""Flows as columns are the same flows, and their ids the same hashes, whichever form of a kernel made them."""

from __future__ import annotations

import random

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirelake.capture.blocks.block import Endpoint, Flow
from wirelake.capture.blocks.flows import Flows, Side, interleaved
from wirelake.capture.packets import flow_ids
from wirelake.capture.packets.flow_ids import BLOCK, SINCE_WORDS, session_id, session_ids
from wirelake.capture.packets.row_flows import address
from wirelake.protocols.kernel import _over_views, compiled

LONGEST = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
MAPPED = address(bytes(10) + b"\xff" * 6)
ADDRESSES = ["1.2.3.4", "10.0.0.1", "255.255.255.255", "::", "::1", "2001:db8::7", LONGEST, MAPPED]
SINCE = [0, 1, 9, 10, (1 << 32) - 1, 1_700_000_000_000_000, (1 << 63) - 1, -1, 1 - (1 << 63)]
PORTS = [0, 1, 9, 10, 99, 65_535]


FORMS = [
    pytest.param(_over_views, id="plain"),
    pytest.param(compiled, id="compiled", marks=pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba is switched off")),
    pytest.param(lambda kernel: kernel, id="library"),
]


def ids_of(flows: list[tuple[str, int, str, int, int, int]]) -> list[bytes]:
    """Session ids of (client, port, server, port, kind of number, number)."""
    clients, servers = (
        Side(list(dict.fromkeys(texts)), np.array([list(dict.fromkeys(texts)).index(text) for text in texts]), np.array(ports))
        for texts, ports in (([flow[at] for flow in flows], [flow[at + 1] for flow in flows]) for at in (0, 2))
    )
    kinds, since = (np.array([flow[at] for flow in flows], np.int64) for at in (4, 5))
    return Flows(session_ids(clients, servers, kinds, since), [], np.zeros(len(flows), np.int64), clients, servers).names()


def expected(flow: tuple[str, int, str, int, int, int]) -> bytes:
    client, port, server, other, kind, since = flow
    return session_id("tcp", client, port, server, other, f"{SINCE_WORDS[kind]} {since}")


@pytest.mark.parametrize("form", FORMS)
def test_ids_of_many_flows_are_those_of_each(monkeypatch, form):
    monkeypatch.setattr(flow_ids, "active", form)
    flows = [(client, 1, "10.0.0.2", 2, 0, 3) for client in ADDRESSES] + [("10.0.0.1", 1, server, 2, 1, 3) for server in ADDRESSES]
    flows += [("::1", port, "::2", other, 2, 0) for port in PORTS for other in PORTS]
    flows += [(LONGEST, 65_535, LONGEST, 65_535, kind, since) for kind in range(3) for since in SINCE]
    assert ids_of(flows) == [expected(flow) for flow in flows]


ENDS = st.tuples(st.ip_addresses().map(str), st.integers(0, 65_535))


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba is switched off")
@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(ENDS, ENDS, st.integers(0, 2), st.integers(1 - (1 << 63), (1 << 63) - 1)), min_size=1, max_size=20))
def test_compiled_ids_are_those_of_the_library(flows):
    many = [(*client, *server, kind, since) for client, server, kind, since in flows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_ids, "active", compiled)
        assert ids_of(many) == [expected(flow) for flow in many]


def test_the_longest_identity_fits_into_one_block():
    assert len("\0".join(("tcp", LONGEST, "65535", LONGEST, "65535", f"{max(SINCE_WORDS, key=len)} {min(SINCE)}"))) <= BLOCK


def flow(dice: random.Random) -> Flow:
    client, server = (Endpoint(dice.choice(ADDRESSES), dice.choice(PORTS)) for _ in range(2))
    kind = dice.choice(["emp", "yamp"]), dice.choice(["tcp", "udp"])
    return Flow(dice.randbytes(16), *kind, client, server, dice.choice(["port", "tag"]), "wire", dice.choice([(), ("old",)]))


def test_columns_are_the_same_flows():
    some = [flow(random.Random(seed)) for seed in range(30)]
    flows = Flows.of(some)
    assert list(flows) == [flows[number] for number in range(30)] == some
    assert flows == some
    assert flows[3:9:2] == some[3:9:2]
    assert flows.column().to_pylist() == [one.session_id for one in some]
    assert flows.are_distinct
    assert [flows.numbers[one.session_id] for one in some] == list(range(30))
    assert not Flows.of([*some, some[4]]).are_distinct
    assert Flows.of(flows) is flows
    assert list(Flows.of([])) == []


def test_interleaved_flows_have_the_numbers_that_were_given():
    some = [flow(random.Random(seed)) for seed in range(9)]
    numbers = np.array([8, 1, 4]), np.array([0, 2, 3, 5, 6, 7]), np.array([], np.int64)
    parts = [(mine, Flows.of([some[number] for number in mine.tolist()])) for mine in numbers]
    assert interleaved(parts) == some
