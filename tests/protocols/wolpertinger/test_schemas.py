"""WOLP-14: our reader accepts the documents that the XML schemas accept, except where rulings differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.wolpertinger import schemas
from tests.protocols.wolpertinger.test_documents import CALLS_OF_ANOTHER_SHAPE, EVERY_COMPLEX, MESSAGE
from tests.protocols.wolpertinger.xml_documents import CALL_ID, CODE, COMPONENT, ID, METHOD, VECTORS, XMLNS, call, error, held, response

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, ErrorCode
from wirelake.protocols.wolpertinger.layer2.documents import Rejected, decode, encode
from wirelake.protocols.wolpertinger.layer2.values import DataType

OF_VALUES = {Fault.VALUE_INVALID, Fault.COMPLEX_INVALID, Fault.TYPE_UNSUPPORTED}
"""Faults inside objects, of which the schema of messages says nothing."""


def fits(document: str | bytes) -> bool:
    """Whether we hold a document for one that fits the schema of messages."""
    parsed = decode(document.encode() if isinstance(document, str) else document)
    return parsed.fault in OF_VALUES if isinstance(parsed, Rejected) else True


@each("vector", [vector for vector in VECTORS if vector["layer"] == 2], ids=lambda vector: vector["name"])
def test_our_schema_agrees_with_the_vectors(vector):
    document = vector["xml"].encode()
    if b"<!DOCTYPE" in document:  # WOLP-17: refused before any schema
        assert not schemas.is_valid(document)
        assert not fits(document)
        return
    assert schemas.is_valid(document) == vector["xsd_valid"]
    if b"xmlns" in document:  # WOLP-13: none is accepted, too
        assert fits(document) == vector["xsd_valid"]


@each("document", CALLS_OF_ANOTHER_SHAPE)
def test_documents_of_another_shape_fit_neither(document):
    is_about_instances = "schemaLocation" in document  # WOLP-14: no attribute is allowed, not even one that schemas always allow
    assert schemas.is_valid(document.encode()) == is_about_instances
    assert not fits(document)


PARTS = [
    *(
        COMPONENT,
        CALL_ID,
        METHOD,
        CODE,
        "<Parameters/>",
        "<ResponseValue/>",
        "<Extra/>",
        "text",
        " ",
        "<!-- -->",
        "<?a b?>",
        "<![CDATA[ ]]>",
    ),
    *(
        f"<Parameters>{held('string', 'x')}</Parameters>",
        f"<ResponseValue>{held('list', '')}</ResponseValue>",
        "<ErrorCode> +0301\n</ErrorCode>",
    ),
    *("<ErrorCode>x</ErrorCode>", "<CallId>x</CallId>", "<ComponentName/>", '<ComponentName a="b"/>', "<Parameters>x</Parameters>"),
    *(
        f"<Parameters>{held('foo', 'x')}</Parameters>",
        "<Parameters><object/></Parameters>",
        "<ResponseValue>" + held("guid", "") * 2 + "</ResponseValue>",
    ),
    *('<MethodName xmlns="">m</MethodName>', '<MethodName xmlns="urn:x">m</MethodName>', "<MethodName>a<b/></MethodName>"),
]
ORDER = {
    "RemoteMethodCall": [COMPONENT, CALL_ID, METHOD, "<Parameters/>"],
    "RemoteMethodResponse": [COMPONENT, CALL_ID, "<ResponseValue/>"],
    "RemoteError": [COMPONENT, CODE, CALL_ID],
}


def both(root: str, parts: list[str]) -> None:
    document = f"<{root}{XMLNS}>{''.join(parts)}</{root}>"
    assert fits(document) == schemas.is_valid(document.encode()), document


@pytest.mark.parametrize("root", ORDER)
def test_every_part_left_out_doubled_swapped_or_replaced_is_judged_alike(root):
    order = ORDER[root]
    both(root, order)
    for at in range(len(order)):
        both(root, order[:at] + order[at + 1 :])
        both(root, order[: at + 1] + order[at:])
        both(root, order[:at] + order[at : at + 2][::-1] + order[at + 2 :])
        for part in PARTS:
            both(root, [*order[:at], part, *order[at + 1 :]])
            both(root, [*order[:at], part, *order[at:]])
    for part in PARTS:
        both(root, [*order, part])


@given(st.sampled_from(sorted(ORDER)), st.lists(st.sampled_from(PARTS), max_size=6))
def test_any_parts_are_judged_alike(root, parts):
    both(root, parts)


@given(MESSAGE)
def test_every_document_we_send_fits_the_schema(parsed):
    assert schemas.is_valid(encode(parsed))


@pytest.mark.parametrize("value", [value for value in EVERY_COMPLEX if type(value).__name__ not in {"Call", "Response", "Error"}])
def test_complex_values_we_send_fit_their_schema(value):
    assert schemas.is_valid(inner(encode(Call("C", "m", ID, (value,)))), "complex")


def inner(document: bytes) -> bytes:
    """The element inside the only object of a call, in our namespace."""
    name, rest = document.partition(b'">')[2].partition(b"<object")[2].partition(b"><")[2].split(b">", 1)
    return b"<" + name + XMLNS.encode() + b">" + rest.partition(b"</object>")[0]


# Blanks before a dateTime are allowed by the standard and by us, but not by libxml2.
TIMES = ["2002-10-10T19:00:00Z", "2002-10-10T24:00:00", "2002-10-10T19:00:00.12345678+14:00", "2002-10-10T19:00:00-13:59 \n"]
NO_TIMES = [
    "",
    "x",
    "2002-10-10",
    "2002-02-30T19:00:00",
    "2002-10-10T24:00:01",
    "2002-10-10T19:00:60",
    "2002-10-10T19:00:00+14:01",
    "0000-01-01T00:00:00",
    "25/12/2011 19:57:23",
]
COMPLEX = [
    *[("SnapshotInfo", f"<Id>{ID}</Id><Time>{time}</Time>") for time in (*TIMES, *NO_TIMES)],
    *[("SnapshotInfo", f"<Id>{text}</Id><Time>{TIMES[0]}</Time>") for text in (ID.lower(), f"{{{ID}}}", f" {ID}", "")],
    *[
        ("ClientInfo", f"<JId/><TrustLevel>{level}</TrustLevel><ProtocolVersion>{version}</ProtocolVersion><Profiles>{profiles}</Profiles>")
        for level, version, profiles in [
            *[(level, 0, "") for level in (0, 4, 5, -1, "", "x", " 1 ", "+1", "01", "1.0", "-0")],
            *[(0, version, "") for version in (1, -1, "", " 0 ", "00")],
            *[(0, 0, profiles) for profiles in ("<Profile/>", "<Profile>a</Profile>" * 3, "<Client/>", "x", " ")],
        ]
    ],
    *[
        ("FileObject", f"<Name/><Path/><Created>{TIMES[0]}</Created><LastEdited>{TIMES[0]}</LastEdited><Hash{kind}>{digits}</Hash>")
        for kind, digits in [
            *[(' hashtype="sha1"', digits) for digits in ("", "00", "fF", "0", "0g", " 00 ", "0 0", "00" * 20)],
            *[(kind, "00") for kind in ("", ' hashtype="md5"', ' hashtype="SHA1"', ' other="sha1"', ' hashtype=""')],
        ]
    ],
    *[
        ("MountInfo", inside)
        for inside in ("<MountPoint/><LocalPath/>", "<LocalPath/><MountPoint/>", "<MountPoint/>", "", "<MountPoint/>x<LocalPath/>")
    ],
    *[
        ("Permission", f"<Path/>{clients}")
        for clients in (
            "",
            "<PermittedClients/>",
            "<PermittedClients><Client/></PermittedClients>",
            "<PermittedClients><Profile/></PermittedClients>",
        )
    ],
    *[
        ("DirectoryObject", f"<Name/><Path/><Created>{TIMES[0]}</Created><LastEdited>{TIMES[0]}</LastEdited>{inside}")
        for inside in (
            "",
            "<Files/>",
            "<Files/><Directories/>",
            "<Directories/><Files/>",
            "<Files/><Directories><FileObject/></Directories>",
            "<Files><FileObject/></Files><Directories/>",
        )
    ],
]


@each(("name", "inside"), COMPLEX)
def test_complex_values_are_judged_as_their_schema_judges_them(name, inside):
    document = call(held(name[0].lower() + name[1:], f"<{name}>{inside}</{name}>"))
    is_valid = schemas.is_valid(f"<{name}{XMLNS}>{inside}</{name}>".encode(), "complex")
    assert isinstance(decode(document.encode()), Call) == is_valid


def test_the_schemas_list_the_codes_and_types_that_we_know():
    protocol, primitive = schemas.text("protocol").decode(), schemas.text("primitive").decode()
    assert [f'<xs:enumeration value="{code}"/>' for code in map(int, ErrorCode)] == [
        line.strip() for line in protocol.splitlines() if "enumeration" in line
    ]
    assert [f'<xs:enumeration value="{name}"/>' for name in DataType] == [
        line.strip() for line in primitive.splitlines() if "enumeration" in line
    ]


def test_wolp_15_a_code_of_its_own_fits_the_ruling_and_not_the_schema():
    document = error().replace("303", "1")
    assert fits(document)
    assert not schemas.is_valid(document.encode())


def test_wolp_18_a_message_inside_a_value_is_305_though_the_schema_sees_it():
    document = call(held("remoteError", error("", xmlns="")))
    assert decode(document.encode()).fault is Fault.COMPLEX_INVALID
    assert not schemas.is_valid(document.encode())


def test_a_response_may_hold_one_value():
    assert fits(response(held("string", "x")))
    assert schemas.is_valid(response(held("string", "x")).encode())
