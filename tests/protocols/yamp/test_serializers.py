"""Serializers: the registry, the two that are always there, those through libraries, and one's own."""

from __future__ import annotations

import sys

import msgspec
import pytest
from tests.protocols.yamp.pair import Pair, options

from wirelake.errors import LocalProtocolError, MissingExtra, UsageError
from wirelake.protocols.yamp.events import EventReceived, ResponseReceived
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.serializers import formats
from wirelake.protocols.yamp.serializers.bodies import BodyRejected, pack, pack_text, unpack
from wirelake.protocols.yamp.serializers.formats import Bson, Cbor, Protobuf, Xml, installed
from wirelake.protocols.yamp.serializers.registry import OPAQUE, STANDARD, Json, Msgpack, Registry


class Point(msgspec.Struct):
    x: int
    y: int


VALUES = [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "été", [], [1, [2]], {}, {"a": {"b": [None]}}]
DOCUMENTS = [{}, {"a": 1, "b": None, "c": [1, "x", {"d": 2.5}]}]
PLAIN = {"json": (Json(), VALUES), "msgpack": (Msgpack(), VALUES), "cbor": (Cbor(), VALUES), "bson": (Bson(), DOCUMENTS)}
ANY = {
    **{name: (serializer, values) for name, (serializer, values) in PLAIN.items()},
    "protobuf": (Protobuf(), [None, True, "x", [1.0, {"a": None}]]),
    "xml": (Xml(), [{"a": None}, {"a": {"@id": "1", "b": ["x", "y"], "c": {"d": "é"}}}]),
}


@pytest.mark.parametrize("name", ANY)
def test_what_is_serialized_comes_back(name):
    serializer, values = ANY[name]
    for value in values:
        data = serializer.serialize(value)
        assert type(data) is bytes
        assert serializer.parse(data) == value


