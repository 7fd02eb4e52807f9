"""Filters as people type them: what each term lets through, and what is said about a wrong one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from wirelake.errors import UsageError
from wirelake.explore.reading.matching import matcher
from wirelake.filters import FIELDS, KINDS, FilterError, Not, Term, Text, parse

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
    "body": ['{"item": "oat milk"}', '{"item":"oat milk"}'],
    "emp.request_id": [7],
    "emp.request": ["true"],
    "number": 7,
    "ts": int((NOW - 300) * 1e6),
}


def passes(text: str, values: dict[str, Any]) -> bool:
    return matcher(parse(text, now=NOW))(values)


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
        "not kind:response",
        "NOT (kind:response or kind:event)",
        "kind:response or kind:request",
        "kind:event or kind:response or subject:orders.* size:2k",
        "(kind:event or kind:request) (size:>1k and port:5040)",
        "-(kind:event subject:orders.*)",
        "not not kind:request",
        "not(kind:event)",
        "body:*milk*",
        'body:"*""item"": ""oat*"',
        "milk",
        "-sugar",
        '"oat milk"',
        "emp.request_id:7",
        "emp.request_id:>6 emp.request:true",
        "emp.request:1",
        "-relink.sequence:*",
        "size:*",
        "from:10.0.0.0/24",
        "from:10.0.0.77/24",
        "host:10.0.0.2/32",
        "-to:10.0.0.0/31",
        "-host:fe80::/10",
        "ts:<2100-01-01",
        "ts:>=2020-01-01T00:00:00Z",
        "ts:2020-01-01..2100-01-01",
    ],
)
def test_terms_that_let_a_request_through(text):
    assert passes(text, REQUEST)


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
        "not kind:request",
        "kind:event or kind:response",
        "(kind:request or kind:event) size:<10",
        "-(kind:request subject:orders.*)",
        "body:milk",
        "emp.request_id:8",
        "emp.request:false",
        "relink.sequence:*",
        "host:10.0.1.0/24",
        "ts:>2100-01-01",
        "ts:2020-01-01",
    ],
)
def test_terms_that_do_not(text):
    assert not passes(text, REQUEST)


def test_a_rule_is_found_by_name_and_by_clause_and_a_glob_of_either():
    for text in ("rule:RELINK-22", "rule:channel_unknown", "rule:RELINK-*", "rule:*", "CHANNEL", "severity:error type:violation"):
        assert passes(text, BROKEN), text
    assert not passes("rule:RELINK-2", BROKEN)


def test_a_field_that_is_missing_is_equal_to_nothing_and_may_be_excluded():
    assert not passes("subject:*", BROKEN)
    assert passes("-subject:*", BROKEN)
    assert not passes("size:<10", {"size": None})


def test_quotes_keep_spaces_and_commas_together():
    chosen = parse('subject:"new orders, all" -"no way"')
    assert chosen.terms == (Term("subject", (Text("new orders, all"),)), Not(Term("", (Text("no way"),))))
    assert passes(str(chosen), {"subject": "New orders, all"})


def test_a_filter_is_data_and_text_again():
    text = 'protocol:event_mesh subject:a.*,"b c" -kind:keepalive since:10m word'
    chosen = parse(text, now=NOW)
    assert str(chosen) == text
    assert parse(str(chosen), now=NOW).terms == chosen.terms
    assert chosen.fields() >= {"protocol", "subject", "kind", "ts", "name"}
    assert not parse("  ")


def test_a_protocol_may_be_typed_with_a_hyphen():
    assert passes("protocol:event-mesh", {"protocol": "event_mesh"})


@each(
    "text",
    [
        "kind:request or kind:event size:>1k",
        "(kind:request or kind:event) size:>1k",
        "-(kind:request or -rule:*) word",
        'a "or" b',
        '"-x" "a:b" "a==b" "(" "say ""hi"""',
        'subject:f(x) subject:"(" subject:"\'a\'"',
        "emp.request_id:1..2 ts:<2026-01-31",
        "kind:event or (protocol:emp or name:x) or not_this",
        "(kind:event kind:request) or -(a b)",
        'subject:"a&&b"',
    ],
)
def test_every_filter_reads_the_same_when_it_is_written_again(text):
    chosen = parse(text, now=NOW)
    again = parse(str(chosen), now=NOW)
    assert again.terms == chosen.terms
    assert str(again) == str(chosen)


