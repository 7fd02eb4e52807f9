"""`wirelake decode`: what people see of bytes, good and bad."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lake.wolpertinger_sessions import asked, line, pieces, result
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.protocols.emp.messages import Application, Compression, Data, Error, Hello, OtherExtension, Ping, RequestResponse
from wirelake.protocols.emp.wire import encode, pack
from wirelake.protocols.wolpertinger.layer2.values import Int32
from wirelake.protocols.wolpertinger.trust.keyring import log_line

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "emp.json").read_text())
HELLO = encode(Hello())


def objects(outcome) -> list[dict]:
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["expect"] == "ok"], ids=lambda v: v["name"])
def test_a_message_is_one_object_with_every_field(wirelake, vector):
    outcome = wirelake("decode", "emp", "--hex", stdin=vector["hex"].encode())
    fields = vector["fields"]
    (shown,) = objects(outcome)
    assert outcome.code == 0
    assert (shown["offset"], shown["length"], shown["type"]) == (0, fields["size"], fields["type_name"] or "application")
    for name in ("version", "error_code", "extension_id", "extension_error_code", "message"):
        if name in fields:
            assert shown[name] == fields[name]
    for block, wanted in zip(shown["extensions"], fields["extensions"], strict=True):
        assert block["content"] == wanted["content_hex"]
        assert {name: block[name] for name in wanted if name != "content_hex"} == {n: v for n, v in wanted.items() if n != "content_hex"}
    if "body_hex" in fields:
        assert shown["body"] == fields["body_hex"]
        assert shown.get("plain_body", shown["body"]) == fields["plain_body_hex"]


def test_messages_follow_each_other_with_their_offsets(wirelake, tmp_path):
    stream = HELLO + encode(Data(b"abc", (RequestResponse(True, 2**64 - 1),))) + encode(Error(4, 1, 2, "été"))
    (tmp_path / "stream").write_bytes(stream)
    first, second, third = objects(wirelake("decode", "emp", tmp_path / "stream"))
    assert [first["offset"], second["offset"], third["offset"]] == [0, 12, 12 + 31]
    assert second["extensions"][0]["request_id"] == 2**64 - 1
    assert third["message"] == "été"


def test_offsets_count_from_the_start_of_a_long_input(wirelake):
    message = encode(Data(bytes(300_001)))
    shown = objects(wirelake("decode", "emp", "-e", "offset", stdin=message * 8))
    assert [one["offset"] for one in shown] == [len(message) * number for number in range(8)]


def test_what_is_broken_inside_is_told_and_reading_goes_on(wirelake):
    outcome = wirelake("decode", "emp", stdin=HELLO + bytes.fromhex("000000087f000000") + HELLO)
    good, bad, more = objects(outcome)
    assert outcome.code == 65
    assert (bad["fault"], bad["clause"], bad["offset"]) == ("TYPE_RESERVED", "EMP-24", 16)
    assert (good["type"], more["type"], more["offset"]) == ("hello", "hello", 20)


def test_a_lost_boundary_ends_the_reading(wirelake):
    outcome = wirelake("decode", "emp", stdin=HELLO + bytes(4) + HELLO)
    shown = objects(outcome)
    assert outcome.code == 65
    assert [one.get("fault") for one in shown] == [None, "SIZE_TOO_SMALL"]
    assert shown[1]["offset"] == 12


def test_an_announced_size_of_4_gib_is_refused_at_once(wirelake):
    outcome = wirelake("decode", "emp", stdin=b"\xff\xff\xff\xff\x05\x00\x00\x00")
    assert (outcome.code, objects(outcome)[0]["fault"]) == (65, "SIZE_OVER_LIMIT")


def test_a_cut_message_is_told_with_its_place(wirelake):
    outcome = wirelake("decode", "emp", stdin=HELLO + encode(Data(b"abcdef"))[:-2])
    assert outcome.code == 65
    cut = objects(outcome)[1]
    assert (cut["fault"], cut["clause"], cut["offset"], cut["message_length"]) == ("MESSAGE_CUT", "EMP-43", 12, 12)


def test_bad_gzip_and_bombs_are_faults(wirelake):
    spoilt = wirelake("decode", "emp", stdin=encode(Data(b"no gzip", (Compression(1),))))
    bomb = wirelake("decode", "emp", stdin=encode(Data(pack(bytes(17 << 20)), (Compression(1),))))
    assert (spoilt.code, objects(spoilt)[0]["fault"]) == (65, "GZIP_INVALID")
    assert (bomb.code, objects(bomb)[0]["fault"]) == (65, "INFLATED_OVER_LIMIT")


def test_what_must_not_be_said_is_shown_with_the_rule_it_breaks(wirelake):
    outcome = wirelake("decode", "emp", stdin=encode(Ping((RequestResponse(True, 3),))))
    assert outcome.code == 0
    assert (objects(outcome)[0]["breach"], objects(outcome)[0]["clause"]) == ("REQUEST_BLOCK_MISPLACED", "EMP-14")


def test_hex_may_be_laid_out_and_must_be_hex(wirelake):
    assert objects(wirelake("decode", "emp", "--hex", stdin=b"0000000c 00000000\n 01000000\n"))[0]["version"] == 1
    outcome = wirelake("decode", "emp", "--hex", stdin=b"zz")
    assert (outcome.code, outcome.out) == (64, b"")
    assert "hex digits" in outcome.talk


def test_fields_count_and_text(wirelake):
    stream = HELLO + encode(Ping()) * 3
    assert wirelake("decode", "emp", "-T", "fields", "-e", "offset", "-e", "type", "-c", "2", stdin=stream).out == b"0\thello\n12\tping\n"
    assert wirelake("decode", "emp", "-T", "text", "-c", "1", stdin=stream).out.startswith(b"offset=0  length=12  type=hello  version=1")


def test_a_wrong_call_is_told_in_one_line(wirelake, tmp_path):
    assert wirelake("decode", "smtp").code == 64
    assert "choose one of emp" in wirelake("decode", "smtp").talk
    missing = wirelake("decode", "emp", tmp_path / "nothing")
    assert (missing.code, missing.talk.count("\n")) == (66, 1)
    assert wirelake("decode", "emp", "--no-such-flag").code == 64


@pytest.mark.parametrize(
    "message",
    [
        Hello(),
        Error(4, 1, 3, "no"),
        Data(b"\x00\xff", (RequestResponse(False, 9), Compression(0))),
        Application(200, b"x", (OtherExtension(130, b"abc"),)),
    ],
)
def test_encode_takes_back_what_decode_prints(wirelake, message):
    data = encode(message)
    shown = wirelake("decode", "emp", stdin=data).out
    assert wirelake("encode", "emp", stdin=shown).out == data
    assert wirelake("encode", "emp", "--hex", stdin=shown).out == data.hex().encode() + b"\n"


def test_encode_packs_a_plain_body(wirelake):
    given = b'{"type":"data","extensions":[{"id":0,"request":true,"request_id":1},{"id":1,"scheme":1}],"plain_body":"68656c6c6f"}\n'
    packed = wirelake("encode", "emp", stdin=given).out
    assert objects(wirelake("decode", "emp", stdin=packed))[0]["plain_body"] == b"hello".hex()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "line 1"),
        (b"[]", "line 1"),
        (b'{"type":"data","body":"zz"}', "body: bytes as hex digits"),
        (b'{"type":"howdy"}', "is not one of hello"),
        (b'{"type":"hello","version":256}', "version: a number from 0 to 255"),
        (b'{"type":"application","type_id":7}', "EMP-24"),
        (b'{"fault":"GZIP_INVALID"}', "describes a fault"),
    ],
)
def test_encode_names_the_line_and_field_it_cannot_take(wirelake, line, complaint):
    outcome = wirelake("encode", "emp", stdin=line + b"\n")
    assert (outcome.code, outcome.out) == (65, b"")
    assert complaint in outcome.talk


def test_decode_loads_neither_numpy_nor_spark():
    words = "import sys; from wirelake.cli.main import run; run(['decode', 'emp', '--hex']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", words], input=b"0000000c0000000001000000", capture_output=True, timeout=60, check=True)
    assert not {"numpy", "numba", "pyarrow", "pyspark", "asyncio", "rich"} & set(done.stderr.decode().split())


def test_a_closed_pipe_is_no_error(tmp_path):
    (tmp_path / "many").write_bytes(encode(Ping()) * 50_000)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m wirelake.cli.main decode emp {tmp_path / 'many'} | head -1"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")


def test_wolpertinger_shows_both_layers(wirelake):
    told = wirelake("decode", "wolpertinger", stdin=line(asked(1, "Add", Int32(4)), 7) + result(7))
    call, confirmed = objects(told)
    assert told.code == 0
    assert (call["type"], call["message_id"], call["document"]["method"]) == ("message", 7, "Add")
    assert call["document"]["parameters"] == [{"type": "int32", "value": 4}]
    assert (confirmed["type"], confirmed["message_id"], confirmed["name"]) == ("result", 7, "success")
    shown = objects(wirelake("decode", "wolpertinger", "--hex", stdin=(line(asked(1), 7) + result(7)).hex().encode()))
    assert [one["offset"] for one in shown] == [0, len(line(asked(1), 7))]


def test_wolpertinger_tells_what_is_broken_and_where_and_goes_on(wirelake):
    outcome = wirelake("decode", "wolpertinger", stdin=b"message_id:x;AA==\nmessage_id:3;!!\n" + line(b"<a/>", 4) + b"message_id:5;")
    unreadable, no_base64, no_message, cut = objects(outcome)
    assert outcome.code == 65
    assert (unreadable["fault"], unreadable["clause"], unreadable["offset"]) == ("ID_INVALID", "WOLP-3", len("message_id:"))
    assert (no_base64["breach"], no_base64["clause"], no_base64["offset"]) == ("BASE64_INVALID", "WOLP-6", 18)
    assert no_message["document"]["rejected"] == "ROOT_UNKNOWN"
    assert (cut["fault"], cut["offset"]) == ("MESSAGE_CUT", 34 + len(line(b"<a/>", 4)))


def test_the_fragment_that_completes_a_message_shows_it_and_keys_open_it(wirelake, tmp_path):
    texts = pieces(asked(1, "Long", "y" * 300), 1, 200, KEYS)
    (tmp_path / "stream").write_bytes(b"".join(texts))
    (tmp_path / "keys").write_bytes(log_line(KEYS))
    (tmp_path / "keys").chmod(0o600)
    hidden = objects(wirelake("decode", "wolpertinger", tmp_path / "stream"))
    assert [one.get("document") for one in hidden] == [None] * len(texts)
    shown = objects(wirelake("decode", "wolpertinger", tmp_path / "stream", "--keys", tmp_path / "keys"))
    assert [one.get("document") is not None for one in shown] == [False] * (len(texts) - 1) + [True]
    assert shown[-1]["document"]["method"] == "Long"


def test_keys_that_others_may_read_are_refused(wirelake, tmp_path):
    (tmp_path / "keys").write_bytes(log_line(KEYS))
    (tmp_path / "keys").chmod(0o644)
    outcome = wirelake("decode", "wolpertinger", "--keys", tmp_path / "keys", stdin=b"")
    assert outcome.code == 64
    assert "chmod 600" in outcome.talk
    assert KEYS.key.hex() not in outcome.talk


@pytest.mark.parametrize("form", ["json", "text", "fields"])
def test_a_very_deep_body_is_shown_with_the_reason_why_it_is_not_shown_as_json(wirelake, form):
    """YAMP-44: `-T text` ended in a traceback."""
    body = b'{"a":' * 989 + b"1" + b"}" * 989
    event = b"\x05" + bytes(16) + b"\x01a" + len(body).to_bytes(4) + body
    outcome = wirelake("decode", "yamp", "-T", form, stdin=b"\x00\x00\x01\x04json" + event)
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 2
    assert b"nested deeper than 256 (max_depth)" in outcome.out.splitlines()[1]
    deeper = wirelake("decode", "yamp", "--set", "max_depth=9999", "-T", form, stdin=b"\x00\x00\x01\x04json" + event)
    assert deeper.code == 0
    assert len(deeper.out.splitlines()) == 2


ID_SIZES = ["--set", "handshake=false", "--set", "connector_id_size=2", "--set", "listener_id_size=2"]


@pytest.mark.parametrize(("protocol", "flags"), [("emp", []), ("relink", ID_SIZES), ("yamp", []), ("wolpertinger", [])])
def test_encode_writes_a_stream_that_decode_reads_again(wirelake, protocol, flags):
    """Over every vector that is a stream of whole messages, written twice in a row."""
    checked = 0
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / f"{protocol}.json").read_text()):
        texts = vector.get("wire") or []  # of wolpertinger
        data = b"".join(f"{text}\n".encode() for text in texts) if texts else bytes.fromhex(vector.get("hex") or "")
        shown = wirelake("decode", protocol, *flags, stdin=data)
        if shown.code or not shown.out or vector["name"].startswith("bad_encryption"):  # it has no name for the unknown
            continue
        encoded = wirelake("encode", protocol, *flags, stdin=shown.out * 2)
        assert encoded.code == 0, (vector["name"], encoded.talk)
        again = wirelake("decode", protocol, *flags, stdin=encoded.out)
        assert again.code == 0, (vector["name"], again.talk)
        first, second = ([{**json.loads(line), "offset": 0} for line in outcome.out.splitlines()] for outcome in (shown, again))
        if not any("tolerated" in message for message in first):  # unused bits that are set are not written again
            assert second == first * 2, vector["name"]
        assert len(second) == 2 * len(first), vector["name"]
        checked += 1
    assert checked >= 10, "vectors that are streams"
