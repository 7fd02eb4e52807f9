"""Both layers as columns: encrypted and fragmented messages are decoded if possible, with the JSON of notation."""

from __future__ import annotations

from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.lake.wolpertinger_sessions import OTHER_KEYS, answered, asked, line, pieces, result
from tests.protocols.wolpertinger.pair import KEYS
from tests.protocols.wolpertinger.xml_documents import VECTORS

from wirelake.errors import UsageError
from wirelake.protocols.kernel import compiled
from wirelake.protocols.wolpertinger import columns
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.documents import Rejected, decode
from wirelake.protocols.wolpertinger.layer2.notation import describe_document
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int32, Int64, UInt64
from wirelake.protocols.wolpertinger.messages import Encryption
from wirelake.protocols.wolpertinger.passive import PassiveDecoder
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, ROW_COLUMNS, scan
from wirelake.protocols.wolpertinger.trust.keyring import Keyring, log_line, read_log

TEN = [bytes((number,)) * 32 for number in range(10)]


def read(data: bytes, keyring: Keyring | None = None, ears: dict[int, PassiveDecoder] | None = None, seconds: float = 0.0):
    """The rows of lines, both kinds of columns together."""
    array = np.frombuffer(data, np.uint8)
    rows, parts = np.zeros(64 * ROW_COLUMNS, np.int64), np.zeros(1, np.int64)
    count, _, end, _ = compiled(scan)(array, 0, len(data), rows, parts, DEFAULT_LIMITS.for_scan())
    assert end == len(data)
    rows = rows[: count * ROW_COLUMNS].reshape(count, -1)
    rows = rows[columns.readable(rows)]
    nobody = np.zeros(len(rows), np.int64)
    ears = {} if ears is None else ears
    heard, _ = columns.passive(array, rows, nobody, nobody + seconds, ears, DEFAULT_LIMITS, keyring)
    made = columns.columns(array, rows, parts, DEFAULT_LIMITS, passive_results=heard)
    own = pa.table([made.own[field.name].cast(field.type) for field in columns.SCHEMA], schema=columns.SCHEMA).to_pylist()
    shared = [{name: column[index].as_py() for name, column in made.shared.items()} for index in range(len(rows))]
    return [{**both, **one} for both, one in zip(shared, own, strict=True)]


@pytest.mark.parametrize(
    "message",
    [
        asked(1, "Echo", 'a "b"\n€', "", Int32(-1), Int64(2**40), UInt64(2**64 - 1), True, False, 1.5, float("inf"), (Int32(1), ("x",))),
        asked(2, 'odd "name"', UUID(int=7), DateTime(10**17)),
        asked(3),
        answered(4, Int32(9)),
        answered(5),
        answered(6, ()),
        Error("Sample", 303, None),
        Error('"', 502, answered(1).call_id),
    ],
)
def test_json_is_what_notation_gives(message):
    (row,) = read(line(message, 1))
    assert row["fault"] is None
    assert row["body_json"] == msgspec.json.encode(describe_document(message)).decode()
    wanted = message.parameters if isinstance(message, Call) else None
    assert (row["parameters"] is None) == (wanted is None)
    if wanted is not None:
        inside = msgspec.json.decode(row["body_json"])["parameters"]
        assert [(one["type"], msgspec.json.decode(one["value"])) for one in row["parameters"]] == [(o["type"], o["value"]) for o in inside]
    assert (row["value"] is not None) == (isinstance(message, Response) and message.value is not None)


def test_every_document_of_the_vectors_is_a_row_or_a_fault():
    found = 0
    for vector in VECTORS:
        if "xml" in vector:
            found += 1
            parsed = decode(vector["xml"].encode())
            (row,) = read(line(vector["xml"].encode(), 1))
            if isinstance(parsed, Rejected):
                assert row["fault"] == parsed.fault.name
            else:
                assert row["body_json"] == msgspec.json.encode(describe_document(parsed)).decode()
    assert found > 20


def test_pieces_are_joined_across_blocks_in_any_order():
    message = asked(1, "Echo", "tea" * 200)
    texts = pieces(message, 1, 150)
    ears: dict[int, PassiveDecoder] = {}
    rows = [read(text, ears=ears)[0] for text in (*texts[1:], texts[0])]
    assert [row["root"] for row in rows] == [None] * (len(texts) - 1) + ["RemoteMethodCall"]
    assert [row["name"] for row in rows[:-1]] == ["fragment"] * (len(texts) - 1)
    assert ears[0].is_idle
    assert rows[-1]["parameters"][0]["value"] == msgspec.json.encode("tea" * 200).decode()


