"""Every fault has its rule, and a way to bring it about."""

from __future__ import annotations

import msgspec
import pytest
from tests.cases import each
from tests.protocols.emp import speech
from tests.protocols.emp.pair import QUIET, SERVER, Pair, Side, answer, established
from tests.protocols.emp.scanning import only

from wirelake.errors import LocalProtocolError, ProtocolError
from wirelake.protocols.emp.faults import TOLERATED, Fault
from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
from wirelake.protocols.emp.options import Options, Refused
from wirelake.protocols.emp.state_machine import State, refusal
from wirelake.protocols.emp.wire import decode, encode, pack
from wirelake.protocols.kernel import FAULT


class Stubborn:
    def undo(self, content, body):
        raise Refused(9, "no")


OPTIONS = Options(application_types=frozenset({128}), codecs={200: Stubborn()})

HEARD: dict[Fault, bytes] = {
    Fault.SIZE_TOO_SMALL: b"\x00\x00\x00\x07",
    Fault.SIZE_OVER_LIMIT: b"\xff\xff\xff\xff",
    Fault.TYPE_RESERVED: speech.envelope(6),
    Fault.BLOCK_MISSING: speech.envelope(speech.DATA, e=True),
    Fault.NEXT_BLOCK_MISSING: speech.data(b"", speech.gz(0, more=True)),
    Fault.BLOCK_TOO_SMALL: speech.data(b"", speech.block(128, size=7)),
    Fault.BLOCK_PAST_END: speech.data(b"", speech.block(128, size=9)),
    Fault.BLOCKS_OVER_LIMIT: speech.data(b"", speech.blocks(17)),
    Fault.HELLO_SIZE: speech.envelope(speech.HELLO, bytes(5)),
    Fault.ERROR_TOO_SHORT: speech.error(3, b"", length=1),
    Fault.ERROR_TRAILING_BYTES: speech.error(3, b"xx", length=1),
    Fault.ERROR_NOT_UTF8: speech.error(3, b"\xff"),
    Fault.REQUEST_BLOCK_SIZE: speech.data(b"", speech.block(0, bytes(11))),
    Fault.COMPRESSION_BLOCK_SIZE: speech.data(b"", speech.block(1, bytes(5))),
    Fault.SCHEME_UNKNOWN: speech.data(b"", speech.gz(2)),
    Fault.GZIP_INVALID: speech.data(b"", speech.gz(1)),
    Fault.INFLATED_OVER_LIMIT: speech.data(pack(bytes(16 * 1024 * 1024 + 1)), speech.gz(1)),
    Fault.REQUEST_ID_ZERO: speech.request(0),
    Fault.REQUEST_BLOCK_REPEATED: speech.data(b"", speech.rr(True, 1, more=True) + speech.rr(True, 2)),
    Fault.REQUEST_BLOCK_MISPLACED: speech.envelope(speech.PING, b"", speech.rr(True, 1)),
    Fault.COMPRESSION_MISPLACED: speech.envelope(speech.PONG, b"", speech.gz(0)),
    Fault.COMPRESSION_NESTED: speech.data(b"", speech.gz(0, more=True) * 4 + speech.gz(0)),
    Fault.EXTENSION_UNKNOWN: speech.data(b"", speech.block(2)),
    Fault.TYPE_UNREGISTERED: speech.envelope(129),
    Fault.EXTENSION_REFUSED: speech.data(b"", speech.block(200)),
    Fault.HELLO_REPEATED: speech.hello(),
    Fault.RESPONSE_UNMATCHED: speech.response(1),
    Fault.REQUEST_ID_IN_FLIGHT: speech.request(1) * 2,
    Fault.UNUSED_BITS_SET: speech.envelope(speech.DATA, unused=b"\x01\x00\x00"),
    Fault.BODY_IGNORED: speech.envelope(speech.PING, b"x"),
    Fault.PONG_UNSOLICITED: speech.pong,
}
"""Fault -> what a peer says after the handshake to bring it about."""

GREETED: dict[Fault, bytes] = {
    Fault.HELLO_EXPECTED: speech.ping,
    Fault.HELLO_EXTENDED: speech.envelope(speech.HELLO, bytes((1, 0, 0, 0)), speech.block(200)),
    Fault.VERSION_UNSUPPORTED: speech.hello(2),
}
"""Fault -> what a peer says first."""


def handshake_timeout():
    side = Side(SERVER)
    side.start()
    side.wait(6)
    return side.ended.fault


def pong_timeout():
    side = established()
    side.wait(30)
    return side.ended.fault


def unhandled():
    return answer(speech.request(1), Options(answers_requests=False)).ended.fault


def cut(held):
    side = established()
    side.receive(speech.data(b"x")[:held])
    side.eof()
    return side.ended.fault


def late():
    pair = Pair(client=QUIET).start()
    pair.client.session.abandon(pair.client.session.request(b"", 0.0))
    pair.settle()
    pair.server.session.respond(1, b"")
    pair.settle()
    return pair.client.noticed[0]


LIVED = {
    Fault.HANDSHAKE_TIMEOUT: handshake_timeout,
    Fault.PONG_TIMEOUT: pong_timeout,
    Fault.REQUEST_UNHANDLED: unhandled,
    Fault.CLOSED_WITHOUT_PARTING: lambda: cut(0),
    Fault.CLOSED_INSIDE_MESSAGE: lambda: cut(3),
    Fault.RESPONSE_LATE: late,
}
"""Fault -> a story that ends with it."""