def test_and_binds_tighter_than_or_and_not_tighter_than_both():
    assert str(parse("a b or c and not d e")) == "a b or c -d e"
    assert parse("a b or c and not d e").terms == parse("((a) (b)) or ((c) and (not (d)) and e)").terms


def test_parentheses_inside_a_term_belong_to_it():
    assert parse("(subject:f(x) or subject:g)").terms == parse('subject:"f(x)" or subject:g').terms


@each(
    ("text", "column", "what"),
    [
        # Wireshark.
        ("tcp.port==5040", 1, "`tcp.port==5040` is Wireshark's spelling: write port:5040"),
        ("kind:request tcp.port == 5040", 14, "`tcp.port == 5040` is Wireshark's spelling: write port:5040"),
        ("ip.addr==10.0.0.1 && tcp.port==5040", 1, "write host:10.0.0.1"),
        ("(ip.src eq 10.0.0.1)", 2, "`ip.src eq 10.0.0.1` is Wireshark's spelling: write from:10.0.0.1"),
        ("tcp.dstport==5040", 1, "write port:5040"),
        ("frame.len>100", 1, "write size:>100"),
        ("ip.dst == 10.0.0.1", 1, "write to:10.0.0.1"),
        ("host:a || host:b", 8, "`||` is Wireshark's spelling: write or"),
        ("host:a && host:b", 8, "`&&` is Wireshark's spelling: write and"),
        ("host:a||host:b", 7, "`||` is Wireshark's spelling: write or, with spaces"),
        ("!kind:request", 1, "write -kind:request"),
        ("! kind:request", 1, "`!` is Wireshark's spelling: write not"),
        ("host:a !(kind:request or rule:*)", 8, "`!` is Wireshark's spelling: write not"),
        ('frame contains "milk"', 1, "write body:*milk*"),
        ("emp.request == 1", 1, "write emp.request:1"),
        ("kind in {request response}", 1, "write kind:request,response"),
        # SQL.
        ("host = 'a'", 1, "`host = 'a'` is SQL's spelling: write host:a"),
        ("kind:request host='a b'", 14, 'write host:"a b"'),
        ("kind <> 'event'", 1, "write -kind:event"),
        ("subject LIKE 'orders.%'", 1, "write subject:orders.*"),
        ("subject not like 'orders.%'", 1, "write -subject:orders.*"),
        ("kind IN ('request', 'response')", 1, "write kind:request,response"),
        ("latency between 1s and 2s", 1, "write latency:1s..2s"),
        ("rule IS NOT NULL", 1, "write rule:*"),
        ("SELECT * FROM messages", 1, "`SELECT` is SQL: write field:value"),
        ("kind:'request'", 1, "quotes are double: write kind:request"),
        ("rule:* 'new orders'", 8, 'quotes are double: write "new orders"'),
        # Nearly ours.
        ("latency>1s", 1, "a field ends with a colon: write latency:>1s"),
        ("latency_us>1000", 1, "write latency:>1000us"),
        ("size >= 100", 1, "write size:>=100"),
        ("port:==5040", 1, "write port:5040"),
        ("size:>= 100", 1, "no space after >="),
        ("kind: request", 1, "write kind:request, without a space"),
        ("protcol:emp", 1, "no field 'protcol': write protocol:emp"),
        ("prot:emp", 1, "no field 'prot': write protocol:emp"),
        ("dst:10.0.0.1", 1, "write to:10.0.0.1"),
        ("emp.reqest_id:7", 1, "write emp.request_id:7"),
        ("emp.extensions:7", 1, "emp has no such column with plain values"),
        ("size:1 x:y", 8, 'to search for text, write "x:y"'),
        ("10.0.0.1:5040", 1, "write from:10.0.0.1:5040 or to:10.0.0.1:5040, or host:10.0.0.1 port:5040"),
        ("[::1]:5040", 1, "write from:[::1]:5040"),
        ("fe80::1", 1, "write host:fe80::1"),
        ("host > 5", 1, "write host:value"),
        # Parentheses and connectives.
        ("kind:request ()", 14, "`()` is empty"),
        ("(kind:request", 1, "`(` is not closed"),
        ("kind:request)", 13, "`)` closes nothing"),
        ("kind:request or", 14, "nothing comes after `or`"),
        ("or kind:request", 1, "nothing is before `or`"),
        ("kind:event and and x", 12, "nothing comes after `and`"),
        ("not", 1, "nothing comes after `not`"),
        ("subject:f(x y", 1, "`(` is not closed: keep text together with quotes"),
        ("(" * 60 + "a" + ")" * 60, 51, "inside of each other"),
        ("!(" * 5000 + "a" + ")" * 5000, 1, "Wireshark's spelling"),
        # Values.
        ("kind:", 1, "kind:value"),
        ("kind:,", 1, "kind:value"),
        ("-", 1, "field:value"),
        ('""', 1, "field:value"),
        ("kind:requst", 1, "kind is never 'requst'; write kind:request"),
        ("protocol:smtp", 1, "protocol is never 'smtp'"),
        ("severity:high", 1, "severity is never 'high'"),
        ("rule:* status:lost", 8, "status is never 'lost'"),
        ("emp.request:maybe", 1, "choose one of true, false"),
        ("size:big", 1, "write a number"),
        ("size:>10x", 1, "write a number"),
        ("latency:1..", 1, "write a number"),
        ("since:soon", 1, "an age such as since:10m"),
        ("ts:>10m", 1, "an age is since:10m"),
        ("session:xyz", 1, "an id is hex digits"),
        ("from:10.0.0.0/33", 1, "10.0.0.0/33 is no network"),
        ('subject:"open', 9, "is not closed"),
    ],
)
def test_what_is_not_of_the_language_is_refused_at_its_column_with_what_to_write(text, column, what):
    with pytest.raises(FilterError) as wrong:
        parse(text)
    assert wrong.value.column == column
    assert what in str(wrong.value)
    assert str(wrong.value).startswith(f"filter, column {column}: ")
    assert wrong.value.term
    assert isinstance(wrong.value, UsageError)


