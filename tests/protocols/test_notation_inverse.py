"""`decode` and `encode` are inverse: bytes -> object -> JSON -> object -> the same bytes, for vectors and for generated messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.cases import examples
from tests.conformance import harness
from tests.protocols.emp import speech as emp_speech
from tests.protocols.yamp import speech as yamp_speech

from wirelake.protocols.emp import messages as emp
from wirelake.protocols.emp import wire as emp_wire
from wirelake.protocols.emp.scanner import ODDITIES as EMP_ODDITIES
from wirelake.protocols.event_mesh import messages as mesh
from wirelake.protocols.event_mesh.packet import values as mesh_values
from wirelake.protocols.kernel import FAULT, LENGTH, START
from wirelake.protocols.yamp import messages as yamp
from wirelake.protocols.yamp.scanner import ODDITIES as YAMP_ODDITIES

Scanned = tuple[bytes, list[int], list[int]]
"""Bytes, the row of one message in them, and its parts."""


class Case(NamedTuple):
    """A protocol, and how its messages are made and compared. `parse` and `describe` are those of its `notation`."""

    name: str
    vectors: str
    """The file of vectors whose `hex` is bytes of this protocol."""
    generated: st.SearchStrategy[Any]
    """Messages that `encode` writes and the scanner accepts."""
    is_exact: Callable[[list[int]], bool]
    """Whether a row has nothing that a message cannot express, such as unused bits that are set."""
    readable: tuple[str, ...] = ()
    """The fields that people write instead of `raw`."""
    raw: str = ""
    """The field that holds bytes, and that `readable` can replace."""
    meaning: Callable[[Any], Any] = lambda message: message
    """What a message must have in common with the one that is parsed from its readable fields."""
    rows: Callable[[bytes], Iterator[Scanned]] | None = None
    """How bytes are scanned, if it is not with the protocol's `buffer`."""

    def module(self, name: str) -> Any:
        return import_module(f"wirelake.protocols.{self.name}.{name}")

    def scanned(self, data: bytes) -> Iterator[Scanned]:
        if self.rows is not None:
            yield from self.rows(data)
            return
        for block, rows, parts in self.module("wire").buffer().feed(data):
            for row in rows:
                yield block, row, parts


def packed(message: Any) -> Any:
    """An EMP message whose body is what its compression blocks say; other schemes than 0 and 1 cannot be read."""
    if not isinstance(message, emp.Data | emp.Application):
        return message
    body, blocks = message.body, []
    for block in message.extensions:
        if isinstance(block, emp.Compression):
            block = emp.Compression(block.scheme % 2)  # noqa: PLW2901 - the block as it can be read
            body = emp_wire.pack(body) if block.scheme else body
        blocks.append(block)
    return msgspec.structs.replace(message, body=body, extensions=tuple(blocks))


def emp_meaning(message: Any) -> Any:
    """With the body inflated: gzip has many encodings."""
    return msgspec.structs.replace(message, body=emp_wire.plain(message)) if isinstance(message, emp.Data | emp.Application) else message


def yamp_meaning(message: Any) -> Any:
    """With the body parsed: JSON has many spellings."""
    return {**msgspec.structs.asdict(message), "body": msgspec.json.decode(message.body)}


def mesh_meaning(message: Any) -> Any:
    """With the pieces of each value joined: their order on the wire may differ."""
    return msgspec.structs.replace(message, fields=tuple(mesh_values.joined(message.fields)))


json_bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | yamp_speech.texts,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(yamp_speech.texts, inside, max_size=3),
    max_leaves=5,
).map(msgspec.json.encode)
yamp_messages = st.one_of(
    yamp_speech.messages,
    st.builds(yamp.Event, yamp_speech.uids, yamp_speech.texts, json_bodies),
    st.builds(yamp.Request, yamp_speech.uids, yamp_speech.texts, st.booleans(), json_bodies),
    st.builds(yamp.Response, yamp_speech.uids, yamp_speech.texts, yamp_speech.uids, st.integers(0, 3), json_bodies),
)

