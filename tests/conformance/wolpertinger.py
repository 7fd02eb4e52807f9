"""One vector of wolpertinger.json: texts through layer 1, in both forms and cut everywhere; documents through a session."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from tests.conformance.reading import LABELS, Unmapped, keys, number, octets, same
from tests.conformance.wolpertinger_auth import SOME_KEYS, check_encoding, run_authentication
from tests.conformance.wolpertinger_values import is_value, types_of
from tests.protocols.wolpertinger import schemas

from wirelake.protocols.kernel import LENGTH, compiled
from wirelake.protocols.wolpertinger.events import CallReceived, WasReset
from wirelake.protocols.wolpertinger.layer1.endpoint import Confirmed, Delivered, Layer1, Undelivered
from wirelake.protocols.wolpertinger.layer1.lines import measure
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, error_name
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.messages import Envelope, Result
from wirelake.protocols.wolpertinger.options import Method, Options
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, FAULT, PAYLOAD_LENGTH, ROW_COLUMNS, scan
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.protocols.wolpertinger.wire import Keys, buffer, decode, encode, opened, sealed

GENERATED = re.compile(r"<generate: ([0-9]+) zero bytes, base64 ([0-9]+) chars, split at ([0-9]+)>")
ZEROS = re.compile(r"<([0-9]+) zero bytes>")
COMPONENTS = {"Sample": {"Echo": Method(("string",), trust=0), "Secret": Method((), trust=3)}}
"""What the receiver of layer 2's vectors hosts."""


def run(vector: Any) -> None:
    """Hold one vector."""
    if not isinstance(vector, dict) or vector.get("expect") not in ("ok", "reject", "pending"):
        raise Unmapped(f"expect neither ok nor reject nor pending: {vector!r}")
    if vector["expect"] == "pending" and vector.get("layer") != 1:
        raise Unmapped("only texts can be pending")
    match vector.get("layer"):
        case 1:
            run_layer_1(vector)
        case 2:
            run_layer_2(vector)
        case "auth":
            run_authentication(vector)
        case other:
            raise Unmapped(f"layer {other!r}")


# Layer 1.


def run_layer_1(vector: dict[str, Any]) -> None:
    required = {"layer", "wire", "keys", "fields", "delivered_hex", "replies", "expect", "result_code"}
    keys("vector", vector, required, LABELS | {"byte_exact_encoding", "confirmations", "pending"})
    agreed = keys_of(vector["keys"])
    texts = [text for one in vector["wire"] for text in texts_of(one, vector)]
    delivered = [payload_of(one) for one in vector["delivered_hex"]]
    confirmations = vector.get("confirmations", [])
    check_codes(vector, delivered)
    for transport in (as_texts, as_lines):
        link, outcomes, replies = transport(texts, agreed, [message_id for message_id, _ in confirmations])
        assert [one.payload for one in outcomes if isinstance(one, Delivered)] == delivered
        assert replies == [reply.encode() for reply in vector["replies"]]
        check_pending(link, vector)
        heard = [one for one in outcomes if isinstance(one, Confirmed | Undelivered)]
        assert [(one.message_id, getattr(one, "code", 0)) for one in heard] == [
            (number, code if code <= 5 else 2) for number, code in confirmations
        ]
    for text in texts:
        check_forms(text)
    check_fields(texts, vector["fields"])
    if "confirmations" in vector:
        message = [decode(text) for text in texts]
        assert [[one.message_id, one.code] for one in message if isinstance(one, Result)] == confirmations
    if vector["expect"] == "ok" and len(texts) == 1 and delivered:
        check_encoding(texts[0], delivered[0], agreed, vector.get("byte_exact_encoding"))
    elif vector.get("byte_exact_encoding"):
        raise Unmapped("byte_exact_encoding of no whole message")


def keys_of(given: Any) -> Keys | None:
    keys("keys", given, set(), {"aes_key", "aes_iv"})
    if not given:
        return None
    return Keys(octets("aes_key", given["aes_key"]), octets("aes_iv", given["aes_iv"]))


def texts_of(one: Any, vector: dict[str, Any]) -> list[bytes]:
    """A text; or those that a vector describes because they are long."""
    if not isinstance(one, str):
        raise Unmapped(f"wire {one!r}")
    found = GENERATED.fullmatch(one)
    if found is None:
        return [one.encode()]
    size, characters, cut = map(int, found.groups())
    text = base64.b64encode(bytes(size))
    assert len(text) == characters
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
    message_id = int(vector["replies"][0].rpartition("message_id:")[2].rstrip(";"))
    return [encode(Envelope(message_id, piece, fragment_index=index, fragment_count=len(pieces))) for index, piece in enumerate(pieces)]


