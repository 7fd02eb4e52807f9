"""Conversations of wolpertinger as one side records them: well-behaved ones, and one for every rule that history can show."""

from __future__ import annotations

from tests.protocols.wolpertinger.pair import KEYS, text_of

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.wolpertinger.layer1.fragments import split
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.values import Int32, UInt64
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.wire import Keys, encode, sealed

START_NS = 1_700_000_000 * 10**9
FIRST_PORT = 31_000
OTHER_KEYS = Keys(bytes(32), bytes(16))
BLOB = "RUNLNUIAAAA="
IV = "A" * 22 + "=="
LATER = 100.0


def call_id(number: int) -> str:
    return f"f5afec97-5839-4666-b8d3-{number:012x}"


def line(said: Call | Response | Error | bytes, number: int, keys: Keys | None = None, *, compress: bool = False) -> bytes:
    """One message in one line."""
    return text_of(said if isinstance(said, bytes) else documents.encode(said), number, keys, compress=compress) + b"\n"


def pieces(said: Call | Response | Error, number: int, size: int, keys: Keys | None = None, *, compress: bool = False) -> list[bytes]:
    """One message in lines of so many characters of payload."""
    what = sealed(documents.encode(said), keys, compress=compress)
    parts = split(what.text, size)
    return [encode(Envelope(number, part, what.gzip, what.encryption, at, len(parts))) + b"\n" for at, part in enumerate(parts)]


def result(number: int, code: int = 0) -> bytes:
    return b"result:%d;message_id:%d;\n" % (code, number)


def asked(number: int, method: str = "Echo", *parameters, component: str = "Sample") -> Call:
    return Call(component, method, call_id(number), parameters)


def answered(number: int, value=None) -> Response:
    return Response("Sample", call_id(number), value)


def trusted(number: int, method: str, *parameters) -> Call:
    return Call("Authentication", method, call_id(number), parameters)


LONG = asked(1, "Echo", "tea " * 100)
IN_PIECES = pieces(LONG, 1, 100)
SEALED = pieces(LONG, 3, 200, KEYS, compress=True)
KEY_EXCHANGE = [
    (0.1, "client", line(Call("Authentication", "KeyExchange", call_id(80), (BLOB, IV)), 80)),
    (0.2, "server", result(80) + line(Response("Authentication", call_id(80), BLOB), 80)),
    (0.3, "client", result(80)),
]
CLOSED = [(LATER, "closed", "eof")]
WHOLE = IN_PIECES[::-1]

