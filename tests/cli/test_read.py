"""`wirelake read`: what people see of captures and recordings, in every format, and how it ends."""

import csv
import gzip
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from tests.capture.build import Talk, pcap
from tests.lake.wolpertinger_sessions import asked as wolpertinger_asked
from tests.lake.wolpertinger_sessions import line
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.capture.record.recorder import Recorder
from wirelake.cli.exit_codes import ExitCode
from wirelake.protocols.emp.messages import Bye, Data, Hello, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.wolpertinger.trust.keyring import log_line

WIRELAKE = [sys.executable, "-m", "wirelake"]
SECONDS = 120
HELLO, BYE = encode(Hello()), encode(Bye())
ASKED = encode(Data(b'{"item": "tea"}', (RequestResponse(True, 7),)))
ANSWERED = encode(Data(b"yes\x1b[2J", (RequestResponse(False, 7),)))
UNASKED = encode(Data(b"=1+1", (RequestResponse(False, 8),)))
HINT = "`wirelake explain EMP-16` explains the rule\n"
"""The last line about a capture with UNASKED in it."""
WAITS = encode(Data(b"anyone?", (RequestResponse(True, 9),)))


def recorded(path, *, begin=1_700_000_000, **more):
    """A client that asks twice and gets one answer, and one that it did not ask for."""
    now = begin * 10**9

    def clock() -> int:
        nonlocal now
        now += 1_500_000
        return now

    with Recorder(path, protocol="emp", clock=clock, **more) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040), connection_id=b"12345678")
        talk.sent(HELLO)
        talk.received(HELLO)
        talk.sent(ASKED)
        talk.received(ANSWERED)
        talk.received(UNASKED)
        talk.sent(WAITS)
        talk.sent(BYE)
        talk.received(BYE)
        talk.closed("bye")
    return path


@pytest.fixture
def recording(tmp_path):
    return recorded(tmp_path / "talk.pcapng")


def captured() -> bytes:
    talk = Talk().open().say(0, HELLO + ASKED[:5]).say(1, HELLO).say(0, ASKED[5:]).say(1, ANSWERED).say(0, BYE).say(1, BYE).close()
    other = Talk(client=("10.0.0.3", 1), server=("10.0.0.4", 9)).open().say(0, b"who knows what this is?" * 9).close()
    return pcap([*talk.frames(), *other.frames()])


def objects(outcome) -> list[dict]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_text_has_a_line_for_each_message_and_for_all_that_is_wrong(wirelake, recording):
    outcome = wirelake("read", recording)
    lines = outcome.out.decode().splitlines()
    assert outcome.code == 0
    assert lines[0] == "    1 2023-11-14T22:13:20.004500Z 127.0.0.1:40000 → 127.0.0.1:5040 emp handshake hello  12 B"
    assert lines[2].endswith('emp request data  id=7  43 B  {"item": "tea"}')
    assert "response data  id=7" in lines[3]
    assert "answers 3 after 1.5 ms  yes\\x1b[2J" in lines[3]
    assert "answers no request that was seen" in lines[4]
    broken = "      ! violation: emp EMP-16 RESPONSE_UNMATCHED (error) by server 127.0.0.1:5040 at 5: a response that matches no"
    assert lines[5].startswith(broken)
    assert lines[-1] == "      ? unanswered: emp request 6 of 127.0.0.1:40000 to 127.0.0.1:5040 (id=9) was never answered"
    assert outcome.talk == f"8 messages, 1 violation, 1 unanswered\n{HINT}"


def test_json_has_an_object_for_each_record_and_its_type(wirelake, recording):
    shown = objects(wirelake("read", recording, "-T", "json"))
    assert [one["type"] for one in shown] == ["message"] * 5 + ["violation"] + ["message"] * 3 + ["unanswered"]
    request, answer, unasked, broken, waits = shown[2], shown[3], shown[4], shown[5], shown[-1]
    assert (request["number"], request["kind"], request["correlation_id"], request["from"]) == (3, "request", "7", "127.0.0.1:40000")
    assert json.loads(request["body_json"]) == {"item": "tea"}
    assert (answer["answers"], answer["latency_us"]) == ([3], 1500)
    assert bytes.fromhex(answer["body"]) == b"yes\x1b[2J"
    assert unasked["rules"] == ["RESPONSE_UNMATCHED"]
    assert (broken["number"], broken["clause"], broken["severity"], broken["by"]) == (5, "EMP-16", "error", "server")
    assert (waits["number"], waits["correlation_id"], waits["to"]) == (6, "9", "127.0.0.1:5040")
    assert recording.read_bytes()[request["offset"] : request["offset"] + request["length"]] == ASKED


