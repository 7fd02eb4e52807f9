"""`serve`, `send` and `listen` of Relink: messages are printed and consumed, and what cannot be is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner
from tests.peers.world import quick, run

from wirelake.cli.protocols import relink as commands
from wirelake.errors import ConnectFailed, UsageError
from wirelake.peers.relink import Endpoint, serve

SECONDS = 60
SERVE = "import sys; from wirelake.cli.protocols.relink import serve; serve.main(sys.argv[1:], standalone_mode=False)"


@pytest.fixture
def server():
    command = [sys.executable, "-c", SERVE, "tcp://127.0.0.1:0", "--endpoint", "demo", "--id-sizes", "2", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        listening = process.stderr.readline()
        try:
            yield process, listening.split()[2].rstrip(";")
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.slow
def test_what_is_sent_is_printed_and_consumed(server, tmp_path):
    process, address = server
    words = [address, "one", "two", "--endpoint", "demo", "--id-sizes", "2", "0", "--channel", "6162"]
    done = CliRunner().invoke(commands.send, [*words, "--record", str(tmp_path / "talk.pcapng")], standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 0
    assert (tmp_path / "talk.pcapng").stat().st_size > 300
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    shown = [json.loads(line) for line in out.splitlines()]
    assert all(one.pop("received").endswith("Z") for one in shown)
    assert shown == [{"channel": "6162", "sequence": number, "texts": [body]} for number, body in enumerate(("one", "two"))]
    assert "linkshutdown" in talk
    assert talk.splitlines()[-1] == "closing"


@pytest.mark.slow
def test_listen_prints_what_the_listener_sends_and_does_not_wait_for_the_rest():
    async def sending(link):
        for body in (b"one", b"two\0", b"three"):
            await link.channel().post(body)
        await link.over()

    async def main():
        import asyncio

        async with serve("tcp://127.0.0.1:0", {Endpoint(): sending}) as listener:
            heard = []

            def listening() -> None:
                heard.append(CliRunner().invoke(commands.listen, [listener.address, "-c", "2"], standalone_mode=False))

            thread = threading.Thread(target=listening)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0.01)
            return heard[0]

    with quick(8):  # of a close timeout of 10 s
        done = run(main)
    assert done.exception is None
    shown = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one.get("texts", one.get("parts")) for one in shown] == [["one"], ["74776f00"]]


@pytest.mark.parametrize(
    ("command", "words", "error"),
    [
        (commands.send, ["tcp://127.0.0.1:1", "x"], ConnectFailed),
        (commands.send, ["tcp://127.0.0.1:1", "x", "--channel", "zz"], UsageError),
        (commands.serve, ["tls://127.0.0.1:0"], UsageError),
        (commands.listen, ["udp://127.0.0.1:1"], UsageError),
    ],
)
def test_what_cannot_be(command, words, error):
    with pytest.raises(error):
        command.main(words, standalone_mode=False)