REFUSED = {
    "json": [b"{", b"\xff", b"1 2", b"{'a':1}", b"nul"],
    "msgpack": [b"\xc1", b"\x92\x01", b"\x01\x01", b"\xa1\xff"],
    "cbor": [b"\xff", b"\x82\x01", b"\x01\x01", b"\xa2\x01\x01\x01\x02", b"\x81" * 10_000, b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"],
    "bson": [b"\x00", b"\x05\x00\x00\x00\x01", b"\x05\x00\x00\x00\x00\x00", b"\xff\xff\xff\x7f\x00"],
    "protobuf": [b"\xff", b"\x0a\x7f"],
    "xml": [b"<a>", b"<a/><b/>", b"\xff", b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', b"text"],
}


@pytest.mark.parametrize("name", ANY)
def test_what_cannot_be_read_is_refused_whatever_the_library_raises(name):
    serializer, _ = ANY[name]
    for data in REFUSED[name]:
        with pytest.raises(BodyRejected):
            unpack(serializer, data)


@pytest.mark.parametrize("name", ANY)
def test_what_cannot_be_written_is_the_caller_s_fault(name):
    with pytest.raises(LocalProtocolError) as caught:
        pack(ANY[name][0], object())
    assert caught.value.fault is Fault.BODY_UNSERIALIZABLE


@pytest.mark.parametrize("name", ANY)
def test_a_text_of_ours_finds_its_way(name):
    body = unpack(ANY[name][0], pack_text(ANY[name][0], "no"))
    assert body == ({"error": "no"} if name in ("bson", "xml") else "no")


def test_a_text_that_a_typed_serializer_refuses_is_no_body():
    assert pack_text(Json(), "no") == b'"no"'
    from google.protobuf.struct_pb2 import ListValue

    assert pack_text(Protobuf(ListValue), "no") == b""


def test_none_is_written_as_the_serializer_writes_it_or_not_at_all():
    assert (pack(Json(), None), pack(Msgpack(), None), pack(Cbor(), None)) == (b"null", b"\xc0", b"\xf6")
    assert pack(Bson(), None) == pack(Xml(), None) == b""
    assert unpack(Bson(), b"") is unpack(Json(), b"") is None


# Types and schemas.


@pytest.mark.parametrize("make", [Json, Msgpack])
def test_a_type_is_what_bodies_are(make):
    serializer = make(Point)
    assert serializer.parse(make().serialize({"x": 1, "y": 2})) == Point(1, 2)
    with pytest.raises(BodyRejected, match=r"\$\.y"):
        unpack(serializer, make().serialize({"x": 1, "y": "2"}))
    assert serializer.serialize(Point(1, 2)) == make().serialize({"x": 1, "y": 2})


def test_a_message_type_is_what_protobuf_bodies_are():
    from google.protobuf.duration_pb2 import Duration

    serializer = Protobuf(Duration)
    assert serializer.parse(serializer.serialize(Duration(seconds=4))) == Duration(seconds=4)
    with pytest.raises(LocalProtocolError):
        pack(serializer, {"seconds": 4})


SCHEMA = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="point"><xs:complexType><xs:attribute name="x" type="xs:int" use="required"/></xs:complexType></xs:element>
</xs:schema>"""


def test_a_schema_is_what_xml_bodies_fit():
    serializer = Xml(SCHEMA)
    assert serializer.parse(serializer.serialize({"point": {"@x": "4"}})) == {"point": {"@x": "4"}}
    with pytest.raises(BodyRejected, match="point"):
        unpack(serializer, b'<point x="four"/>')
    with pytest.raises(LocalProtocolError):
        pack(serializer, {"point": {"@x": "four"}})
    assert Xml().parse(b'<point x="four"/>') == {"point": {"@x": "four"}}


def test_no_document_reads_a_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    document = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]><a>&x;</a>'.encode()
    for serializer in (Xml(), Xml(SCHEMA)):
        with pytest.raises(BodyRejected):
            unpack(serializer, document)


# The registry.


def test_a_registry_is_added_to_and_never_changed():
    larger = STANDARD.adding("opaque", OPAQUE)
    assert (list(STANDARD), list(larger)) == (["json", "msgpack"], ["json", "msgpack", "opaque"])
    assert larger["opaque"] is OPAQUE
    assert len(larger) == 3
    other = larger.adding("json", OPAQUE)
    assert (other["json"], larger["json"]) == (OPAQUE, STANDARD["json"])


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128])
def test_a_name_that_cannot_be_said_is_none(name):
    with pytest.raises(UsageError, match="1 to 255 bytes"):
        Registry({name: OPAQUE})


def test_what_is_installed():
    assert list(installed()) == ["json", "msgpack", "bson", "cbor", "xml"]


@pytest.mark.parametrize(
    ("make", "module", "package"), [(Bson, "bson", "pymongo"), (Cbor, "cbor2", "cbor2"), (Xml, "xmltodict", "xmltodict")]
)
def test_a_library_that_is_absent_is_named(monkeypatch, make, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed: run `pip install 'wirelake\[formats\]'`"):
        make()
    assert make.__name__.lower() not in formats.installed.__wrapped__()


# On the wire.


def test_five_lines_are_a_serializer():
    class Upper:
        def serialize(self, body):
            return body.upper().encode()

        def parse(self, data):
            return data.decode().lower()

    both = options(serializer="upper", serializers=STANDARD.adding("upper", Upper()))
    pair = Pair(client=both, server=both).start()
    pair.client.session.send("foo", "hello")
    pair.settle()
    assert pair.client.messages[-1].body == b"HELLO"
    assert pair.server.delivered[-1].body == "hello"


def test_one_that_makes_no_bytes_is_refused():
    class Text:
        def serialize(self, body):
            return str(body)

        def parse(self, data):
            return data

    with pytest.raises(LocalProtocolError, match="str, not bytes"):
        pack(Text(), 1)


@pytest.mark.parametrize("name", ["json", "msgpack", "bson", "cbor", "xml"])
def test_a_whole_exchange_in_every_format(name):
    both = options(serializer=name, serializers=installed())
    pair = Pair(3, both, both).start()
    uid = pair.client.session.request("a", {"q": "1"}, 0.0, progressive=True)
    pair.client.session.send("e", {"r": None})
    pair.settle()
    assert pair.server.delivered[0].body == {"q": "1"}
    assert isinstance(pair.server.delivered[1], EventReceived)
    pair.server.session.report(uid, {"s": "2"})
    pair.server.session.respond(uid)
    pair.settle()
    assert pair.client.delivered[0].body == {"s": "2"}
    assert pair.client.delivered[1] == ResponseReceived(uid, 0, None)
