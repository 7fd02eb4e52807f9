"""WOLP-13 to WOLP-20: documents to messages and back, and the answers to rejected ones."""

from __future__ import annotations

import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.wolpertinger.xml_documents import (
    CALL_ID,
    CODE,
    COMPONENT,
    ID,
    LOWER,
    METHOD,
    NAMESPACE,
    VECTORS,
    XMLNS,
    answered,
    call,
    error,
    held,
    parameters,
    rejected,
    response,
)

from wirelake.errors import LocalProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Response, error_name
from wirelake.protocols.wolpertinger.layer2.documents import DocumentLimits, Rejected, _short, decode, encode
from wirelake.protocols.wolpertinger.layer2.values import (
    ClientInfo,
    DateTime,
    DirectoryObject,
    FileObject,
    Int32,
    Int64,
    MountInfo,
    Permission,
    SnapshotInfo,
    UInt64,
    moment_text,
)
from wirelake.protocols.wolpertinger.layer2.xml_reader import message
from wirelake.protocols.wolpertinger.layer2.xml_tree import read

LAYER_2 = [vector for vector in VECTORS if vector["layer"] == 2]
OF_THE_REGISTRY = {201, 202, 303, 304}
"""Codes that answer documents which are messages: components, methods and trust are the session's."""
SOME_ID = UUID(LOWER)
TIME = DateTime(630_000_000_000_000_001)
FILE = FileObject("f", "/f", TIME, TIME, bytes(range(20)))
EVERY_COMPLEX = (
    ClientInfo("a@b", 3, 0, ("x", "")),
    DirectoryObject("d", "/d", TIME, TIME, (FILE, FILE), (DirectoryObject("e", "/d/e", TIME, TIME),)),
    FILE,
    Permission("/p", ("a@b", "c@d")),
    MountInfo("/m", "C:\\m"),
    SnapshotInfo(SOME_ID, TIME),
    Call("C", "m", LOWER, (Int32(1), (True,))),
    Response("C", LOWER, "x"),
    Response("C", LOWER),
    Error("C", 303, LOWER),
    Error("", 100),
)


def plain(value):
    """A value as vectors write it."""
    return moment_text(value).replace(".0000000", "") if isinstance(value, DateTime) else value


@each("vector", LAYER_2, ids=lambda vector: vector["name"])
def test_a_vector_gives_its_message_or_its_answer(vector):
    parsed = decode(vector["xml"].encode())
    if isinstance(parsed, Rejected):
        assert vector["expect"] == "reject"
        answer = parsed.answer
        assert (answer and answer.code) == vector["error_code"]
        return
    assert vector["expect"] == "ok" or vector["error_code"] in OF_THE_REGISTRY or "Echo" in vector["xml"]
    fields = dict(vector["fields"])
    if "type" in fields:
        assert type(parsed).__struct_config__.tag == fields.pop("type")
    if "name" in fields:
        assert error_name(parsed.code) == fields.pop("name")
    if "parameters" in fields:
        assert [plain(value) for value in parsed.parameters] == [parameter["value"] for parameter in fields.pop("parameters")]
    for name, value in fields.items():
        assert plain(getattr(parsed, name)) == value
    assert decode(encode(parsed)) == parsed


def test_wolp_13_the_namespace_any_prefix_or_none():
    expected = Call("Core", "m", LOWER, ("x",))
    inside = held("string", "x")
    prefixed = call(inside, xmlns="").replace("</", "</w:").replace("<", "<w:").replace("<w:/w:", "</w:")
    assert prefixed.startswith("<w:RemoteMethodCall><w:ComponentName>Core</w:ComponentName>")
    for document in (call(inside), call(inside, xmlns=""), prefixed.replace("Call>", f'Call xmlns:w="{NAMESPACE}">', 1)):
        assert decode(document.encode()) == expected


def test_wolp_13_we_send_the_namespace_on_the_root():
    for parsed in (Call("C", "m", LOWER), Response("C", LOWER), Error("C", 100)):
        sent = encode(parsed).decode()
        assert sent.startswith(f'<{type(parsed).__struct_config__.tag} xmlns="{NAMESPACE}">')
        assert sent.count("xmlns") == 1