def test_what_a_refusal_says_to_write_is_accepted():
    """The spelling after the last `write` of a refusal that has one."""
    for text in (
        "tcp.port==5040",
        "host='a b'",
        "kind IN ('request', 'response')",
        "latency between 1s and 2s",
        "!kind:event",
        "frame ~ x",
    ):
        with pytest.raises(FilterError) as wrong:
            parse(text)
        assert parse(str(wrong.value).rpartition("write ")[2])


PIECES = [*"ab:\"'()<>=!&|-,.*[]~/ ", " or ", " and ", " not ", "kind:", "host:", "size:"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_is_a_filter_or_is_refused_at_a_column_of_it(text):
    try:
        chosen = parse(text, now=NOW)
    except FilterError as wrong:
        assert 1 <= wrong.column <= len(text) + 1  # noqa: PT017 - most texts are either, and both are right
    else:
        assert parse(str(chosen), now=NOW).terms == chosen.terms


def test_a_sentence_is_words_to_search_for():
    for text in ("error in payload", "time is up", "no route to host", "data for you and me"):
        assert all(not term.field for term in parse(text).every_term())


def test_the_time_range_of_a_filter_is_that_of_its_own_terms():
    assert parse("since:2026-01-01 until:2026-01-02 kind:event").span() == (1_767_225_600_000_000, 1_767_312_000_000_000)
    assert parse("ts:2026-01-01..2026-01-02 ts:>=2026-01-01").span() == (1_767_225_600_000_000, 1_767_312_000_000_000)
    assert parse("since:2026-01-01 or kind:event").span() == (None, None)
    assert parse("-since:2026-01-01").span() == (None, None)
    assert parse("ts:<2026-01-01").span() == (None, 1_767_225_600_000_000)


def test_every_kind_can_be_asked_for_and_every_field_says_what_it_is():
    for kind in KINDS:
        assert passes(f"kind:{kind}", {"kind": kind})
    assert all(field.doc.endswith((".", "…")) for field in FIELDS.values())