def test_pieces_that_come_too_late_join_nothing():
    texts = pieces(asked(1, "Echo", "tea" * 200), 1, 150)
    ears: dict[int, PassiveDecoder] = {}
    read(b"".join(texts[:-1]), ears=ears)
    assert ears[0].weight > 0
    (row,) = read(texts[-1], ears=ears, seconds=20.0 * len(texts))
    assert row["root"] is None


def test_pieces_that_were_let_go_are_pieces_still():
    texts = pieces(asked(1, "Echo", "tea" * 200), 1, 150)
    ears: dict[int, PassiveDecoder] = {}
    read(b"".join(texts[:-1]), ears=ears)
    ears[0].forget_pieces()
    (row,) = read(texts[-1], ears=ears)
    assert (row["root"], row["fault"]) == (None, None)


def test_fragments_that_differ_are_reported_once_and_the_rest_is_late():
    first, second, *others = pieces(asked(1, "Echo", "tea" * 200), 1, 150)
    rows = read(first + first.replace(b";P", b";Q") + second + b"".join(others))
    assert [row["fault"] for row in rows] == [None, "FRAGMENT_CONFLICT", *[None] * (len(others) + 1)]
    assert [row["oddities"] for row in rows] == [0, 0, *[32] * (len(others) + 1)]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("count", [0, 9])
def test_the_right_key_is_found_among_others(compress, count):
    others = [type(KEYS)(key, bytes(16)) for key in TEN[:count]]
    keyring = Keyring([*others, KEYS])
    data = line(asked(1, "Echo", "x" * 100), 1, KEYS, compress=compress) + line(asked(2), 2, KEYS, compress=compress)
    assert [(row["decrypted"], row["method"], row["name"]) for row in read(data, keyring)] == [(True, "Echo", "encrypted")] * 2
    closed = [(False, None, "encrypted", None)] * 2
    for nothing in (None, Keyring(), Keyring(others)):
        assert [(row["decrypted"], row["method"], row["name"], row["fault"]) for row in read(data, nothing)] == closed


def test_a_session_that_changes_its_key_is_read_on():
    data = line(asked(1), 1, KEYS) + line(asked(2), 2, OTHER_KEYS) + line(asked(3), 3, KEYS)
    assert [row["decrypted"] for row in read(data, Keyring([OTHER_KEYS, KEYS]))] == [True] * 3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"message_id:1;encryption:aes;AAAA\n", Fault.ENCRYPTION_FAILED),
        (b"message_id:1;encryption:aes;\n", Fault.ENCRYPTION_FAILED),
        (b"message_id:1;encryption:rot;" + b"A" * 22 + b"==\n", Fault.ENCRYPTION_FAILED),
        (b"message_id:1;encryption:aes;?\n", Fault.BASE64_INVALID),
        (b"message_id:1;encryption:aes;" + b"A" * 22 + b"==\n", None),
        (line(asked(1, "Echo", "x" * 99), 1, KEYS)[:-25] + b"A" * 24 + b"\n", Fault.ENCRYPTION_FAILED),
        (line(asked(1, "Echo", "x" * 99), 1, KEYS, compress=True).replace(b"gzip:1", b"gzip:2"), Fault.ENCRYPTION_FAILED),
    ],
)
def test_what_no_key_opens_is_a_fault_and_what_might_be_opened_is_none(text, fault):
    (row,) = read(text, Keyring([KEYS]))
    assert row["fault"] == (None if fault is None else fault.name)
    assert row["decrypted"] is False


def test_a_result_is_never_decrypted():
    (row,) = read(result(1))
    assert (row["decrypted"], row["encryption"], row["kind"]) == (None, None, "ack")


def test_a_key_log_is_lines():
    content = b"# made by a peer\n\n" + log_line(KEYS) + log_line(OTHER_KEYS) + log_line(KEYS)
    assert sorted(one.key for one in read_log(content)) == sorted([KEYS.key, OTHER_KEYS.key])
    assert "00" not in repr(read_log(content))
    text = line(asked(1), 1, KEYS).partition(b"aes;")[2].strip()
    assert read_log(content).open(text, None, Encryption.AES, DEFAULT_LIMITS, None) is not None


@pytest.mark.parametrize(
    "bad", [b"wolpertinger 00", b"other " + b"00" * 32 + b" " + b"00" * 16, b"wolpertinger " + b"0g" * 32 + b" 00", b"\xff"]
)
def test_a_key_log_that_is_none_names_the_line_and_not_what_is_in_it(bad):
    with pytest.raises(UsageError) as caught:
        read_log(log_line(KEYS) + bad)
    assert "line 2" in str(caught.value)
    assert "00" not in str(caught.value)
