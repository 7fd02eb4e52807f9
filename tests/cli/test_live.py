"""`wirelake serve`, `call` and `send`: as two people at two terminals use them."""

import asyncio
import json
import signal
import subprocess
import sys
from importlib import import_module

import click
import pytest

from wirelake.cli import live, main
from wirelake.cli.exit_codes import ExitCode

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
SECONDS = 60


@pytest.fixture
def server(tmp_path):
    """A server that echoes and records, and follows the dialect of its clients; gives its address and, at the end, what it printed."""
    recorded = ("--record", str(tmp_path / "talk.pcapng"), "--record-max-size", "1k")
    command = [*WIRELAKE, "serve", "emp", "tcp://127.0.0.1:0", *recorded, "--set", "sizes_exclude_themselves=auto"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        listening = process.stderr.readline()
        try:
            yield process, listening.split()[2].rstrip(";"), tmp_path / "talk.pcapng"
        finally:
            if process.poll() is None:
                process.kill()


def run(*words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([*WIRELAKE, *words], input=stdin, capture_output=True, timeout=SECONDS)


@pytest.mark.slow
def test_a_call_is_answered_and_ctrl_c_ends_the_server_with_a_whole_recording(server, wirelake):
    process, address, recording = server
    assert run("call", "emp", address, "hello").stdout == b"hello\n"
    assert run("call", "emp", address, "-", "--hex", "--compress", stdin=b"00ff").stdout == b"00ff\n"
    assert run("send", "emp", address, "one", "two", "--type", "130", "--set", "sizes_exclude_themselves=true").returncode == 0
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


@pytest.mark.parametrize("kind", ["a file", "a link"])
@pytest.mark.parametrize(
    "words",
    [
        ("serve", "emp", "tcp://127.0.0.1:0"),
        ("serve", "yamp", "tcp://127.0.0.1:0"),
        ("serve", "relink", "tcp://127.0.0.1:0"),
        ("call", "emp", "tcp://127.0.0.1:1", "hello"),
        ("send", "yamp", "tcp://127.0.0.1:1", "topic", '"hello"'),
    ],
    ids=" ".join,
)
def test_what_is_there_is_never_recorded_over(tmp_path, capfd, words, kind):
    path = tmp_path / "talk.pcapng"
    if kind == "a link":
        path.symlink_to(tmp_path / "nothing")
    else:
        path.write_bytes(b"precious")
    assert main.run([*words, "--record", str(path)]) == ExitCode.FAILED
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{path}: cannot record: {kind} is already here, and is left as it is" in line
    assert [one.name for one in tmp_path.iterdir()] == ["talk.pcapng"]
    assert path.is_symlink() or path.read_bytes() == b"precious"


def test_a_recording_has_the_mode_that_was_asked_for(tmp_path):
    for given, mode in (((), 0o600), (("--record-mode", "640"), 0o640)):
        path = tmp_path / f"{mode}.pcapng"
        assert main.run(["call", "emp", "tcp://127.0.0.1:1", "hello", "--record", str(path), *given]) == ExitCode.UNAVAILABLE
        assert path.stat().st_mode & 0o777 == mode


@pytest.mark.slow
def test_the_dialect_of_a_server_is_named_and_can_be_set(wirelake):
    command = [*WIRELAKE, "serve", "emp", "tcp://127.0.0.1:0", "-q", "--set", "sizes_exclude_themselves=true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stderr.readline().split()[2].rstrip(";")
            refused = wirelake("call", "emp", address, "hello")
            assert refused.code == 69
            assert "this peer leaves the size field out of sizes: set sizes_exclude_themselves=true" in refused.talk
            for value in ("true", "auto"):
                assert wirelake("call", "emp", address, "hello", "--set", f"sizes_exclude_themselves={value}").out == b"hello\n"
        finally:
            process.kill()


@pytest.mark.parametrize("verb", ["serve", "call", "send", "listen"])
def test_every_command_that_speaks_takes_limits_and_names_them(wirelake, verb):
    group = getattr(import_module(f"wirelake.cli.{verb}"), verb)
    context = click.Context(group, info_name=verb)
    for protocol in group.list_commands(context):
        command = group.get_command(context, protocol)
        words = ["x" for one in command.params if isinstance(one, click.Argument) and one.required]
        outcome = wirelake(verb, protocol, *words, "--set", "nonsense=1")
        assert outcome.code == 64, (verb, protocol)
        assert "--set nonsense=1: write it as NAME=VALUE, with one of max_" in outcome.talk, (verb, protocol)


def test_limits_that_only_files_need_are_refused_live(wirelake):
    assert "with one of max_multicast, max_parts" in wirelake("send", "relink", "tcp://127.0.0.1:1", "x", "--set", "speaks=listener").talk


@pytest.mark.slow
def test_limits_reach_the_session(wirelake, server):
    _, address, _ = server
    outcome = wirelake("call", "emp", address, "hello", "--set", "max_message_size=30")
    assert outcome.code == 65
    assert "EMP-35: " in outcome.talk
    assert outcome.talk.endswith("`wirelake explain EMP-35` explains the rule\n")


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


async def _loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_live_commands_run_on_uvloop_where_it_is_installed(monkeypatch):
    assert live.run(_loop_module()) == "uvloop"
    monkeypatch.setattr(live, "is_installed", lambda _: False)
    assert live.run(_loop_module()) == "asyncio"


@pytest.mark.parametrize("protocol", ["emp", "event_mesh", "relink", "yamp", "wolpertinger"])
def test_every_live_command_uses_that_loop(protocol):
    assert import_module(f"wirelake.cli.protocols.{protocol}").run is live.run