def test_json_has_the_same_fields_with_and_without_naming_them(wirelake, recording):
    from wirelake.explore.reading.formats import FIELDS

    named = [word for name in FIELDS if name != "hex" for word in ("-e", name)]
    plain = [one for one in objects(wirelake("read", recording, "-T", "json")) if one.pop("type") == "message"]
    chosen = objects(wirelake("read", recording, "-T", "json", *named))
    assert plain == [{name: value for name, value in one.items() if value != []} for one in chosen]


def test_fields_are_tabbed_and_the_rest_goes_to_stderr(wirelake, recording):
    outcome = wirelake(
        "read", recording, "-T", "fields", "-e", "number", "-e", "name", "-e", "emp.request_id", "-e", "latency_us", "-e", "hex"
    )
    rows = [line.split("\t") for line in outcome.out.decode().splitlines()]
    assert rows[2] == ["3", "data", "7", "", ASKED.hex()]
    assert rows[3] == ["4", "data", "7", "1500", ANSWERED.hex()]
    assert len(rows) == 8
    assert "RESPONSE_UNMATCHED" in outcome.talk
    assert "unanswered: emp request 6" in outcome.talk
    assert len(wirelake("read", recording, "-T", "fields").out.splitlines()[0].split(b"\t")) == 13


def test_csv_has_a_header_and_is_harmless_in_a_spreadsheet(wirelake, recording):
    outcome = wirelake("read", recording, "-T", "csv", "-e", "number", "-e", "rules", "-e", "body_json", "-e", "emp.body")
    rows = list(csv.reader(io.StringIO(outcome.out.decode())))
    assert rows[0] == ["number", "rules", "body_json", "emp.body"]
    assert rows[5][:2] == ["5", "RESPONSE_UNMATCHED"]
    assert len(rows) == 9


def test_the_whole_message_is_shown_with_every_field_and_its_bytes(wirelake, recording):
    text = wirelake("read", recording, "-V", "-Y", "number:3").out.decode()
    assert "      emp.request_id: 7" in text
    assert "      hex:" in text
    assert "00 00 00 2b 05 " in text
    (shown,) = objects(wirelake("read", recording, "-V", "-T", "json", "-Y", "number:3"))
    assert bytes.fromhex(shown["hex"]) == ASKED
    assert shown["fields"]["request_id"] == "7"


def test_the_whole_message_of_a_capture_is_put_together_from_its_packets(wirelake, tmp_path):
    (tmp_path / "a.pcap").write_bytes(captured())
    (shown,) = objects(wirelake("read", tmp_path / "a.pcap", "-V", "-T", "json", "-Y", "kind:request type:message"))
    assert bytes.fromhex(shown["hex"]) == ASKED


def test_reading_stops_after_so_many_messages_and_tells_what_the_last_one_broke(wirelake, recording):
    outcome = wirelake("read", recording, "-c", "5")
    lines = outcome.out.decode().splitlines()
    assert len(lines) == 6
    assert outcome.talk == f"5 messages, 1 violation\n{HINT}"
    assert "RESPONSE_UNMATCHED" in lines[-1]
    assert wirelake("read", recording, "-c", "5", "-Y", "kind:request").out.count(b"\n") == 1, "messages that were read count, as in tshark"


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ("kind:request type:message", [3, 6]),
        ("rule:EMP-16", [5, 5]),
        ("-kind:handshake,close -status:unanswered type:message", [3, 4, 5, 6]),
        ("status:unanswered", [6]),
        ("latency:>1ms", [4]),
        ("id:7", [3, 4]),
        ("from:127.0.0.1:5040 kind:handshake", [2]),
        ("since:10m", []),
        ("protocol:relink", []),
        ("(id:7 or rule:*) not kind:response type:message", [3]),
        ("body:*tea* or emp.request_id:9 type:message", [3, 6]),
        ("tea type:message", [3]),
        ("from:127.0.0.0/8 latency:>1ms", [4]),
        ("ts:<2023-11-14T22:13:20.006", [1]),
    ],
)
def test_a_filter_chooses_messages_and_what_belongs_to_them(wirelake, recording, chosen, numbers):
    assert [one["number"] for one in objects(wirelake("read", recording, "-T", "json", "-Y", chosen))] == numbers