def raised(attempt):
    with pytest.raises(ProtocolError) as caught:
        attempt()
    return caught.value


def overlapping():
    session = established().session
    session.ping(0.0)
    session.ping(0.0)


def too_soon():
    side = Side(SERVER)
    side.start()
    side.session.send(b"")


def exhausted():
    session = established().session
    session._requests.ask((1 << 64) - 1, None)
    session.request(b"", 0.0)


LOCAL = {
    Fault.PING_OVERLAPPING: overlapping,
    Fault.SPOKE_TOO_SOON: too_soon,
    Fault.IDENTIFIERS_EXHAUSTED: exhausted,
    Fault.FIELD_OUT_OF_RANGE: lambda: encode(Hello(256)),
}
"""Fault -> how calling code brings it about. A session cannot hear these: it answers each ping at once, and has itself said hello first."""


def failed_by_its_owner():
    side = established()
    side.receive(speech.request(1))
    side.session.fail(Fault.HANDLER_FAILED)
    side.drain()
    assert side.messages[-1].error_code == 0
    return side.ended.fault


ELSEWHERE = {
    Fault.MESSAGE_CUT: lambda: raised(lambda: decode(b"")).fault,
    Fault.SPOKE_AFTER_PARTING: lambda: refusal(State.CLOSED, SERVER, Data),
    Fault.HANDLER_FAILED: failed_by_its_owner,
}
"""Faults that a session does not find itself: of a whole message given to `decode`, of the table as the lake's auditor reads it, and of
whoever owns the session."""


def test_every_fault_can_be_brought_about():
    everything = [*HEARD, *GREETED, *LIVED, *LOCAL, *ELSEWHERE]
    assert sorted(everything) == sorted(set(Fault) - {Fault.PONG_MISSING, Fault.REQUEST_ID_REUSED}), "which only an observer finds"


@each("fault", [*HEARD, *GREETED], ids=lambda fault: fault.name)
@each("size", [1, 4096])
def test_what_a_peer_says_is_the_fault_and_is_answered_by_its_rule(fault, size):
    result = answer({**HEARD, **GREETED}[fault], OPTIONS, handshake=fault in GREETED, cut=size)
    if fault in TOLERATED:
        assert (result.noticed, result.ended, result.error) == ([fault], None, None)
        return
    assert result.ended.fault is fault
    rule = fault.rule
    if rule.error_code is None:
        assert result.error is None
    else:
        assert result.error.error_code == rule.error_code
        assert result.error.message.startswith(f"{fault.clause}: {fault.text}")
        if rule.error_code != 4:
            assert (result.error.extension_id, result.error.extension_error_code) == (0, 0)
        elif fault is Fault.EXTENSION_UNKNOWN:
            assert (result.error.extension_id, result.error.extension_error_code) == (2, 0)
        elif fault is Fault.EXTENSION_REFUSED:
            assert (result.error.extension_id, result.error.extension_error_code) == (200, 9)
        else:
            assert (result.error.extension_id, result.error.extension_error_code) == (rule.extension_id, rule.extension_error_code)
    assert len(result.delivered) == (1 if fault is Fault.REQUEST_ID_IN_FLIGHT else 0)


@pytest.mark.parametrize("fault", [*LIVED, *ELSEWHERE], ids=lambda fault: fault.name)
def test_a_story_ends_with_the_fault(fault):
    assert {**LIVED, **ELSEWHERE}[fault]() is fault


@pytest.mark.parametrize("fault", LOCAL, ids=lambda fault: fault.name)
def test_calling_code_is_blamed_for_it(fault):
    error = raised(LOCAL[fault])
    assert type(error) is LocalProtocolError
    assert error.fault is fault
    assert str(error).startswith(f"{fault.clause}: {fault.text}")


@each("fault", Fault, ids=lambda fault: fault.name)
def test_only_errors_of_extensions_name_one(fault):
    rule = fault.rule
    assert rule.error_code in (None, 0, 1, 2, 3, 4)
    if rule.error_code != 4:
        assert (rule.extension_id, rule.extension_error_code) == (0, 0)
    if fault in TOLERATED:
        assert rule.error_code is None


SCANNED = [fault for fault in (*HEARD, *GREETED) if fault < Fault.EXTENSION_REFUSED]


@each("fault", SCANNED, ids=lambda fault: fault.name)
def test_what_the_scanner_finds_it_finds_in_the_same_bytes(fault):
    """What needs a library or a registration is found by the layers above; everything else is in the row."""
    row, _ = only({**HEARD, **GREETED}[fault])
    above = {Fault.ERROR_NOT_UTF8, Fault.SCHEME_UNKNOWN, Fault.GZIP_INVALID, Fault.INFLATED_OVER_LIMIT, Fault.TYPE_UNREGISTERED}
    assert row[FAULT] == (0 if fault in above else fault)


def test_faults_are_values():
    assert msgspec.json.encode(Fault.SIZE_TOO_SMALL) == b"1"
    assert RequestResponse(True, 1) == RequestResponse(True, 1)