def payload_of(one: Any) -> bytes:
    found = ZEROS.fullmatch(one) if isinstance(one, str) else None
    return octets("delivered_hex", one) if found is None else bytes(int(found[1]))


def check_codes(vector: dict[str, Any], delivered: list[bytes]) -> None:
    """What a vector says twice, it says alike."""
    codes = {int(reply.removeprefix("result:").partition(";")[0]) for reply in vector["replies"]}
    assert codes == ({vector["result_code"]} if vector["result_code"] is not None else set())
    assert bool(delivered) <= (vector["expect"] == "ok")
    assert vector["expect"] == "ok" or vector["result_code"] != 0


def check_pending(link: Layer1, vector: dict[str, Any]) -> None:
    """WOLP-9: messages that wait for pieces: whether there are any, how many, or their ids."""
    waiting = [message_id for message_id, one in link.assembly.sets.items() if not one.refused]
    claims = [vector["pending"]] if "pending" in vector else []
    if "pending" in vector["fields"]:
        claims.append(vector["fields"]["pending"])
    if vector["expect"] == "pending":
        assert waiting
        claims.append(True)
    for claim in claims:
        if not isinstance(claim, bool | int | str | list):
            raise Unmapped(f"pending {claim!r}")
        assert same(waiting if isinstance(claim, list) else bool(waiting) if isinstance(claim, bool) else len(waiting), claim)


def link_with(agreed: Keys | None, sent: list[int]) -> Layer1:
    """A link whose messages with these ids wait for results."""
    link = Layer1(Options(), agreed)
    for message_id in sent:
        link.unconfirmed.last_id = message_id - 1
        assert link.send(b"", 0.0) == message_id
    link.messages()
    return link


def as_texts(texts: list[bytes], agreed: Keys | None, sent: list[int]) -> tuple[Layer1, list[Any], list[bytes]]:
    link = link_with(agreed, sent)
    for text in texts:
        link.receive(text, measure(text, 0, len(text), DEFAULT_LIMITS), 0.0)
    return finished(link)


def as_lines(texts: list[bytes], agreed: Keys | None, sent: list[int]) -> tuple[Layer1, list[Any], list[bytes]]:
    """WOLP-11: a stream of lines, cut anywhere; a line feed inside a text is another blank there."""
    stream = b"".join(text.replace(b"\n", b" ") + b"\n" for text in texts)
    for pieces in cuts(stream):
        link, lines = link_with(agreed, sent), buffer()
        for piece in pieces:
            for whole, rows, _ in lines.feed(piece):
                for row in rows:
                    link.receive(whole, row, 0.0)
        assert lines.rest == b""
    return finished(link)


def finished(link: Layer1) -> tuple[Layer1, list[Any], list[bytes]]:
    return link, link.outcomes(), link.messages()


def cuts(data: bytes) -> Iterable[list[bytes]]:
    yield [data]
    if len(data) < 1000:
        yield [data[at : at + 1] for at in range(len(data))]
    dice = random.Random(data)
    for _ in range(4):
        places = sorted(dice.randrange(len(data) + 1) for _ in range(4))
        yield [data[one:other] for one, other in zip([0, *places], [*places, len(data)], strict=True)]


def check_forms(text: bytes) -> None:
    """Plain, compiled and measured, a text has the same row; between neighbours in a stream, too."""
    row = measure(text, 0, len(text), DEFAULT_LIMITS)
    plain = [0] * ROW_COLUMNS
    if len(text) < 1000:
        assert scan(text, 0, len(text), plain, [], DEFAULT_LIMITS.for_text()) == (1, 0, len(text), 0)
        assert plain == row
    rows = np.zeros(ROW_COLUMNS, np.int64)
    compiled(scan)(np.frombuffer(text, np.uint8), 0, len(text), rows, np.zeros(1, np.int64), DEFAULT_LIMITS.for_text())
    assert rows.tolist() == row
    line, neighbour = text.replace(b"\n", b" ") + b"\n", b"message_id:7;\n"
    rows = np.zeros(4 * ROW_COLUMNS, np.int64)
    stream = np.frombuffer(neighbour + line + neighbour, np.uint8)
    found = compiled(scan)(stream, 0, len(stream), rows, np.zeros(1, np.int64), DEFAULT_LIMITS.for_scan())
    assert found == (3, 0, len(stream), 0)
    between = rows.reshape(4, ROW_COLUMNS)[1].tolist()
    assert between[LENGTH] == len(line)
    assert (between[FAULT], between[PAYLOAD_LENGTH]) == (row[FAULT], row[PAYLOAD_LENGTH])