CASES = {
    "plain": [
        (1, "client", line(asked(1, "Add", Int32(-3), UInt64(2**64 - 1), 'a "b" & <c>', True, 1.5), 1)),
        (1.1, "server", result(1)),
        (1.25, "server", line(answered(1, Int32(7)), 1)),
        (1.3, "client", result(1)),
        *CLOSED,
    ],
    "void": [(1, "client", line(asked(1, "Void"), 1)), (1.5, "server", result(1)), *CLOSED],
    "failed": [
        (1, "server", line(asked(1, "Nothing"), 1)),
        (1.1, "client", result(1) + line(Error("Sample", 303, call_id(1)), 1)),
        (1.2, "server", result(1)),
        *CLOSED,
    ],
    "refused": [(1, "client", line(asked(1), 1)), (1.1, "server", result(1, 4)), *CLOSED],
    "sent again": [
        (1, "client", line(asked(1), 1)),
        (21, "client", line(asked(1), 1)),
        (22, "server", result(1) + line(answered(1), 1)),
        (23, "client", result(1)),
        *CLOSED,
    ],
    "pieces": [
        *((1 + at / 10, "client", piece) for at, piece in enumerate(WHOLE)),
        (3, "server", result(1) + line(answered(1), 1)),
        (4, "client", result(1)),
        *CLOSED,
    ],
    "pieces missing": [*((1 + at / 10, "client", piece) for at, piece in enumerate(IN_PIECES[1:])), (9999, "closed", "eof")],
    "pieces differ": [
        (1, "client", IN_PIECES[0] + IN_PIECES[0].replace(b";P", b";Q").replace(b";R", b";S")),
        (2, "server", result(1, 3)),
        (3, "client", IN_PIECES[1]),
        *CLOSED,
    ],
    "encrypted": [
        *KEY_EXCHANGE,
        (1, "client", line(asked(1, "Secret", "x"), 1, KEYS)),
        (2, "server", result(1) + line(answered(1, "y"), 1, KEYS)),
        (3, "client", result(1) + b"".join(SEALED)),
        (4, "server", result(3)),
        (5, "client", line(Call("Core", "SendResetNotice", call_id(9)), 4, KEYS)),
        (6, "server", result(4)),
        *CLOSED,
    ],
    "closed book": [*KEY_EXCHANGE, (1, "client", line(asked(1), 1, OTHER_KEYS)), (2, "server", result(1)), *CLOSED],
    "tampered": [
        *KEY_EXCHANGE,
        (1, "client", text_of(documents.encode(asked(1, "Echo", "x" * 64)), 1, KEYS)[:-24] + b"A" * 22 + b"==\n"),
        (2, "server", result(1, 4)),
        *CLOSED,
    ],
    "encrypted too soon": [(1, "client", line(asked(1), 1, KEYS)), (2, "server", result(1, 4)), *CLOSED],
    "clear when encrypted": [
        *KEY_EXCHANGE,
        (1, "client", line(asked(1), 1)),
        (2, "server", result(1) + line(Error("Authentication", 202), 2)),
        (3, "client", result(2)),
        *CLOSED,
    ],
    "heartbeat": [
        (1, "client", line(asked(1), 1)),
        (1.1, "server", result(1)),
        (25, "server", line(Call("Core", "Heartbeat", call_id(2)), 1)),
        (26, "client", result(1)),
        (27, "server", line(answered(1), 2)),
        (28, "client", result(2)),
        *CLOSED,
    ],
    "odd": [
        (1, "client", line(asked(1), 1).replace(b"message_id", b"Message_ID").replace(b"PF", b"P F")),
        (2, "server", b"result:77;message_id:1;x\n"),
        *CLOSED,
    ],
    "broken texts": [
        (1, "client", b"message_id:1;colour:red;\n" + b"nonsense\n" + b"\n"),
        (2, "server", result(1, 5)),
        (3, "client", b"message_id:2;!!!!\nmessage_id:3;gzip:9;AAAA\n"),
        (4, "server", result(2, 5) + result(3, 5)),
        *CLOSED,
    ],
    "broken documents": [
        (1, "client", line(b"<RemoteMethodCall>", 1) + line(b"<Nothing/>", 2)),
        (2, "server", result(1) + result(2) + line(Error("", 301), 1) + line(Error("", 302), 2)),
        (3, "client", result(1) + result(2)),
        *CLOSED,
    ],
    "unconfirmed": [(1, "client", line(asked(1), 1)), *CLOSED],
    "unmatched": [(1, "server", result(7) + line(answered(5), 1)), (2, "client", result(1)), *CLOSED],
    "answer to an error": [
        (1, "client", line(asked(1), 1)),
        (2, "server", result(1) + line(Error("Sample", 100, call_id(1)), 1)),
        (3, "client", result(1) + line(Error("Sample", 100, call_id(1)), 2)),
        (4, "server", result(2)),
        *CLOSED,
    ],
    "life goes on": [
        (1, "server", line(Error("Sample", 500), 1)),
        (2, "client", result(1) + line(asked(1), 1)),
        (3, "server", result(1) + line(answered(1), 2)),
        (4, "client", result(2)),
        *CLOSED,
    ],
    "cut": [(1, "client", line(asked(1, "Void"), 1)[:20]), (2, "closed", "eof")],
    "refused calls": [
        *((1, "client", line(asked(number), number)) for number in (1, 2, 3, 4)),
        (2, "server", b"".join(map(result, (1, 2, 3, 4)))),
        *((3, "server", line(Error("", code, call_id(number)), number)) for number, code in enumerate((201, 303, 304, 305), 1)),
        (4, "client", b"".join(map(result, (1, 2, 3, 4)))),
        *CLOSED,
    ],
    "unfit key": [
        (1, "client", line(trusted(1, "KeyExchange", BLOB, "AAAA"), 1) + line(trusted(2, "KeyExchange", "AAAA", IV), 2)),
        (2, "server", result(1) + result(2) + line(Error("Authentication", 305, call_id(2)), 1)),
        (3, "client", result(1)),
        *CLOSED,
    ],
    "keys crossed": [
        (1, "client", line(trusted(1, "KeyExchange", BLOB, IV), 1)),
        (1.1, "server", line(trusted(2, "KeyExchange", BLOB, IV), 1)),
        (2, "server", result(1) + line(Error("Authentication", 300, call_id(1)), 2)),
        (2.1, "client", result(1) + result(2) + line(Error("Authentication", 300, call_id(2)), 2)),
        (3, "server", result(2)),
        *CLOSED,
    ],
    "keys unasked": [(1, "server", line(Response("Authentication", call_id(1), BLOB), 1)), (2, "client", result(1)), *CLOSED],
    "proof": [
        (1, "client", line(trusted(1, "ClusterAuthVerify", "AAAA"), 1)),
        (2, "server", result(1) + line(Response("Authentication", call_id(1), False), 1)),
        (3, "client", result(1)),
        *CLOSED,
    ],
    "misfit": [
        (1, "client", line(trusted(1, "EstablishConnection"), 1) + line(trusted(2, "EstablishConnection"), 2)),
        (2, "server", result(1) + result(2)),
        (3, "server", line(Response("Authentication", call_id(1), True), 1) + line(Response("Authentication", call_id(2), Int32(7)), 2)),
        (4, "client", result(1) + result(2)),
        *CLOSED,
    ],
    "no answer": [(1, "client", line(trusted(1, "EstablishConnection"), 1)), (2, "server", result(1)), *CLOSED],
    "closed before the answer": [
        (1, "client", line(trusted(1, "EstablishConnection"), 1)),
        (2, "server", result(1)),
        (31, "closed", "eof"),
    ],
    "an answer without a name": [
        (1, "client", line(trusted(1, "EstablishConnection"), 1)),
        (2, "server", result(1) + line(Error("", 301), 1)),
        (3, "client", result(1)),
        *CLOSED,
    ],
    "id in flight": [
        (1, "client", line(asked(1), 1) + line(asked(1), 2)),
        (2, "server", result(1) + result(2) + line(Error("", 303, call_id(1)), 1)),
        (3, "client", result(1)),
        *CLOSED,
    ],
    "message id used again": [
        (1, "client", line(asked(1), 1)),
        (2, "server", result(1) + line(answered(1), 1)),
        (3, "client", result(1) + line(asked(2), 1)),
        (4, "server", result(1) + line(answered(2), 2)),
        (5, "client", result(2)),
        *CLOSED,
    ],
    "call id used again": [
        (1, "client", line(asked(1), 1)),
        (2, "server", result(1) + line(answered(1), 1)),
        (3, "client", result(1) + line(asked(1), 2)),
        (4, "server", result(2) + line(answered(1), 2)),
        (5, "client", result(2)),
        *CLOSED,
    ],
    "counters begin anew": [
        (1, "client", line(asked(1), 1)),
        (2, "server", result(1) + line(answered(1), 1)),
        (3, "client", result(1) + line(trusted(2, "EstablishConnection"), 1)),
        (4, "server", result(1) + line(Response("Authentication", call_id(2), True), 1)),
        (5, "client", result(1) + line(asked(3), 2)),
        (6, "server", result(2) + line(answered(3), 2)),
        (7, "client", result(2) + line(Call("Core", "SendResetNotice", call_id(4)), 3)),
        (8, "server", result(3)),
        (9, "client", line(asked(5), 2)),
        (10, "server", result(2) + line(answered(5), 2)),
        (11, "client", result(2)),
        *CLOSED,
    ],
    "a counter overflows": [
        (1, "client", line(asked(1, "Void"), 0) + line(asked(2, "Void"), 2**32 - 1)),
        (2, "server", result(0) + result(2**32 - 1)),
        (3, "client", line(asked(3, "Void"), 0)),
        (4, "server", result(0)),
        *CLOSED,
    ],
    "alias": [
        *KEY_EXCHANGE,
        (1, "client", line(asked(1, "Secret", "x"), 1, KEYS).replace(b"encryption:", b"secure:")),
        (2, "server", result(1)),
        *CLOSED,
    ],
    "bomb": [(1, "client", line(b"<" + b" " * (65 << 20), 1, compress=True)), (2, "server", result(1, 5)), *CLOSED],
}
"""Name -> (seconds, who, what)."""