@pytest.mark.parametrize(
    ("chosen", "talk"),
    [
        ("protocol:relink", "0 of 8 shown, 1 violation"),
        ("kind:request", "2 of 8 shown and 1 other record, 1 violation"),
        ("type:violation", "0 of 8 shown and 1 other record, 1 violation"),
        ("protocol:emp type:message", "8 of 8 shown, 1 violation"),
    ],
)
def test_a_filter_says_how_many_of_how_many_it_shows(wirelake, recording, chosen, talk):
    for form in ("text", "json", "csv"):
        assert talk in wirelake("read", recording, "-T", form, "-Y", chosen).talk


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        ("kind:request tcp.port==5040", "column 14: `tcp.port==5040` is Wireshark's spelling: write port:5040"),
        ("host = 'a'", "column 1: `host = 'a'` is SQL's spelling: write host:a"),
        ("latency>1s", "write latency:>1s"),
        ("emp.nothing:1", "emp has no such column"),
    ],
)
def test_the_syntax_of_others_is_refused_and_not_taken_for_nothing(wirelake, recording, chosen, what):
    outcome = wirelake("read", recording, "-Y", chosen)
    assert outcome.code == ExitCode.USAGE
    assert what in outcome.talk
    assert not outcome.out


def test_a_body_that_is_longer_than_what_is_searched_is_not_passed_over_in_silence(wirelake, tmp_path):
    now = itertools.count(1_700_000_000 * 10**9, 10**6)
    with Recorder(tmp_path / "long.pcapng", protocol="emp", clock=lambda: next(now)) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040), connection_id=b"12345678")
        talk.sent(HELLO)
        talk.received(HELLO)
        for body in ("é" * 32_767 + "xé milk", "milk"):  # the first 64 KiB end inside a character
            talk.sent(encode(Data(body.encode())))
    outcome = wirelake("read", tmp_path / "long.pcapng", "-Y", "milk")
    assert outcome.out.count(b"\n") == 1
    assert "1 body was searched in the first 64.0 KiB only" in outcome.talk
    assert wirelake("read", tmp_path / "long.pcapng", "-Y", "body:éé*").out.count(b"\n") == 1


def test_a_folder_a_pattern_a_pipe_and_compressed_files_are_read_alike(wirelake, tmp_path):
    raw = recorded(tmp_path / "talk.pcapng").read_bytes()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "talk.pcapng.gz").write_bytes(gzip.compress(raw))
    plain = wirelake("read", tmp_path / "talk.pcapng").out
    assert wirelake("read", "-", stdin=raw).out == plain
    assert wirelake("read", "-", stdin=gzip.compress(raw)).out == plain
    assert wirelake("read", tmp_path / "sub").out == plain
    assert wirelake("read", str(tmp_path / "*.pcapng")).out == plain
    assert wirelake("read", tmp_path).talk.startswith("16 messages")


def test_a_named_pipe_is_read_as_it_comes(wirelake, recording, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(recording.read_bytes()))
    writer.start()
    assert wirelake("read", tmp_path / "pipe").talk.startswith("8 messages")
    writer.join()


def test_a_capture_tells_what_it_does_not_recognise_by_host_and_port(wirelake, tmp_path):
    (tmp_path / "a.pcap").write_bytes(captured())
    outcome = wirelake("read", tmp_path / "a.pcap")
    lines = outcome.out.decode().splitlines()
    assert "      ~ not recognised: tcp 10.0.0.3 → 10.0.0.4:9: 1 packet, 207 B: no protocol begins like this" in lines
    assert outcome.talk == "6 messages, 207 B not recognised\n"
    assert outcome.code == 0


