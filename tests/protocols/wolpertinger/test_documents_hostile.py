"""WOLP-17: hostile documents are refused at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.wolpertinger.xml_documents import COMPONENT, ID, LOWER, call, held, rejected, response

from wirelake.errors import LocalProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error
from wirelake.protocols.wolpertinger.layer2.documents import DocumentLimits, Rejected, decode, encode

MEBIBYTE = 1 << 20
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
WITH_DOCTYPE = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]>' + call(held("string", "&l9;")),
    "quadratic blowup": f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]>' + call(held("string", "&a;" * 50_000)),
    "an external entity": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + call(held("string", "&a;")),
    "an external entity over the network": '<!DOCTYPE x [<!ENTITY a SYSTEM "http://127.0.0.1:1/">]>' + call(held("string", "&a;")),
    "an external subset": '<!DOCTYPE x SYSTEM "file:///etc/passwd">' + call(),
    "a public one": '<!DOCTYPE x PUBLIC "a" "http://127.0.0.1:1/">' + call(),
    "a parameter entity": '<!DOCTYPE x [<!ENTITY % a SYSTEM "file:///etc/passwd">%a;]>' + call(),
    "a default attribute": '<!DOCTYPE x [<!ATTLIST object type CDATA "string">]>' + call("<object>x</object>"),
    "nothing but its name": "<!DOCTYPE RemoteMethodCall>" + call(),
    "after a declaration and comments": '<?xml version="1.0"?><!-- --><?a b?>\n<!DOCTYPE x>' + call(),
    "after a byte order mark": "\ufeff<!DOCTYPE x>" + call(),
    "never ended": "<!DOCTYPE x [" + "<!-- -->" * 1000,
}


@pytest.mark.parametrize("document", WITH_DOCTYPE.values(), ids=WITH_DOCTYPE.keys())
def test_wolp_17_any_doctype_is_refused(document):
    parsed = rejected(document)
    assert parsed.fault is Fault.DOCTYPE_REFUSED
    assert parsed.answer is not None
    assert parsed.answer.code == 301


def test_a_doctype_that_is_only_mentioned_is_no_doctype():
    for text in ("<![CDATA[<!DOCTYPE html>]]>", "&lt;!DOCTYPE html>", "<!-- <!DOCTYPE x> --> "):
        assert isinstance(decode(call(held("string", text)).encode()), Call)
    assert isinstance(decode(b"<!-- <!DOCTYPE x> -->" + call().encode()), Call)


@pytest.mark.parametrize(
    "entity", ["&e;", "&nbsp;", "%e;&e;", "&#0;", "&#x0;", "&#xD800;", "&#xFFFF;", "&#1114112;", "&#99999999999999;", "&", "&amp"]
)
def test_there_are_no_entities_but_those_of_xml(entity):
    assert rejected(call(held("string", entity))).fault is Fault.XML_INVALID


@each(
    ("data", "fault"),
    [
        (call().encode("utf-16"), Fault.DOCUMENT_NOT_UTF8),
        (call().encode("utf-16-le"), Fault.XML_INVALID),
        (call().encode("utf-16-be"), Fault.XML_INVALID),
        (call().encode("utf-32"), Fault.DOCUMENT_NOT_UTF8),
        (call(held("string", "ü")).encode("latin-1"), Fault.DOCUMENT_NOT_UTF8),
        *[
            (f'<?xml version="1.0" encoding="{name}"?>{call()}'.encode(), Fault.DOCUMENT_NOT_UTF8)
            for name in ("utf-16", "UTF-16LE", "utf-7", "iso-8859-1", "us-ascii", "windows-1252", "utf8", "UCS-4", "ebcdic-cp-us")
        ],
        (b"+ADw-!DOCTYPE x+AD4-", Fault.XML_INVALID),
        (call(held("string", "x")).encode().replace(b">x<", b">\xc0\xaf<"), Fault.DOCUMENT_NOT_UTF8),
        (call(held("string", "x")).encode().replace(b">x<", b">\xed\xa0\x80<"), Fault.DOCUMENT_NOT_UTF8),
        (call(held("string", "x")).encode().replace(b">x<", b">\xf4\x90\x80\x80<"), Fault.DOCUMENT_NOT_UTF8),
        (call(held("string", "x")).encode().replace(b">x<", b">\x00<"), Fault.XML_INVALID),
        (call(held("string", "x")).encode().replace(b">x<", b">\x1b<"), Fault.XML_INVALID),
        (call().encode() + b"\x00", Fault.XML_INVALID),
        (call().encode() + b"\xff", Fault.DOCUMENT_NOT_UTF8),
        (call().encode() * 2, Fault.XML_INVALID),
        (b'<?xml version="1.1"?>' + call().encode(), Fault.XML_INVALID),
        (b' <?xml version="1.0"?>' + call().encode(), Fault.XML_INVALID),
        (b"\xef\xbb\xbf\xef\xbb\xbf" + call().encode(), Fault.XML_INVALID),
        (b"<w:RemoteMethodCall/>", Fault.XML_INVALID),
        (b'<RemoteMethodCall a="1" a="2"/>', Fault.XML_INVALID),
        (b"", Fault.XML_INVALID),
        (b" ", Fault.XML_INVALID),
        (b"\x00" * 1000, Fault.XML_INVALID),
        (b"<" * 1000, Fault.XML_INVALID),
    ],
)
def test_wolp_17_only_utf_8_and_only_xml(data, fault):
    assert rejected(data).fault is fault


@pytest.mark.parametrize(
    "start", ["\ufeff", '<?xml version="1.0" encoding="UTF-8"?>', '<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n']
)
def test_utf_8_may_be_declared(start):
    assert decode((start + call()).encode()) == Call("Core", "m", LOWER)


def nested(depth: int) -> str:
    """A call whose innermost element is this deep."""
    lists = depth - 3
    return call('<object type="list">' * lists + held("string", "x") + "</object>" * lists)


def test_wolp_17_depth_is_limited_and_the_limit_itself_is_allowed():
    assert isinstance(decode(nested(64).encode()), Call)
    for depth in (65, 1000, 30_000):
        assert rejected(nested(depth)).fault is Fault.DOCUMENT_OVER_LIMIT
    assert rejected("<a>" * 300_000).fault is Fault.DOCUMENT_OVER_LIMIT
    assert rejected(nested(3), limits=DocumentLimits(max_depth=2)).fault is Fault.DOCUMENT_OVER_LIMIT
    assert isinstance(decode(nested(3).encode(), DocumentLimits(max_depth=3)), Call)


def test_a_limit_of_depth_beyond_what_python_allows_ends_in_a_refusal_and_not_in_a_crash():
    assert rejected(nested(20_000), limits=DocumentLimits(max_depth=1 << 20)).fault is Fault.DOCUMENT_OVER_LIMIT
    endless: list = []
    endless.append(endless)
    with pytest.raises(LocalProtocolError) as refused:
        encode(Call("C", "m", LOWER, (endless,)))
    assert refused.value.fault is Fault.VALUE_UNSENDABLE


@pytest.mark.slow
def test_wolp_17_elements_are_limited_and_the_limit_itself_is_allowed():
    for parsed in (held("string", ""), held("string", "") + "<!-- -->"):
        assert isinstance(decode(call(parsed).encode(), DocumentLimits(max_elements=6)), Call)
        assert rejected(call(parsed), limits=DocumentLimits(max_elements=5)).fault is Fault.DOCUMENT_OVER_LIMIT
    assert rejected(call("<o/>" * 200_000)).fault is Fault.DOCUMENT_OVER_LIMIT
    many = "<![CDATA[" + "<" * 200_000 + "]]>"
    assert isinstance(decode(call(held("string", many)).encode()), Call)


def test_wolp_17_size_is_limited_and_the_limit_itself_is_allowed():
    for document in (call(held("string", "x")).encode(), call(held("string", "x")).encode() + b"<!-- for the parser -->"):
        filled = document.replace(b">x<", b">" + b"x" * (MEBIBYTE - len(document) + 1) + b"<")
        assert len(filled) == MEBIBYTE
        assert isinstance(decode(filled), Call)
        parsed = rejected(filled.replace(b">xx", b">xxx"))
        assert parsed.fault is Fault.DOCUMENT_OVER_LIMIT
        assert parsed.answer == Error("Core", 301, LOWER)


HUGE = {
    "an attribute": call(f'<object type="{"x" * 1_000_000}">x</object>'),
    "many attributes": call("<object " + " ".join(f'a{n}="1"' for n in range(90_000)) + ">x</object>"),
    "an unended attribute": '<RemoteMethodCall a="' + "x" * 1_000_000,
    "a name": "<" + "x" * 1_000_000 + "/>",
    "a prefix": "<" + "x" * 500_000 + ":RemoteError",
    "many prefixes": "<a:" * 300_000,
    "a namespace": call(xmlns=f' xmlns="{"x" * 1_000_000}"'),
    "many namespaces": call("x", xmlns="".join(f' xmlns:n{n}="urn:{n}"' for n in range(40_000))),
    "a call id": call().replace(ID, "a" * 1_000_000),
    "a component that is cut": f"<RemoteMethodCall><ComponentName>{'x' * 1_000_000}",
    "a number": call(held("int64", "9" * 1_000_000)),
    "a double": call(held("double", "1" * 1_000_000)),
    "a moment": call(held("dateTime", "2002-10-10T19:00:00." + "0" * 1_000_000)),
    "a truth": call(held("boolean", " " * 1_000_000)),
    "a guid": call(held("guid", "-" * 1_000_000)),
    "an entity": call(held("string", "&" + "a" * 1_000_000)),
    "blanks": call(" " * 1_000_000 + "x"),
    "many values and a wrong end": call(held("string", "") * 30_000 + "<x"),
    "a hash": call(held("fileObject", f"<FileObject><Hash>{'0' * 1_000_000}</Hash></FileObject>")),
    "a comment that is cut": "<!--" + "-" * 1_000_000,
    "comments": "<!-- -->" * 130_000,
    "an instruction that is cut": "<?x " + "?" * 1_000_000,
}


@pytest.mark.slow
@pytest.mark.timeout(20)
@each("document", HUGE.values(), ids=HUGE.keys())
def test_a_mebibyte_of_anything_is_refused_fast_with_a_short_detail(document):
    parsed = rejected(document)
    assert len(parsed.detail) < 400
    assert len(parsed.component) <= 256
    if parsed.answer is not None:
        assert len(encode(parsed.answer)) < 2000


INVENTED = """
import resource
from wirelake.protocols.wolpertinger.layer2.documents import Rejected, decode

def peak(seeds):
    for seed in seeds:
        names = "".join(f"<n{seed:04}x{n:06}/>" for n in range(20_000))
        told = decode(f"<RemoteMethodCall>{names}</RemoteMethodCall>".encode())
        assert isinstance(told, Rejected) and "holds" in told.detail, told
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

first = peak(range(2))
print(peak(range(2, 12)) / first)
"""


@pytest.mark.slow
def test_names_that_strangers_invent_are_not_remembered():
    parsed = subprocess.run([sys.executable, "-c", INVENTED], capture_output=True, text=True, check=True)
    assert float(parsed.stdout) < 1.1


@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from(["<", ">", "/", "RemoteMethodCall", COMPONENT, "<!", "[CDATA[", "]]>", "&", " ", '"', "<?xml ", "=", "\x00"])
    )
    .map("".join)
    .map(str.encode)
)
def test_no_bytes_raise(data):
    parsed = decode(data)
    assert isinstance(parsed, Rejected)


@given(st.integers(0, 400), st.sampled_from([call(held("string", "x")), response(held("list", held("int32", "1")))]))
def test_a_document_that_is_cut_is_refused_wherever(at, document):
    data = document.encode()
    assert isinstance(decode(data[: min(at, len(data) - 1)]), Rejected)