BROKEN = {
    "failed": ["METHOD_UNKNOWN"],
    "sent again": ["MESSAGE_REPEATED"],
    "pieces missing": ["FRAGMENTS_TIMED_OUT"],
    "pieces differ": ["FRAGMENT_CONFLICT", "FRAGMENT_LATE"],
    "tampered": ["ENCRYPTION_FAILED"],
    "encrypted too soon": ["ENCRYPTED_TOO_SOON"],
    "clear when encrypted": ["CLEAR_WHEN_ENCRYPTED"],
    "odd": ["KEY_NOT_LOWER", "PAYLOAD_BLANKS", "RESULT_CODE_UNKNOWN", "RESULT_PAYLOAD"],
    "broken texts": ["BASE64_INVALID", "GZIP_INVALID", "KEY_UNKNOWN", "METADATA_MISSING", "METADATA_MISSING"],
    "broken documents": ["ROOT_UNKNOWN", "XML_INVALID"],
    "unconfirmed": ["NOT_CONFIRMED"],
    "unmatched": ["RESPONSE_UNMATCHED", "RESULT_UNMATCHED"],
    "answer to an error": ["RESPONSE_UNMATCHED"],
    "cut": ["CLOSED_INSIDE_MESSAGE", "MESSAGE_CUT"],
    "bomb": ["INFLATED_OVER_LIMIT"],
    "refused calls": ["COMPONENT_UNKNOWN", "METHOD_UNKNOWN", "PARAMETERS_WRONG", "TRUST_TOO_LOW"],
    "unfit key": ["KEY_INVALID", "KEY_INVALID"],
    "keys crossed": ["KEYS_CROSSED", "KEYS_CROSSED"],
    "keys unasked": ["KEYS_UNASKED", "RESPONSE_UNMATCHED"],
    "proof": ["PROOF_WRONG"],
    "misfit": ["ANSWER_WRONG"],
    "no answer": ["NO_ANSWER"],
    "id in flight": ["CALL_ID_IN_FLIGHT"],
    "message id used again": ["ID_REUSED"],
    "call id used again": ["CALL_ID_REUSED"],
    "alias": ["ALIAS_USED"],
}
"""Name -> the rules that are broken in it; the others break none."""


def record(path):
    """All of them, one after the other, each from a client port of its own."""
    now = [START_NS]
    numbers = iter(range(1, 1000))
    with Recorder(path, protocol="wolpertinger", clock=lambda: now[0], new_id=lambda: b"wolp" + next(numbers).to_bytes(4)) as recorder:
        for port, steps in enumerate(CASES.values(), FIRST_PORT):
            start = now[0]
            connection = recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", 4711))
            for seconds, who, what in steps:
                now[0] = start + int(seconds * 1e9)
                if who == "client":
                    connection.sent(what)
                elif who == "server":
                    connection.received(what)
                else:
                    connection.closed(what)
            now[0] += 10**9
    return path
