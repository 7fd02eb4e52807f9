"""Which protocol a captured connection speaks: by port, by its first bytes, or by nothing at all."""

from __future__ import annotations

import importlib

import pytest
from tests.capture.build import Talk, pcap
from tests.lake.test_gaps import decoded
from tests.protocols.relink import speech

from wirelake import protocols
from wirelake.capture.flows import by_port
from wirelake.protocols.relink.messages import Reply, Request
from wirelake.protocols.relink.wire import encode

EPOCH = 1_700_000_000_000_000


def relink(path, *, is_answered: bool = True):
    """A connection to an endpoint without a name, on a port that says nothing about its protocol."""
    talk = Talk(server=("10.0.0.2", 6123)).open()
    talk.say(0, bytes(8))
    if is_answered:
        talk.say(1, bytes(8))
    talk.say(0, encode(Request("")))
    if is_answered:
        talk.say(1, encode(Reply(EPOCH, 77)))
    talk.say(0, speech.message(parts=(b"hello",)))
    path.write_bytes(pcap(talk.close().frames()))
    return path


def test_relink_without_an_endpoint_name_is_recognised_by_the_listeners_reply(tmp_path):
    rows = decoded(relink(tmp_path / "a.pcap"))
    assert [row["type_name"] for row in rows["relink"]] == ["version", "request", "version", "reply", "message"]
    assert {(row["protocol"], row["known_by"]) for row in rows["connections"]} == {("relink", "bytes")}
    assert rows["quarantine"] == []


def test_relink_without_an_endpoint_name_and_a_listener_is_recognised_by_its_first_message(tmp_path):
    rows = decoded(relink(tmp_path / "a.pcap", is_answered=False))
    assert [row["type_name"] for row in rows["relink"]] == ["version", "request", "message"]


def test_every_protocol_has_a_port_that_serve_listens_on_and_captures_are_known_by():
    assert tuple(protocols.PORTS) == protocols.ROOMS
    assert protocols.ports() == {5040: "emp", 5041: "event_mesh", 5047: "relink", 8888: "yamp", 8844: "wolpertinger"}
    for name, port in protocols.PORTS.items():
        assert protocols.room(name).DEFAULT_PORT in (None, port)
        serve = importlib.import_module(f"wirelake.cli.rooms.{name}").serve
        address = next(one for one in serve.params if one.name == "address")
        assert address.default.endswith(f"://127.0.0.1:{port}")


@pytest.mark.parametrize("name", protocols.ROOMS)
def test_a_connection_on_a_protocols_own_port_is_of_that_protocol_whatever_it_says(name):
    assert by_port(protocols.PORTS[name], 50_000, protocols.ports()) == name
