"""`wirelake serve`, `call`, `send` and `listen` for YAMP: as people at several terminals use them."""

import json
import signal
import subprocess
import sys

import pytest

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
SECONDS = 60


def run(*words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([*WIRELAKE, *words], input=stdin, capture_output=True, timeout=SECONDS)


@pytest.fixture(params=["tcp", "ws"])
def server(request, tmp_path):
    """A server that shows what it hears, and records; gives its address."""
    command = [*WIRELAKE, "serve", "yamp", f"{request.param}://127.0.0.1:0", "--record", str(tmp_path / "talk.pcapng")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        listening = process.stderr.readline()
        try:
            yield process, listening.split()[2].rstrip(";"), tmp_path / "talk.pcapng"
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.slow
def test_calls_events_and_the_end(server):
    process, address, recording = server
    assert run("call", "yamp", address, "echo", '{"a": 1}').stdout == b'{"a":1}\n'
    assert run("call", "yamp", address, "sum", "-", "--serializer", "msgpack", stdin=b"[1, 2]").stdout == b"3\n"
    counted = run("call", "yamp", address, "count", '{"to": 3, "seconds": 0.01}', "--progress")
    assert counted.stdout == b"1\n2\n3\n3\n"
    failed = run("call", "yamp", address, "fail", '{"code": 4}')
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr == b"wirelake: 'fail' failed: {'code': 4}\n"
    assert b"unknown uri" in run("call", "yamp", address, "nowhere").stderr
    assert b"no answer to 'sleep' in time" in run("call", "yamp", address, "sleep", "5", "--timeout", "0.05").stderr
    assert run("send", "yamp", address, "news.today", '"sun"', "2").returncode == 0
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert [line.partition(" for ")[2] or line for line in talk.splitlines()] == ["unknown uri 'nowhere'", "closing"]
    shown = [json.loads(line) for line in out.splitlines()]
    assert [one.get("request", one.get("event")) for one in shown] == ["echo", "sum", "count", "fail", "sleep", "news.today", "news.today"]
    assert [one["body"] for one in shown[-2:]] == ["sun", 2]
    assert recording.stat().st_size > 1000


@pytest.mark.slow
def test_listening_to_a_server(tmp_path):
    code = """
import asyncio, sys
from wirelake.peers.yamp import serve
async def main():
    async with serve(sys.argv[1]) as server:
        print(server.address, flush=True)
        while not [peer for peer in server.peers if peer.is_open]:
            await asyncio.sleep(0.01)
        for number in range(3):
            server.broadcast(f"news.{number}", {"n": number})
        await asyncio.sleep(0.2)
asyncio.run(main())
"""
    for words, events in ((("news.*",), 3), ((">", "-c", "2"), 2)):
        with subprocess.Popen([sys.executable, "-c", code, f"unix://{tmp_path}/a.sock"], stdout=subprocess.PIPE, text=True) as process:
            address = process.stdout.readline().strip()
            heard = run("listen", "yamp", address, *words)
            process.communicate(timeout=SECONDS)
        assert heard.returncode == 0
        assert [json.loads(line)["body"] for line in heard.stdout.splitlines()] == [{"n": number} for number in range(events)]
        assert (b"the server is shutting down" in heard.stderr) is (events == 3)


@pytest.mark.slow
def test_an_echo_of_everything(tmp_path):
    command = [*WIRELAKE, "serve", "yamp", "udp://127.0.0.1:0", "--echo", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stderr.readline().split()[2].rstrip(";")
        assert run("call", "yamp", address, "any.thing", "[1]").stdout == b"[1]\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS)
    assert (out, process.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("call", "yamp", "tcp://127.0.0.1:1", "uri"), 69, "cannot connect to tcp://127.0.0.1:1: "),
        (("call", "yamp", "tcp://127.0.0.1", "uri"), 64, "names no port"),
        (("call", "yamp", "quic://127.0.0.1:1", "uri"), 64, "not one of tcp, tls, ws"),
        (("call", "yamp", "tcp://127.0.0.1:1", "uri", "not json"), 64, "the body is not JSON"),
        (("call", "yamp", "tcp://127.0.0.1:1", "uri", "--serializer", "yaml"), 64, "there are json, msgpack"),
        (("serve", "yamp", "wss://127.0.0.1:0"), 64, "need --cert"),
        (("serve", "yamp", "tls://127.0.0.1:0", "--cert", "/no/such/file"), 64, "cannot use certificate"),
        (("listen", "yamp", "unix:///no/such/socket"), 69, "No such file"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(wirelake, words, code, complaint):
    outcome = wirelake(*words)
    assert outcome.code == code
    assert complaint in outcome.talk


def test_decode_and_encode(wirelake):
    shown = wirelake("decode", "yamp", "--hex", stdin=b"000001046a736f6e 05101112131415161718191a1b1c1d1e1f03666f6f000000077b2261223a317d")
    assert shown.code == 0
    handshake, event = map(json.loads, shown.out.splitlines())
    assert (handshake["type"], handshake["serializer"]) == ("system.handshake", "json")
    assert (event["uri"], event["json"]) == ("foo", {"a": 1})
    made = wirelake("encode", "yamp", "--hex", stdin=shown.out)
    assert made.out.split() == [b"000001046a736f6e", b"05101112131415161718191a1b1c1d1e1f03666f6f000000077b2261223a317d"]
    short = wirelake("decode", "yamp", "--hex", "--set", "one_byte_redirect_size=true", stdin=b"04097463703a2f2f613a31")
    assert json.loads(short.out)["url"] == "tcp://a:1"
