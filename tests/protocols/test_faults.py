"""Every fault of every protocol has one rule; and the specification accuses its sender, all else is only noted."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from tests.cases import each

from wirelake import protocols
from wirelake.protocols.faults import Origin, Severity, Strength

FAULTS = [fault for name in protocols.names() for fault in protocols.get(name).faults]


CLAUSES = {
    "emp": r"EMP-([1-9]|[1-3]\d|4[0-7])",
    "event_mesh": r"EMM-\d+|§\d+(\.\d+)*",
    "relink": r"RELINK-([1-9]|[12]\d|3[0-3])|§2|§3.2",
    "wolpertinger": r"WOLP-\d+",
    "yamp": r"YAMP-([1-9]|[1-4]\d|5[0-3])",
}
"""Protocol -> the ids of its rules."""


@each("fault", FAULTS, ids=lambda fault: f"{type(fault).__module__.split('.')[2]}-{fault.name}")
def test_every_fault_has_one_rule_and_stands_in_one_group(fault):
    module = import_module(type(fault).__module__)
    assert fault.rule.number == fault
    assert re.fullmatch(CLAUSES[type(fault).__module__.split(".")[2]], fault.clause)
    assert fault.text
    assert not fault.text.endswith(".")
    assert fault.is_tolerated == (fault in module.TOLERATED)
    assert sum(fault in group for group in (module.UNREADABLE, module.BREACHES, module.TOLERATED)) == 1
    assert 0 < fault < 128, "a row has room for seven bits"


@pytest.mark.parametrize("protocol", protocols.names())
def test_no_two_faults_have_one_number(protocol):
    kind = protocols.get(protocol).faults
    assert len({int(fault) for fault in kind}) == len(kind.__members__)


def names(protocol: str, origin: Origin) -> set[str]:
    return {fault.name for fault in protocols.get(protocol).faults if fault.origin is origin}


@each(
    ("protocol", "fault"),
    [
        ("event_mesh", "VALUE_UNTERMINATED"),  # §4: split into multiple fields of the same type, and no more
        ("event_mesh", "KEY_WITHOUT_SIGNATURE"),  # §4.2 does not say what a public key alone means
        ("event_mesh", "ENC_FLAG_MISSING"),  # §2.3 asks for metadata with the flag, not for the flag with metadata
        ("event_mesh", "STALE"),  # §5.4: optionally
        ("yamp", "SERIALIZER_EMPTY"),  # 0x00: a size is required, and 0 is one
        ("yamp", "BOOL_ODD"),  # the text says bool, and not which bytes
        ("yamp", "URI_NOT_UTF8"),  # the text says string, and no encoding
        ("yamp", "VERSION_UNSUPPORTED"),  # v1.0 may well be 01 00
        ("yamp", "SPOKE_TOO_SOON"),  # nobody tells a client to wait
        ("emp", "UNUSED_BITS_SET"),  # unused, not zero
        ("emp", "REQUEST_BLOCK_REPEATED"),  # there can be multiple extension blocks associated with the same extension
        ("emp", "HELLO_EXTENDED"),  # each message can include an arbitrary number of extension blocks
        ("relink", "NOT_MINIMAL"),  # every form is described, and none is preferred
        ("relink", "CHANNEL_UNKNOWN"),  # tombstones of ours cause it (RELINK-22)
        ("wolpertinger", "ALIAS_USED"),  # the specification's own example
        ("wolpertinger", "SIGNATURE_REFUSED"),  # the specification's own example
        ("wolpertinger", "MESSAGE_REPEATED"),  # the sender may try to send the message again
    ],
)
def test_what_only_a_ruling_forbids_accuses_nobody(protocol, fault):
    found = protocols.get(protocol).faults[fault]
    assert (found.origin, found.severity) == (Origin.RULING, Severity.INFO)


@pytest.mark.parametrize(
    ("protocol", "fault", "severity"),
    [
        ("event_mesh", "PAYLOAD_TOO_LARGE", Severity.ERROR),  # §6.3 rejects it
        ("event_mesh", "TLV_COUNT", Severity.ERROR),  # §6.3 rejects it
        ("relink", "UNUSED_BITS_SET", Severity.TOLERATED),  # must be sent as zero
        ("emp", "PING_OVERLAPPING", Severity.TOLERATED),  # must not send any additional ping
        ("emp", "REQUEST_ID_ZERO", Severity.ERROR),  # must not be used
        ("wolpertinger", "ID_MISSING", Severity.ERROR),  # mandatory
    ],
)
def test_what_the_specification_forbids_is_a_violation(protocol, fault, severity):
    found = protocols.get(protocol).faults[fault]
    assert (found.origin, found.severity) == (Origin.TEXT, severity)


@pytest.mark.parametrize("protocol", protocols.names())
def test_a_limit_of_ours_is_named_as_one(protocol):
    over = {fault.name for fault in protocols.get(protocol).faults if fault.name.endswith("_OVER_LIMIT")}
    assert over <= names(protocol, Origin.LIMIT)
    assert over


@each("fault", FAULTS, ids=lambda fault: f"{type(fault).__module__.split('.')[2]}-{fault.name}")
def test_severity_follows_from_origin_and_from_what_a_session_does(fault):
    assert fault.origin in Origin
    if fault.origin is not Origin.TEXT or fault.strength is Strength.MAY:
        assert fault.severity is Severity.INFO
    elif fault.strength is Strength.SHOULD:
        assert fault.severity is Severity.WARNING
    else:
        assert fault.severity is (Severity.TOLERATED if fault.is_tolerated else Severity.ERROR)


@pytest.mark.parametrize(
    ("protocol", "fault"),
    [
        ("yamp", "ECHO_DIFFERS"),  # should respond with the same handshake
        ("yamp", "HANDSHAKE_EXPECTED"),  # should be first message after connection establishment
        ("yamp", "CLOSED_WITHOUT_WORD"),  # should be sent by any party before gracefully closing
        ("yamp", "SPOKE_AFTER_CLOSE"),  # a drop should follow
        ("yamp", "HANDSHAKE_REPEATED"),  # should be the first message
        ("relink", "LINK_REFUSED"),  # should reply with a new, unique link id
        ("relink", "LINK_REPLACED"),  # should reply with the zero link id
        ("event_mesh", "FIELDS_OUT_OF_ORDER"),  # §6.1 has an order, and §6.3 does not reject another
        ("emp", "PONG_MISSING"),
        ("yamp", "PONG_MISSING"),
        ("relink", "PONG_MISSING"),
    ],
)
def test_what_the_specification_only_recommends_is_a_warning(protocol, fault):
    assert protocols.get(protocol).faults[fault].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("protocol", "fault"),
    [
        ("emp", "CLOSED_WITHOUT_PARTING"),  # closing the connection is one of three ways to terminate
        ("emp", "VERSION_UNSUPPORTED"),  # a newer peer sends its highest version, as it is told to
        ("relink", "CLOSED_WITHOUT_PARTING"),
        ("relink", "MESSAGE_CUT"),  # RELINK-14: such a message counts as never sent
    ],
)
def test_what_the_specification_allows_accuses_nobody(protocol, fault):
    assert protocols.get(protocol).faults[fault].severity is Severity.INFO


@each("fault", FAULTS, ids=lambda fault: f"{type(fault).__module__.split('.')[2]}-{fault.name}")
def test_a_number_of_ours_is_never_more_than_info(fault):
    if any(word in fault.name for word in ("TIMEOUT", "TIMED_OUT", "LIMIT", "EXPIRED")):
        assert fault.severity is Severity.INFO
