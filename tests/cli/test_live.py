"""`wirelake serve`, `call` and `send`: as two people at two terminals use them."""

import json
import signal
import subprocess
import sys

import pytest

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
SECONDS = 60


@pytest.fixture
def server(tmp_path):
    """A server that echoes and records; gives its address and, at the end, what it printed."""
    command = [*WIRELAKE, "serve", "emp", "tcp://127.0.0.1:0", "--record", str(tmp_path / "talk.pcapng"), "--record-max-size", "1k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        listening = process.stderr.readline()
        try:
            yield process, listening.split()[2].rstrip(";"), tmp_path / "talk.pcapng"
        finally:
            if process.poll() is None:
                process.kill()


def run(*words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([*WIRELAKE, *words], input=stdin, capture_output=True, timeout=SECONDS)


def test_a_call_is_answered_and_ctrl_c_ends_the_server_with_a_whole_recording(server, wirelake):
    process, address, recording = server
    assert run("call", "emp", address, "hello").stdout == b"hello\n"
    assert run("call", "emp", address, "-", "--hex", "--compress", stdin=b"00ff").stdout == b"00ff\n"
    assert run("send", "emp", address, "one", "two", "--type", "130").returncode == 0
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert talk.splitlines() == ["closing"]
    shown = [json.loads(line) for line in out.splitlines()]
    assert [one.get("text", one.get("body")) for one in shown] == ["hello", "00ff", "one", "two"]
    assert ["text" in one for one in shown] == [True, False, True, True]
    assert all(one["received"].endswith("Z") for one in shown)
    assert 500 < recording.stat().st_size <= 1024
    assert 500 < recording.with_name("talk-0001.pcapng").stat().st_size <= 1024


def test_nobody_there_is_told_in_one_line():
    done = run("call", "emp", "tcp://127.0.0.1:1", "hello")
    assert done.returncode == 69
    assert done.stderr.startswith(b"wirelake: cannot connect to tcp://127.0.0.1:1: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("call", "emp", "udp://localhost", "x"), "'udp' is not one of tcp, tls"),
        (("call", "emp", "tcp://localhost:99999", "x"), "no valid port"),
        (("call", "emp", "tcp://localhost", "xyz", "--hex"), "hex digits"),
        (("serve", "emp", "tls://127.0.0.1:0"), "needs --cert"),
        (("serve", "emp", "tls://127.0.0.1:0", "--cert", "/no/such/file"), "cannot use certificate"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(wirelake, words, complaint):
    outcome = wirelake(*words)
    assert outcome.code == 64
    assert complaint in outcome.talk