def test_a_port_may_be_named(wirelake, tmp_path):
    talk = Talk(server=("10.0.0.2", 6000)).open().say(0, ASKED).close()
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    assert b"emp request data" in wirelake("read", tmp_path / "a.pcap", "--port", "emp=6000").out


def test_half_a_file_is_read_up_to_where_it_ends_and_that_is_said(wirelake, recording):
    raw = recording.read_bytes()
    recording.write_bytes(raw[: len(raw) // 2 + 1])
    outcome = wirelake("read", recording)
    assert outcome.code == 0
    assert 0 < outcome.out.count(b" emp ") < 9
    assert "~ unreadable:" in outcome.out.decode()
    assert "cut short" in outcome.out.decode()
    piped = wirelake("read", "-", stdin=raw[: len(raw) // 2 + 1])
    assert piped.out.replace(b"standard input", str(recording).encode()) == outcome.out
    packed = wirelake("read", "-", stdin=gzip.compress(raw)[:-20])
    assert packed.code == 0
    assert "cut short" in packed.out.decode()


def test_what_is_no_capture_is_an_error_that_says_what_to_do(wirelake, recording, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"not a capture at all, but long enough to be looked at")
    outcome = wirelake("read", tmp_path / "notes.txt", recording)
    assert outcome.code == 65
    assert "notes.txt: not a capture: `wirelake decode PROTOCOL" in outcome.talk
    assert outcome.out.count(b"emp") >= 8, "the other file is read"
    assert wirelake("read", "-", stdin=b"x" * 100).code == 65
    assert wirelake("read", "-", stdin=b"").talk == "standard input is empty\n0 messages\n"
    assert wirelake("read", tmp_path / "nowhere.pcap").code == 66


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-Y", "knd:request"), "there is no field 'knd'"),
        (("-Y", "since:later"), "an age such as since:10m"),
        (("-e", "number"), "-e needs -T"),
        (("-T", "fields", "-e", "nummer"), "there is no such field"),
        (("-T", "csv", "-e", "emp.colour"), "emp has no such column"),
        (("-T", "csv", "-V"), "name them with -e"),
        (("-T", "xml"), "Invalid value for '-T'"),
        (("-c", "0"), "Invalid value for '-c'"),
        (("--port", "emp"), "write it as emp=6000"),
        (("--set", "emp.colour=1"), "write it as NAME=VALUE"),
    ],
)
def test_wrong_flags_and_filters_say_what_is_wrong(wirelake, recording, words, said):
    outcome = wirelake("read", recording, *words)
    assert outcome.code == 64
    assert said in outcome.talk
    assert outcome.out == b""


def test_keys_open_what_is_encrypted(wirelake, tmp_path):
    sealed = line(wolpertinger_asked(1, "Price", component="Stock"), 1, KEYS)
    (tmp_path / "keys").write_bytes(log_line(KEYS))
    (tmp_path / "keys").chmod(0o600)
    with Recorder(tmp_path / "a.pcapng", protocol="wolpertinger") as recorder:
        recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2)).sent(sealed)
    assert b"Stock.Price" not in wirelake("read", tmp_path / "a.pcapng").out
    assert b"Stock.Price" in wirelake("read", tmp_path / "a.pcapng", "--keys", tmp_path / "keys").out