@pytest.mark.parametrize(
    "document",
    [
        call(xmlns=' xmlns="http://example.com/"'),
        call(xmlns=f' xmlns="{NAMESPACE}/"'),
        call(xmlns=f' xmlns="{NAMESPACE.upper()}"'),
        '<html xmlns="http://www.w3.org/1999/xhtml"/>',
        call().replace("<ComponentName>", '<ComponentName xmlns="">'),
        call(xmlns="").replace("<ComponentName>", f"<ComponentName{XMLNS}>"),
        call('<object xmlns="" type="string">x</object>'),
        call('<object xmlns="urn:x" type="string">x</object>'),
        call(held("list", '<object xmlns="" type="string">x</object>')),
        call(held("mountInfo", '<MountInfo xmlns=""><MountPoint>a</MountPoint><LocalPath>b</LocalPath></MountInfo>')),
        call(held("mountInfo", '<MountInfo><MountPoint xmlns="urn:x">a</MountPoint><LocalPath>b</LocalPath></MountInfo>')),
    ],
)
def test_wolp_13_mixed_and_foreign_namespaces_are_301(document):
    assert rejected(document).fault is Fault.NAMESPACE_WRONG
    assert answered(document) == 301


@pytest.mark.parametrize("root", ["remotemethodcall", "RemoteMethodcall", "Call", "RemoteMethodCalls", "object"])
@pytest.mark.parametrize("xmlns", [XMLNS, ""])
def test_wolp_13_an_unknown_root_is_302(root, xmlns):
    parsed = rejected(call(xmlns=xmlns).replace("RemoteMethodCall", root))
    assert parsed.fault is Fault.ROOT_UNKNOWN
    assert parsed.answer == Error("Core", 302, LOWER)