mesh_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
mesh_fields = st.lists(
    st.one_of(
        mesh_texts.map(lambda text: mesh_values.split(1, text.encode())),
        st.integers(-(1 << 31), (1 << 31) - 1).map(lambda number: (mesh_values.integer(number),)),
        st.binary(min_size=4, max_size=4).map(lambda bits: (mesh.Field(3, bits),)),
        st.binary(max_size=520).map(lambda data: mesh_values.split(4, data)),
        st.dictionaries(mesh_texts, st.none() | st.integers(-9, 9) | mesh_texts, max_size=2).map(
            lambda value: mesh_values.split(5, mesh_values.json(value).value)
        ),
        st.sampled_from(((0x14, 16), (0x15, 8), (0x16, 12), (0x17, 16), (0x18, 4))).flatmap(
            lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(lambda data: (mesh.Field(kind[0], data),))
        ),
        st.binary(max_size=300).map(lambda data: mesh_values.split(0x7F, data)),
    ),
    max_size=5,
    unique_by=lambda pieces: pieces[0].type,
).map(lambda values: tuple(piece for pieces in values for piece in pieces))
mesh_required = {
    mesh.Hello: ((0x04, b"capabilities"), (0x14, bytes(range(16)))),
    mesh.Heartbeat: ((0x14, bytes(range(16))), (0x15, b"\x00\x00\x00\x00\x65\x53\xf1\x00")),
    mesh.Event: ((0x01, b"temp.changed"),),
}
"""EMM-20: the fields without which a message is dropped."""


def with_required(message: Any) -> Any:
    """A message of Event Mesh that has the fields it must have, each type once."""
    required = tuple(mesh.Field(*field) for field in mesh_required.get(type(message), ()))
    kinds = {field.type for field in required}
    return msgspec.structs.replace(message, fields=required + tuple(field for field in message.fields if field.type not in kinds))


mesh_header = (st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1), mesh_fields, st.integers(0, 1))
mesh_messages = st.one_of(
    *(st.builds(kind, *mesh_header) for kind in mesh_required),
    *(st.builds(kind, *mesh_header).map(with_required) for kind in mesh_required),
    st.builds(mesh.Other, st.integers(4, 255), *mesh_header),
)

CASES = (
    Case("emp", "emp.json", emp_speech.messages.map(packed), lambda row: not row[EMP_ODDITIES], ("plain_body",), "body", emp_meaning),
    Case("yamp", "yamp.json", yamp_messages, lambda row: not row[YAMP_ODDITIES], ("json",), "body", yamp_meaning),
    Case("event_mesh", "event-mesh.json", mesh_messages, lambda row: not row[FAULT], ("values",), "fields", mesh_meaning),
)
"""Protocols whose objects `wirelake encode` takes back."""

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def through_json(described: dict[str, Any]) -> dict[str, Any]:
    """An object as `decode` prints it and `encode` reads it."""
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described), type=dict)
    return read


def inverse(case: Case, scanned: Scanned) -> dict[str, Any] | None:
    """Hold one row to its object; returns the object, or None of bytes that are no message."""
    block, row, parts = scanned
    described = through_json(case.module("notation").describe(block, row, parts))
    if "fault" in described:
        return None
    parse, encode = case.module("notation").parse, case.module("wire").encode
    message = case.module("wire").message(block, row, parts)
    assert parse(described) == message
    if case.is_exact(row):
        assert encode(parse(described)) == block[row[START] : row[START] + row[LENGTH]]
    if any(name in described for name in case.readable):
        again = parse({name: value for name, value in described.items() if name != case.raw})
        assert case.meaning(again) == case.meaning(message)
    return described


def frames_of(vectors: Sequence[Any]) -> Iterator[bytes]:
    for vector in vectors:
        if isinstance(vector, dict) and isinstance(vector.get("hex"), str):
            yield bytes.fromhex(vector["hex"])


@cases
def test_every_message_of_the_vectors_comes_back(case):
    paths = [where / case.vectors for where in (harness.directory(), harness.OWN) if (where / case.vectors).exists()]
    kinds = set()
    for path in paths:
        for data in frames_of(harness.vectors(path)):
            for scanned in case.scanned(data):
                if described := inverse(case, scanned):
                    kinds.add(described["type"])
    assert len(kinds) > 2, "the vectors were not read"


@pytest.mark.slow
@cases
@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_generated_message_comes_back(case, data):
    message = data.draw(case.generated)
    frame = case.module("wire").encode(message)
    (scanned,) = case.scanned(frame)
    described = inverse(case, scanned)
    if described is None:
        assert scanned[1][FAULT], "a message that can be read is described as a fault"
    else:
        assert case.module("wire").encode(case.module("notation").parse(described)) == frame
