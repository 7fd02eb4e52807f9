"""Filters as people type them: what each term lets through, and what is said about a wrong one."""

import pytest
from tests.cases import each

from wirelake.errors import UsageError
from wirelake.explore.filters import FIELDS, KINDS, FilterError, Term, parse

NOW = 1_800_000_000.0
REQUEST = {
    "type": "message",
    "protocol": "relink",
    "kind": "request",
    "name": "call",
    "subject": "orders.new",
    "id": "7",
    "status": ["ok", "answered"],
    "rule": None,
    "host": ("10.0.0.1", "10.0.0.2"),
    "port": (40_000, 5040),
    "from": "10.0.0.1:40000",
    "to": "10.0.0.2:5040",
    "size": 2048,
    "latency": 0.0125,
    "number": 7,
    "ts": int((NOW - 300) * 1e6),
}
BROKEN = {"type": "violation", "protocol": "relink", "rule": ("CHANNEL_UNKNOWN", "RELINK-22"), "severity": "error"}


@each(
    "text",
    [
        "",
        "protocol:relink",
        "protocol:RELINK kind:request",
        "protocol:re*",
        "subject:orders.*",
        "subject:orders.?ew",
        "subject:orders.[mn]ew",
        "status:answered",
        "status:ok",
        "status:unanswered,answered",
        "kind:response,request",
        "-kind:response",
        "-rule:*",
        "orders",
        "-keepalive",
        "host:10.0.0.2",
        "port:5040",
        "port:5000..6000",
        "from:10.0.0.1",
        "from:10.0.0.1:40000",
        "to:10.0.0.*",
        "size:>2000 size:<=2k",
        "size:2048",
        "latency:>10ms",
        "latency:<1s",
        "latency:10ms..20ms",
        "number:7",
        "since:10m",
        "since:1h until:1m",
        "since:2020-01-01",
        "until:2100-01-01T00:00:00Z",
        'subject:"orders.new"',
    ],
)
def test_terms_that_let_a_request_through(text):
    assert parse(text, now=NOW).matches(REQUEST)


@each(
    "text",
    [
        "protocol:emp",
        "protocol:relink kind:response",
        "subject:orders",
        "status:unanswered",
        "-kind:request",
        "rule:*",
        "rule:RELINK-22",
        "invoices",
        "host:10.0.0.3",
        "port:80",
        "from:10.0.0.2",
        "size:>2048",
        "latency:>1s",
        "since:1m",
        "until:10m",
        "severity:error",
    ],
)
def test_terms_that_do_not(text):
    assert not parse(text, now=NOW).matches(REQUEST)


def test_a_rule_is_found_by_name_and_by_clause_and_a_glob_of_either():
    for text in ("rule:RELINK-22", "rule:channel_unknown", "rule:RELINK-*", "rule:*", "CHANNEL", "severity:error type:violation"):
        assert parse(text).matches(BROKEN), text
    assert not parse("rule:RELINK-2").matches(BROKEN)


def test_a_field_that_is_missing_is_equal_to_nothing_and_may_be_excluded():
    assert not parse("subject:*").matches(BROKEN)
    assert parse("-subject:*").matches(BROKEN)
    assert not parse("size:<10").matches({"size": None})


def test_quotes_keep_spaces_and_commas_together():
    chosen = parse('subject:"new orders, all" -"no way"')
    assert chosen.terms == (Term("subject", ("new orders, all",)), Term("", ("no way",), is_excluded=True))
    assert chosen.matches({"subject": "New orders, all"})


def test_a_filter_is_data_and_text_again():
    text = 'protocol:event_mesh subject:a.*,"b c" -kind:keepalive since:10m word'
    chosen = parse(text)
    assert str(chosen) == text
    assert parse(str(chosen)).terms == chosen.terms
    assert chosen.fields() >= {"protocol", "subject", "kind", "ts", "name"}
    assert not parse("  ")


def test_a_protocol_may_be_typed_with_a_hyphen():
    assert parse("protocol:event-mesh").matches({"protocol": "event_mesh"})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("protcol:emp", "no field 'protcol'"),
        ("kind:", "field:value"),
        ("-", "field:value"),
        ("kind:requst", "kind is never 'requst'"),
        ("protocol:smtp", "protocol is never 'smtp'"),
        ("status:lost", "status is never 'lost'"),
        ("size:big", "write a number"),
        ("size:>10x", "write a number"),
        ("latency:1..", "write a number"),
        ("since:soon", "an age such as 10m"),
        ('subject:"open', "a quote is not closed"),
    ],
)
def test_a_wrong_filter_says_what_is_wrong_and_what_to_write(text, what):
    with pytest.raises(FilterError, match=what) as wrong:
        parse(text)
    assert wrong.value.term
    assert isinstance(wrong.value, UsageError)


def test_every_kind_can_be_asked_for_and_every_field_says_what_it_is():
    for kind in KINDS:
        assert parse(f"kind:{kind}").matches({"kind": kind})
    assert all(field.doc.endswith((".", "…")) for field in FIELDS.values())