def check_fields(texts: list[bytes], fields: Any) -> None:
    keys("fields", fields, set(), {"message_id", "gzip", "encryption", "fragment_index", "fragment_count", "chars", "pending"})
    fields = {name: value for name, value in fields.items() if name != "pending"}
    if not fields:
        return
    message = [decode(text) for text in texts]
    assert all(isinstance(one, Envelope) for one in message)
    for name, value in fields.items():
        if name == "chars":
            assert same([len(one.payload) for one in message], value)
        elif name == "encryption":
            assert [one.encryption.name.lower() for one in message] == [value] * len(message)
        else:
            assert same([getattr(one, name) for one in message], [value] * len(message)), name


# Layer 2.


def run_layer_2(vector: dict[str, Any]) -> None:
    keys("vector", vector, {"layer", "xml", "fields", "expect", "error_code", "xsd_valid"}, LABELS | {"context"})
    if not isinstance(vector["xml"], str):
        raise Unmapped(f"xml {vector['xml']!r}")
    document = vector["xml"].encode()
    if "<!DOCTYPE" not in vector["xml"]:  # WOLP-17: it does not come to that
        assert schemas.is_valid(document) is vector["xsd_valid"]
    message = documents.decode(document)
    check_context(message, vector.get("context", {}))
    codes, events = heard(document, vector.get("context", {}))
    if vector["expect"] == "reject":
        if vector["fields"]:
            raise Unmapped("fields of a document that is refused")
        assert codes == ([] if vector["error_code"] is None else [vector["error_code"]])
        assert not any(isinstance(event, CallReceived) for event in events)
        assert any(isinstance(event, WasReset) for event in events) == (vector["error_code"] == 202)
        return
    assert vector["error_code"] is None
    assert not isinstance(message, Rejected), message
    check_document(message, vector["fields"])
    if not isinstance(message, Error) or error_name(message.code) is not None:  # WOLP-15: other codes are heard, not sent
        assert documents.encode(documents.decode(documents.encode(message))) == documents.encode(message), "a NaN is not equal to itself"
    if not isinstance(message, Call):
        assert codes == [], "an answer to what is never answered"


def check_context(message: Any, context: Any) -> None:
    """The trust that is required is that of the method called."""
    keys("context", context, set(), {"trust_level", "required", "encrypted"})
    number("trust_level", context.get("trust_level", 4))
    if not isinstance(context.get("encrypted", True), bool):
        raise Unmapped(f"encrypted {context['encrypted']!r}")
    if "required" in context:
        assert isinstance(message, Call)
        assert message.component.lower() == "sample"  # WOLP-20
        assert same(COMPONENTS["Sample"][message.method].trust, context["required"])


def heard(document: bytes, context: Any) -> tuple[list[int], list[Any]]:
    """The codes a session answers with, all of it confirmed before; and what it tells."""
    trust = context.get("trust_level", 4)
    agreed = SOME_KEYS if trust >= 2 else None
    encrypted = context.get("encrypted", agreed is not None)
    session = Session(Speaker.SERVER, Options(components=COMPONENTS), draw=bytes, trust_state=TrustState(trust, trust, agreed))
    what = sealed(document, agreed if encrypted else None)
    session.receive_text(encode(Envelope(1, what.text, what.gzip, what.encryption)), 0.0)
    result, *answers = session.messages()
    assert result == b"result:0;message_id:1;"  # WOLP-12
    codes = []
    for text in answers:
        answer = decode(text)
        assert isinstance(answer, Envelope)
        error = documents.decode(opened(answer.payload, answer.gzip, answer.encryption, agreed))
        assert isinstance(error, Error)
        assert bool(answer.encryption) == (agreed is not None and error.code != 202)
        codes.append(error.code)
    return codes, session.events()


def check_document(message: Call | Response | Error, fields: Any) -> None:
    known = {"type", "types", "component", "method", "call_id", "parameters", "value", "code", "name"}
    keys("fields", fields, set(), known)
    for name, expected in fields.items():
        match name:
            case "type":
                assert same(type(message).__struct_config__.tag, expected)
            case "types":
                assert same(types_of(message), expected)
            case "parameters":
                assert isinstance(message, Call)
                assert len(message.parameters) == len(expected)
                assert all(map(is_value, message.parameters, expected)), expected
            case "value":
                assert isinstance(message, Response)
                assert expected is None if message.value is None else is_value(message.value, expected), expected
            case "name":
                assert same(error_name(message.code), expected)
            case _:
                found = getattr(message, name)
                assert same(int(found) if name == "code" else found, expected), name