CALLS_OF_ANOTHER_SHAPE = [
    call().replace(COMPONENT, ""),
    call().replace(CALL_ID, ""),
    call().replace(METHOD, ""),
    call().replace("<Parameters></Parameters>", ""),
    call().replace(CALL_ID + METHOD, METHOD + CALL_ID),
    call().replace(COMPONENT, COMPONENT * 2),
    call().replace("<Parameters></Parameters>", "<Parameters/><Parameters/>"),
    call().replace("</Parameters>", "</Parameters><Extra/>"),
    call().replace("</Parameters>", "</Parameters>text"),
    call().replace(COMPONENT, "&#160;" + COMPONENT),
    call("text"),
    call("<Object type='string'>x</Object>"),
    call("<object>x</object>"),
    call('<object type="string" more="1">x</object>'),
    call('<object Type="string">x</object>'),
    call(f'<object xmlns:w="{NAMESPACE}" w:type="string">x</object>'),
    call('<object type="string" xml:lang="en">x</object>'),
    call().replace("<Parameters>", '<Parameters n="1">'),
    call().replace("<MethodName>", '<MethodName n="1">'),
    call().replace("<MethodName>m", "<MethodName><b>m</b>"),
    call(xmlns=XMLNS + ' foo="1"'),
    call(xmlns=XMLNS + ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b"'),
    call().replace("Parameters", "ResponseValue"),
    response().replace("ResponseValue", "Parameters"),
    response(held("string", "x") * 2),
    response().replace("<ResponseValue></ResponseValue>", ""),
    response().replace("<ResponseValue>", METHOD + "<ResponseValue>"),
]


@each("document", CALLS_OF_ANOTHER_SHAPE)
def test_wolp_14_what_the_schema_does_not_allow_is_301(document):
    assert rejected(document).fault is Fault.STRUCTURE_WRONG
    assert answered(document) == 301


@pytest.mark.parametrize(
    "text", ["", "x", f"{{{ID}}}", f" {ID}", f"{ID}\n", ID[:-1], ID + "0", ID.replace("-", ""), "-" * 36, ID[:8] + "0" + ID[9:]]
)
def test_wolp_14_a_call_id_is_a_guid(text):
    for document in (call(), response()):
        parsed = rejected(document.replace(ID, text))
        assert parsed.fault is Fault.CALL_ID_INVALID
        assert parsed.call_id is None
        assert parsed.answer == Error("Core", 301)
    assert answered(error().replace(ID, text)) is None


def test_wolp_14_call_ids_are_sent_and_reported_in_lower_case():
    assert decode(call().encode()).call_id == LOWER
    assert f"<CallId>{LOWER}</CallId>".encode() in encode(Call("C", "m", ID))
    with pytest.raises(LocalProtocolError) as refused:
        encode(Call("C", "m", "1"))
    assert refused.value.fault is Fault.CALL_ID_INVALID


def test_wolp_14_blanks_between_elements_mean_nothing_and_in_texts_everything():
    spread = call(held("string", " x\n")).replace("><", ">\r\n\t <")
    assert decode(spread.encode()) == decode(call(held("string", " x\n")).encode()) == Call("Core", "m", LOWER, (" x\n",))
    assert decode(call().replace("Core", " Core ").encode()).component == " Core "


@each("code", [*ErrorCode, 0, 1, -1, 999, 2**31 - 1, -(2**31)])
def test_wolp_15_any_code_is_received(code):
    parsed = decode(error().replace("303", str(code)).encode())
    assert parsed == Error("Core", code, LOWER)
    assert (error_name(parsed.code) is None) == (code not in set(ErrorCode))


@pytest.mark.parametrize("text", ["", "x", "2147483648", "-2147483649", "1.0", "0x1", "9" * 5000])
def test_wolp_15_what_is_no_int32_is_no_code_and_never_answered(text):
    parsed = rejected(error().replace("303", text))
    assert parsed.fault is Fault.ERROR_CODE_INVALID
    assert parsed.answer is None


def test_wolp_15_only_the_17_codes_are_sent():
    assert len(ErrorCode) == 17
    for code in ErrorCode:
        assert decode(encode(Error("C", code))) == Error("C", code)
    with pytest.raises(LocalProtocolError) as refused:
        encode(Error("C", 1))
    assert refused.value.fault is Fault.ERROR_CODE_INVALID


def test_wolp_15_codes_have_the_names_of_the_schema():
    assert [error_name(code) for code in (100, 301, 303, 306, 502, 1)] == [
        "UnspecifiedError",
        "InvalidXmlError",
        "MethodNotFoundError",
        "UnsupportedDatatypeError",
        "ItemNotFoundError",
        None,
    ]


def test_wolp_16_a_call_that_is_refused_is_answered_with_what_could_be_read_of_it():
    assert rejected(call("text")).answer == Error("Core", 301, LOWER)
    assert rejected(call()[:-1]).answer == Error("Core", 301, LOWER)
    assert rejected(call(held("int32", "x"))).answer == Error("Core", 305, LOWER)
    assert rejected(call(held("directoryObjectDiff", ""))).answer == Error("Core", 306, LOWER)
    assert rejected(b"").answer == Error("", 301)
    assert rejected(b"\x00").answer == Error("", 301)
    assert rejected(call().replace("Core", "&#1;")).answer == Error("", 301, LOWER)


def test_wolp_16_a_response_that_is_refused_is_301_without_its_call_id():
    for document in (response("text"), response()[:-1], response(held("int32", "x")), response(held("foo", "x"))):
        assert rejected(document).answer == Error("Core", 301)
        assert rejected(document).call_id == LOWER


@each(
    "document",
    [
        error("text" + COMPONENT + CODE),
        error()[:-1],
        error(CODE + COMPONENT),
        error(COMPONENT),
        error(COMPONENT + CALL_ID),
        error(COMPONENT + CODE + CALL_ID * 2),
        error(xmlns=' xmlns="urn:x"'),
        "<!DOCTYPE RemoteError>" + error(),
        error()[:-1] + " ",
        error() + "\x00",
        error() + error(),
        "<RemoteError",
        "<RemoteError ",
        "<RemoteError/",
        "<w:RemoteError>",
        " <!-- --><RemoteError>",
    ],
)
def test_wolp_16_an_error_is_never_answered_however_broken(document):
    assert rejected(document).answer is None


def test_wolp_16_only_elements_of_the_protocol_tell_what_is_answered():
    foreign = call().replace("<CallId>", '<CallId xmlns="urn:x">').replace("<ComponentName>", '<ComponentName xmlns="urn:x">')
    assert rejected(foreign).answer == Error("", 301)
    assert rejected(call("text").replace("Core", "C<b/>ore").replace(ID, f"<b/>{ID}")).answer == Error("", 301)
    assert rejected(call("text").replace(CALL_ID, f"<CallId>{'0' * 8}{ID[8:]}</CallId>{CALL_ID}")).call_id == "0" * 8 + LOWER[8:]


def test_wolp_16_a_long_name_is_not_echoed_whole():
    for document in (call("text"), call()[:-1]):
        for length, echoed in ((256, 256), (257, 256 if document.endswith(">") else 0)):
            assert len(rejected(document.replace("Core", "x" * length)).component) == echoed


def test_wolp_16_what_can_be_answered_can_be_sent():
    for document in [*CALLS_OF_ANOTHER_SHAPE, call().replace("Core", "x" * 5000)[:-1], call("t").replace("Core", "<![CDATA[<&]]>")]:
        answer = rejected(document).answer
        assert decode(encode(answer)) == answer


@pytest.mark.parametrize("data_type", ["foo", "DateTime", "String", "int", "", "list ", "filesystemObject"])
def test_wolp_18_an_unknown_data_type_is_301(data_type):
    for document in (call(held(data_type, "x")), call(held("list", held(data_type, "x")))):
        assert rejected(document).fault is Fault.TYPE_UNKNOWN
        assert answered(document) == 301


def test_wolp_18_a_fault_of_the_schema_comes_before_one_of_a_value():
    assert answered(call(held("int32", "x") + held("foo", "x"))) == 301
    assert answered(call(held("int32", "x") + held("directoryObjectDiff", ""))) == 305


MOUNT = "<MountInfo><MountPoint>a</MountPoint><LocalPath>b</LocalPath></MountInfo>"
CLIENT = "<ClientInfo><JId>a</JId><TrustLevel>4</TrustLevel><ProtocolVersion>0</ProtocolVersion><Profiles/></ClientInfo>"
ENTRY = "<Name>f</Name><Path>/f</Path><Created>2002-10-10T19:00:00Z</Created><LastEdited>2002-10-10T19:00:00Z</LastEdited>"
A_FILE = f'<FileObject>{ENTRY}<Hash hashtype="sha1">00FF</Hash></FileObject>'
SNAPSHOT = f"<SnapshotInfo><Id>{ID}</Id><Time>2002-10-10T19:00:00</Time></SnapshotInfo>"


@each(
    ("data_type", "inside"),
    [
        ("mountInfo", ""),
        ("mountInfo", "text"),
        ("mountInfo", MOUNT * 2),
        ("mountInfo", MOUNT + "text"),
        ("mountInfo", SNAPSHOT),
        ("mountInfo", MOUNT.replace("MountInfo", "mountInfo")),
        ("mountInfo", MOUNT.replace("<MountInfo>", '<MountInfo a="1">')),
        ("mountInfo", "<MountInfo><LocalPath>b</LocalPath><MountPoint>a</MountPoint></MountInfo>"),
        ("clientInfo", CLIENT.replace("4", "5")),
        ("clientInfo", CLIENT.replace("4", "-1")),
        ("clientInfo", CLIENT.replace("0", "1")),
        ("clientInfo", CLIENT.replace("<Profiles/>", "")),
        ("clientInfo", CLIENT.replace("<Profiles/>", "<Profiles><Client>x</Client></Profiles>")),
        ("fileObject", A_FILE.replace("sha1", "md5")),
        ("fileObject", A_FILE.replace("00FF", "0FF")),
        ("fileObject", A_FILE.replace("00FF", "0g")),
        ("fileObject", A_FILE.replace("00FF", "0 0")),
        ("fileObject", A_FILE.replace("2002", "25/12/2011")),
        ("directoryObject", f"<DirectoryObject>{ENTRY}<Files/></DirectoryObject>"),
        ("directoryObject", f"<DirectoryObject>{ENTRY}<Directories/><Files/></DirectoryObject>"),
        ("directoryObject", f"<DirectoryObject>{ENTRY}<Files>{MOUNT}</Files><Directories/></DirectoryObject>"),
        ("snapshotInfo", SNAPSHOT.replace(ID, f"{{{ID}}}")),
        ("permission", "<Permission><Path/><PermittedClients>x</PermittedClients></Permission>"),
        ("remoteMethodCall", call(xmlns="").replace(METHOD, "")),
        ("remoteMethodCall", call(xmlns="").replace(ID, "x")),
        ("remoteError", error(xmlns="").replace("303", "x")),
        ("list", "text"),
        ("list", MOUNT),
        ("list", "<object>x</object>"),
        ("list", held("list", held("int32", "x"))),
        ("string", "<b/>"),
        ("int32", "1<b/>"),
    ],
)
def test_wolp_18_a_complex_value_that_does_not_fit_its_type_is_305(data_type, inside):
    assert answered(call(held(data_type, inside))) == 305


def test_wolp_18_complex_values_are_read():
    inside = held("mountInfo", f"\n  {MOUNT}\n") + held("fileObject", A_FILE.replace(' hashtype="sha1"', "")) + held("clientInfo", CLIENT)
    mount, file, client = parameters(inside)
    assert (mount, client) == (MountInfo("a", "b"), ClientInfo("a", 4))
    assert file.hash == b"\x00\xff"


@pytest.mark.parametrize("value", EVERY_COMPLEX, ids=lambda value: type(value).__name__)
def test_every_complex_type_survives(value):
    for parsed in (Call("C", "m", LOWER, (value, (value,))), Response("C", LOWER, value)):
        assert decode(encode(parsed)) == parsed


def test_wolp_18_a_string_is_verbatim():
    for text in ("", " ", "\n\t x ", "a\rb", "\r\n", "<&>\"'", "]]>", "&amp;", "ünï \U0001f98c", "\ufeff", "\x7f\x85\u2028", "x" * 20_000):
        parsed = Call(text, text, LOWER, (text, (text,), MountInfo(text, text)))
        assert decode(encode(parsed)) == parsed
    (text,) = parameters(held("string", "a<!-- no -->b<![CDATA[<c>&amp;]]>&#100;&lt;<?no no?>"))
    assert text == "ab<c>&amp;d<"


@pytest.mark.parametrize("character", [0x00, 0x08, 0x0B, 0x1F, 0xD800, 0xDFFF, 0xFFFE, 0xFFFF])
def test_wolp_18_a_character_that_xml_has_not_is_not_sent(character):
    character = chr(character)
    for parsed in (Call("C", "m", LOWER, (character,)), Call(character, "m", LOWER), Response("C", LOWER, MountInfo(character, ""))):
        with pytest.raises(LocalProtocolError) as refused:
            encode(parsed)
        assert refused.value.fault is Fault.VALUE_UNSENDABLE


@pytest.mark.parametrize("value", [None, b"bytes", {}, 1j, object(), 2**64, ClientInfo("a", 5), ClientInfo("a", -1), ClientInfo("a", 1, 1)])
def test_wolp_19_null_and_what_no_type_holds_is_not_sent(value):
    for parameter in (value, [value]):
        with pytest.raises(LocalProtocolError) as refused:
            encode(Call("C", "m", LOWER, (parameter,)))
        assert refused.value.fault is Fault.VALUE_UNSENDABLE


def test_wolp_19_a_response_without_object_is_null():
    for inside in ("", "\n ", "<!-- -->"):
        assert decode(response(inside).encode()) == Response("Core", LOWER, None)
    assert decode(response().replace("<ResponseValue></ResponseValue>", "<ResponseValue />").encode()) == Response("Core", LOWER, None)
    assert b"<ResponseValue></ResponseValue>" in encode(Response("C", LOWER))


def test_wolp_20_an_error_may_have_an_empty_component():
    for component in ("<ComponentName></ComponentName>", "<ComponentName />", "<ComponentName/>"):
        assert decode(error(component + CODE).encode()) == Error("", 303)


def by_the_parser(data: bytes):
    return message(read(data, DocumentLimits()))


SAID = st.text(
    st.characters(codec="utf-8", exclude_characters="\ufffe\uffff", exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t\r&<>\"' ")
)
PRIMITIVE = (
    st.booleans()
    | st.integers(-(2**31), 2**31 - 1).map(Int32)
    | st.integers(-(2**63), 2**63 - 1).map(Int64)
    | st.integers(0, 2**64 - 1).map(UInt64)
    | st.floats(allow_nan=False)
    | SAID
    | st.integers(0, 3_155_378_975_999_999_999).map(DateTime)
    | st.uuids()
)
VALUE = st.recursive(PRIMITIVE | st.sampled_from(EVERY_COMPLEX), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
MESSAGE = (
    st.builds(Call, SAID, SAID, st.uuids().map(str), st.lists(VALUE, max_size=4).map(tuple))
    | st.builds(Response, SAID, st.uuids().map(str), st.none() | VALUE)
    | st.builds(Error, SAID, st.sampled_from(ErrorCode), st.none() | st.uuids().map(str))
)


@given(MESSAGE)
def test_every_message_survives_and_both_readers_agree(parsed):
    data = encode(parsed)
    assert decode(data) == by_the_parser(data) == parsed


@given(MESSAGE, st.data())
def test_a_document_with_a_byte_changed_is_read_alike_by_both_readers_or_refused(parsed, data):
    document = bytearray(encode(parsed))
    at = data.draw(st.integers(0, len(document) - 1))
    document[at : at + data.draw(st.integers(0, 2))] = data.draw(
        st.sampled_from([b"", b"<", b">", b"&", b"/", b" ", b"\r", b"\x00", b"\xff", b"x", b'"', b"]]>"])
    )
    try:
        short = _short(bytes(document).decode(), DocumentLimits())
    except UnicodeDecodeError:
        short = None
    if short is not None:
        assert by_the_parser(bytes(document)) == short
    else:
        decode(bytes(document))


EDGES = [
    *[call(held("string", text)) for text in ("", "x", "&amp;&lt;&gt;&quot;&apos;", "&amp;amp;", "a\nb", "\u0085", "\ufffd", "\U0001ffff")],
    *[call(held("string", "x") * count) for count in (0, 1, 2, 500)],
    *[document.replace("></", "> </") for document in (call(), response())],
    *[
        start + document
        for document in (call(), response(), error())
        for start in ("", "\n", '<?xml version="1.0"?>', '<?xml version="1.0" encoding="utf-8"?>\n')
    ],
    *[document.replace("><", ">\r\n  <") for document in (call(held("int64", "1")), response(held("boolean", "True")), error())],
    *[call().replace("<Parameters></Parameters>", tag) for tag in ("<Parameters/>", "<Parameters />")],
    *[error(inside) for inside in (COMPONENT + CODE, "<ComponentName/>" + CODE, COMPONENT + "<ErrorCode>1</ErrorCode>")],
]


@each("document", EDGES)
def test_the_common_shape_is_read_as_the_parser_reads_it(document):
    short = _short(document.encode().decode(), DocumentLimits())
    assert short == by_the_parser(document.encode())


@pytest.mark.parametrize("text", ["a\rb", "]]>", ">", "&#65;", "&unknown;", "\x0b", "\ufffe", "\uffff", "<b/>", "&amp"])
def test_what_is_not_quite_the_common_shape_is_left_to_the_parser(text):
    assert _short(call(held("string", text)), DocumentLimits()) is None


def test_nothing_is_lost_between_a_double_that_is_no_number_and_its_text():
    (value,) = decode(encode(Call("C", "m", LOWER, (math.nan,)))).parameters
    assert math.isnan(value)
