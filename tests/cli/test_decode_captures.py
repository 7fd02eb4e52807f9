"""`wirelake decode` given a capture: recognised by its first bytes, from a file or standard input, and read without Spark."""

import gzip
import json
import subprocess
import sys

import pytest
from tests.capture.build import Talk, ethernet, ipv4, pcap, udp
from tests.lake.relink_sessions import STORY, record
from tests.lake.test_websocket import CLIENT as WEBSOCKET_CLIENT
from tests.lake.test_websocket import SERVER as WEBSOCKET_SERVER
from tests.lake.wolpertinger_sessions import asked, line, pieces, result
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, SECRET, maced
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.emp.messages import Data, Error, Hello, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.wolpertinger.layer2.values import Int32
from wirelake.protocols.wolpertinger.trust.keyring import log_line

ASKED = encode(Data(b"tea?", (RequestResponse(True, 7),)))
ANSWERED = encode(Data(b"yes", (RequestResponse(False, 7),)))
BROKEN = bytes.fromhex("000000087f000000")


@pytest.fixture(autouse=True)
def _kernels(_same_kernels):
    """Reading a capture compiles the kernels of the process."""


def objects(outcome) -> list[dict]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def recorded(path, *, protocol="emp"):
    """A recording of a client, with something broken in it."""
    with Recorder(path, protocol=protocol, clock=lambda: 1_700_000_000 * 10**9) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040), connection_id=b"12345678")
        talk.sent(encode(Hello()))
        talk.received(encode(Hello()))
        talk.sent(ASKED + BROKEN)
        talk.received(ANSWERED)
        talk.closed("bye")
    return path


def captured(*, port=5040) -> bytes:
    """A packet capture of the same, messages cut anywhere, beside traffic that nobody knows."""
    talk = Talk(server=("10.0.0.2", port)).open()
    talk.say(0, encode(Hello()) + ASKED[:5]).say(1, encode(Hello())).say(0, ASKED[5:] + BROKEN).say(1, ANSWERED).close()
    other = Talk(client=("10.0.0.3", 1), server=("10.0.0.4", 9)).open().say(0, b"who knows what this is?" * 9).close()
    return pcap([*talk.frames(), *other.frames()])


def test_a_recording_is_printed_with_sender_time_and_offset(wirelake, tmp_path):
    path = recorded(tmp_path / "talk.pcapng")
    outcome = wirelake("decode", "emp", path)
    shown = objects(outcome)
    assert outcome.code == 65, "one message cannot be read"
    assert f"{path}: a pcapng capture" in outcome.talk
    assert [each.get("type") or each["fault"] for each in shown] == ["hello", "hello", "data", "TYPE_RESERVED", "data"]
    assert [each["from"] for each in shown] == ["127.0.0.1:" + port for port in ("40000", "5040", "40000", "40000", "5040")]
    assert {each["ts"] for each in shown} == {"2023-11-14T22:13:20Z"}
    assert len({each["connection_id"] for each in shown}) == 1
    raw = path.read_bytes()
    assert raw[shown[2]["offset"] :].startswith(ASKED)
    assert raw[shown[3]["message_offset"] :].startswith(BROKEN)
    assert raw[shown[3]["offset"]] == 0x7F, "the place of what is wrong, in the file"
    assert shown[2]["extensions"][0]["request_id"] == 7


def test_a_packet_capture_is_read_whether_it_comes_as_file_or_on_standard_input(wirelake, tmp_path):
    (tmp_path / "talk.pcap").write_bytes(captured())
    (tmp_path / "talk.pcap.gz").write_bytes(gzip.compress(captured()))
    plain, packed = (wirelake("decode", "emp", tmp_path / name) for name in ("talk.pcap", "talk.pcap.gz"))
    piped = wirelake("decode", "emp", stdin=captured())
    assert plain.out == packed.out == piped.out
    assert [each.get("type") or each["fault"] for each in objects(plain)] == ["hello", "data", "hello", "TYPE_RESERVED", "data"]
    assert "bytes are of other traffic" in plain.talk
    assert next((each["from"], each["to"]) for each in objects(plain)) == ("10.0.0.1:40000", "10.0.0.2:5040")


def test_count_fields_and_formats_are_as_for_a_stream(wirelake, tmp_path):
    path = recorded(tmp_path / "talk.pcapng")
    outcome = wirelake("decode", "emp", path, "-c", "2", "-T", "fields", "-e", "from", "-e", "type")
    assert (outcome.code, outcome.out) == (0, b"127.0.0.1:40000\thello\n127.0.0.1:5040\thello\n")


def test_encode_takes_back_what_decode_shows_of_a_capture(wirelake):
    shown = b"".join(line for line in wirelake("decode", "emp", stdin=captured()).out.splitlines(True) if b"fault" not in line)
    assert wirelake("encode", "emp", stdin=shown).out == encode(Hello()) + ASKED + encode(Hello()) + ANSWERED


