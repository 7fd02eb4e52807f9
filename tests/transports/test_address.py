"""Addresses: what people write is understood, or refused with a word about what would be right."""

from __future__ import annotations

import pytest

from wirelake.errors import UsageError
from wirelake.transports.address import Target, parse


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port"),
    [
        ("tcp://example.org:1", "tcp", "example.org", 1),
        ("tls://example.org", "tls", "example.org", 5040),
        ("example.org", "tcp", "example.org", 5040),
        ("example.org:7", "tcp", "example.org", 7),
        ("tcp://127.0.0.1:0", "tcp", "127.0.0.1", 0),
        ("tcp://example.org:65535/", "tcp", "example.org", 65535),
        ("tcp://[::1]:5041", "tcp", "::1", 5041),
        ("tls://[2001:db8::7]", "tls", "2001:db8::7", 5040),
        ("[::1]:9", "tcp", "::1", 9),
        ("tcp://[fe80::1%eth0]:9", "tcp", "fe80::1%eth0", 9),
        ("TLS://Example.ORG", "tls", "example.org", 5040),
        ("tcp://example.org:", "tcp", "example.org", 5040),
    ],
)
def test_addresses_as_people_write_them(text, scheme, host, port):
    assert parse(text, 5040) == Target(scheme, host, port)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tcp://example.org:65536", "number up to 65535"),
        ("tcp://example.org:-1", "number up to 65535"),
        ("tcp://example.org:http", "number up to 65535"),
        ("tcp://::1:5040", r"\[::1\]"),
        ("tcp://[::1:5040", r"\[::1\]"),
        ("tcp://", "host:port"),
        ("", "host:port"),
        ("tcp://:5040", "host:port"),
        ("http://example.org", "'http' is not one of tcp, tls"),
        ("udp://example.org:1", "'udp' is not one of tcp, tls"),
        ("tcp://example.org/path", "host:port"),
        ("tcp://example.org?query", "host:port"),
        ("tcp://example.org#part", "host:port"),
        ("tcp://me@example.org", "host:port"),
        ("tcp://:secret@example.org", "host:port"),
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(text, hint):
    with pytest.raises(UsageError, match=hint) as caught:
        parse(text, 5040)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["tcp://example.org:1", "tls://[::1]:2", "tcp://127.0.0.1:5040"])
def test_a_target_is_written_as_it_is_read(text):
    assert str(parse(text, 5040)) == text
    assert parse(str(parse(text, 9)), 9) == parse(text, 9)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("xmpp://alice@example.org", Target("xmpp", "alice@example.org", 0)),
        ("xmpp://alice@example.org/bob@example.net", Target("xmpp", "alice@example.org", 0, "/bob@example.net")),
        ("xmpp://alice@localhost:15222/bob@localhost/phone", Target("xmpp", "alice@localhost", 15222, "/bob@localhost/phone")),
    ],
)
def test_an_account_and_whom_it_talks_to(text, target):
    assert parse(text, None, ("tcp", "xmpp")) == target
    assert str(target) == text


@pytest.mark.parametrize("text", ["xmpp://example.org", "xmpp://@example.org", "xmpp://alice@", "xmpp://alice@example.org?message"])
def test_an_account_has_a_user_and_a_domain(text):
    with pytest.raises(UsageError, match="write xmpp://user@domain"):
        parse(text, None, ("tcp", "xmpp"))


def test_a_password_has_no_place_in_an_address_and_is_not_repeated():
    with pytest.raises(UsageError, match="write xmpp://user@domain") as caught:
        parse("xmpp://alice:mellon@example.org", None, ("tcp", "xmpp"))
    assert "mellon" not in str(caught.value)