def started(*words, **more) -> subprocess.Popen:
    return subprocess.Popen([*WIRELAKE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_small_inputs_load_neither_numba_nor_pandas_nor_spark(recording):
    code = (
        "import sys; from wirelake.cli import own_process; own_process.mark(); from wirelake.cli.main import run;"
        f"code = run(['read', {str(recording)!r}]); sys.exit(code or sorted({{'numba', 'pandas', 'pyspark'}} & set(sys.modules)) or 0)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS)
    assert (outcome.returncode, outcome.stderr.decode()) == (0, f"8 messages, 1 violation, 1 unanswered\n{HINT}")


def test_a_recording_imports_only_its_own_protocol(recording):
    code = (
        "import sys; from wirelake import protocols; from wirelake.cli import own_process; own_process.mark();"
        f"from wirelake.cli.main import run; code = run(['read', {str(recording)!r}]);"
        "sys.exit(code or [name for name in protocols.names() if f'wirelake.protocols.{name}' in sys.modules] != ['emp'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS).returncode == 0


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_quietly(tmp_path):
    with Recorder(tmp_path / "a.pcapng", protocol="emp") as recorder:
        for _ in range(300):
            talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
            for _ in range(20):
                talk.sent(ASKED)
                talk.received(ANSWERED)
    process = started("read", tmp_path / "a.pcapng")
    with process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_standard_input_is_shown_as_it_comes_and_ctrl_c_ends_it_quietly(recording):
    raw = recording.read_bytes()
    process = started("read", "-", stdin=subprocess.PIPE)
    with process:
        process.stdin.write(raw[: len(raw) // 2])
        process.stdin.flush()
        assert b"handshake hello" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_a_growing_file_is_followed_until_ctrl_c(tmp_path):
    raw = recorded(tmp_path / "whole.pcapng").read_bytes()
    path = tmp_path / "growing.pcapng"
    path.write_bytes(raw[: len(raw) // 2])
    process = started("read", "--follow", path)
    with process:
        try:
            assert b"handshake hello" in process.stdout.readline()
            with path.open("ab") as file:
                file.write(raw[len(raw) // 2 :])
            lines = [process.stdout.readline() for _ in range(9)]
            assert b"was never answered" in lines[-1]
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
            assert process.stderr.read().decode() == f"8 messages, 1 violation, 1 unanswered\n{HINT}"
        finally:
            process.kill()  # else a failed assertion would wait for it


@pytest.mark.slow
def test_a_server_watches_its_clients(tmp_path):
    process = started("serve", "emp", "tcp://127.0.0.1:0", "--watch", "--record", tmp_path / "a.pcapng", text=True)
    with process:
        try:
            port = int(process.stderr.readline().split()[2].rstrip(";").rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(HELLO + UNASKED)
                said = ""
                deadline = time.monotonic() + SECONDS
                while not said.startswith("watch: ") and time.monotonic() < deadline:
                    said = process.stderr.readline()
                own = "{}:{}".format(*client.getsockname())
            assert said == f"watch: client {own} broke emp EMP-16 RESPONSE_UNMATCHED (error): a response that matches no pending request\n"
        finally:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    assert (tmp_path / "a.pcapng").stat().st_size > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_ended_at_once_tells_its_last_findings(name):
    """The signal goes to all processes of the command, as from a terminal or a service manager; none is left behind."""
    process = started("serve", "emp", "tcp://127.0.0.1:0", "--watch", text=True, start_new_session=True)
    with process:
        try:
            port = int(process.stderr.readline().split()[2].rstrip(";").rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(HELLO + UNASKED)
                while client.recv(4096):  # the server ends the session
                    pass
                own = "{}:{}".format(*client.getsockname())
        finally:
            os.killpg(process.pid, name)
        _, said = process.communicate(timeout=SECONDS)
    assert f"watch: client {own} broke emp EMP-16 RESPONSE_UNMATCHED (error): a response that matches no pending request\n" in said
    assert process.returncode == 0


def test_requests_that_never_left_are_shown_so_and_wait_for_nothing(wirelake, tmp_path):
    path = tmp_path / "broken.pcapng"
    with Recorder(path, protocol="emp") as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
        talk.sent(HELLO)
        talk.received(HELLO)
        talk.sent(ASKED + WAITS)
        talk.closed("closed", "server", is_reset=True, unconfirmed=len(WAITS))
    lines = wirelake("read", path).out.decode().splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["1", "2", "3", "4"]
    assert ["unconfirmed: it had not left when the connection broke" in line for line in lines[:4]] == [False, False, False, True]
    (waits,) = [line for line in lines if "unanswered" in line]
    assert "request 3 " in waits
    shown = [one for one in objects(wirelake("read", path, "-T", "json")) if one["type"] == "message"]
    assert [one.get("unconfirmed") for one in shown] == [None, None, None, True]
    assert len(objects(wirelake("read", path, "-T", "json", "-Y", "status:unconfirmed"))) == 1