def test_a_capture_of_another_protocol_is_an_error_that_says_so(wirelake, tmp_path):
    outcome = wirelake("decode", "relink", recorded(tmp_path / "talk.pcapng"))
    assert (outcome.code, outcome.out) == (0, b"")
    assert "0 objects of relink" in outcome.talk
    assert "it also has emp" in outcome.talk


def test_a_port_option_identifies_connections_without_other_evidence(wirelake):
    talk = Talk(server=("10.0.0.2", 6000))
    talk.say(0, ASKED).say(1, ANSWERED)  # the handshake came before the capture
    assert objects(wirelake("decode", "emp", stdin=pcap(talk.frames()))) == []
    shown = objects(wirelake("decode", "emp", "--port", "6000", stdin=pcap(talk.frames())))
    assert [each["body"] for each in shown] == [b"tea?".hex(), b"yes".hex()]
    assert wirelake("decode", "emp", "--port", "6000", stdin=encode(Hello())).code == 64


def test_a_gap_and_a_cut_file_are_reported_with_their_offsets(wirelake):
    talk = Talk().open().say(0, encode(Hello()) + ASKED[:5])
    talk.next[0] += len(ASKED) - 5
    talk.say(0, encode(Error(4, 1, 2, "after the gap")))
    whole = pcap(talk.frames())
    lost = wirelake("decode", "emp", stdin=whole)
    assert lost.code == 65
    assert [each.get("fault") or each["type"] for each in objects(lost)] == ["hello", "GAP", "error"]
    cut = wirelake("decode", "emp", stdin=whole[:-3])
    assert cut.code == 65
    assert [each["layer"] for each in objects(cut) if "layer" in each] == ["pcap"]


def test_relink_is_decoded_by_its_handshake(wirelake, tmp_path):
    record(tmp_path / "link.pcapng", STORY)
    outcome = wirelake("decode", "relink", tmp_path / "link.pcapng")
    assert outcome.code == 0
    assert [bytes.fromhex(each["parts"][0]) for each in objects(outcome) if each["type"] == "message"][:2] == [b"one", b"two"]


def test_yamp_is_found_inside_websockets(wirelake):
    talk = Talk(server=("10.0.0.2", 8888)).open().say(0, WEBSOCKET_CLIENT).say(1, WEBSOCKET_SERVER).close()
    shown = objects(wirelake("decode", "yamp", stdin=pcap(talk.frames())))
    assert sorted(each["type"] for each in shown) == sorted(
        ["system.handshake", "request", "event", "system.close", "system.handshake", "response"]
    )


def test_event_mesh_is_verified_as_of_when_a_packet_was_seen(wirelake, tmp_path):
    trust = tmp_path / "mesh.keys"
    wirelake("keys", "import", trust, "--node", NODE.hex(), "--key-id", AUTH.hex(), "--secret", stdin=SECRET.hex().encode())

    def seen(seconds: float) -> bytes:
        return pcap([(int(seconds * 1e6), ethernet(ipv4("10.0.0.1", "10.0.0.2", udp(40000, 5041, maced()), protocol=17)))])

    done = wirelake("decode", "event_mesh", "--port", "5041", "--keys", trust, stdin=seen(MADE + 1))
    assert done.code == 0, done.talk
    (shown,) = objects(done)
    assert (shown["verified"], shown["fresh"]) == (True, True)
    late = wirelake("decode", "event_mesh", "--port", "5041", "--keys", trust, stdin=seen(MADE + 3600))
    assert late.code == 65
    assert "rejected" in objects(late)[0]


def test_each_side_of_wolpertinger_has_its_own_fragments_and_keys_decrypt_them(wirelake, tmp_path):
    (tmp_path / "keys").write_bytes(log_line(KEYS))
    (tmp_path / "keys").chmod(0o600)
    with Recorder(tmp_path / "talk.pcapng", protocol="wolpertinger") as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5222))
        *first, last = pieces(asked(1, "Add", Int32(4)), 7, 60, KEYS)
        assert first
        talk.sent(b"".join(first))
        talk.received(line(asked(2, "Else"), 7) + result(7))
        talk.sent(last)
    shown = objects(wirelake("decode", "wolpertinger", tmp_path / "talk.pcapng", "--keys", tmp_path / "keys"))
    assert [each["document"]["method"] for each in shown if "document" in each] == ["Else", "Add"]


@pytest.mark.slow
def test_reading_a_capture_starts_no_spark(tmp_path):
    path = recorded(tmp_path / "talk.pcapng")
    words = f"import sys; from wirelake.cli.main import run; run(['decode', 'emp', {str(path)!r}]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, timeout=120, check=True)
    assert "pyspark" not in done.stderr.decode().split()
    assert done.stdout.count(b"\n") == 5


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xa1\xb2\xc3", b"\x0a\x0d\x0d\x0a\x00\x00\x00\x1c\x00\x00\x00\x00"])
def test_bytes_that_only_begin_like_a_capture_are_a_stream(wirelake, head):
    outcome = wirelake("decode", "emp", stdin=head + bytes(30))
    assert outcome.code == 65
    assert "capture" not in outcome.talk
    assert objects(outcome)[0]["fault"] in ("SIZE_OVER_LIMIT", "MESSAGE_CUT")
