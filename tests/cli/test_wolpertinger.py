"""`wirelake serve`, `call` and `listen` for wolpertinger: as people at several terminals use them."""

import base64
import json
import re
import signal
import subprocess
import sys

import pytest
from tests.transports.prosody import DOMAIN, PASSWORD, needs_prosody, running

from wirelake.peers import key_log

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
SECONDS = 60


def run(*words) -> subprocess.CompletedProcess:
    return subprocess.run([*WIRELAKE, *map(str, words)], capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture
def secrets(tmp_path):
    """Files with a cluster's key, users, and a user's password."""
    for name, text in {
        "cluster": "00ff00ff\n",
        "users": "ada:lovelace\n",
        "password": "lovelace\n",
        "wrong": "byron\n",
        "xmpp": f"{PASSWORD}\n",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def served(*words):
    """A server; its first words say where."""
    return subprocess.Popen(
        [*WIRELAKE, "serve", "wolpertinger", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def address_of(process):
    return process.stderr.readline().split()[2].rstrip(";")


@pytest.mark.slow
def test_calls_trust_and_the_end(secrets):
    recording, log = secrets / "talk.pcapng", secrets / "sessions.log"
    options = ("--record", recording, "--key-log", log, "--cluster-key", secrets / "cluster", "--users", secrets / "users")
    with served("tcp://127.0.0.1:0", *options) as process:
        try:
            address = address_of(process)
            call = ("call", "wolpertinger", address)
            assert run(*call, "Demo.Add", 40, "int64:2").stdout == "42\n"
            assert run(*call, "demo.Echo", "plain text").stdout == '"plain text"\n'
            assert run(*call, "Demo.Echo", '[1, true, "x"]').stdout == '[1,true,"x"]\n'
            infinite = run(*call, "Demo.Echo", "double:-INF", "--dotnet", "--record", secrets / "infinite.pcapng")
            assert infinite.stdout == '"-INF"\n', "JSON has no number for it, and null would be another value"
            sent, answered = re.findall(rb"message_id:1;([A-Za-z0-9+/=]{40,})", (secrets / "infinite.pcapng").read_bytes())
            assert b">-Infinity<" in base64.b64decode(sent), "the client was told --dotnet"
            assert b">-INF<" in base64.b64decode(answered), "the server was not"
            told = run(*call, "Demo.Note", "string:7", "--void")
            assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
            refused = run(*call, "Demo.Shared")
            assert (refused.returncode, refused.stderr) == (1, "wirelake: Demo.Shared failed with error 201 (NotAuthorizedError)\n")
            secret = run(*call, "Demo.Secret", "--level", 2, "--key-log", secrets / "mine.log")
            assert secret.stdout == '"encrypted on its way here"\n'
            assert list(key_log.load(log)) == list(key_log.load(secrets / "mine.log"))
            assert run(*call, "Demo.Shared", "--level", 3, "--cluster-key", secrets / "cluster").stdout == '"known to the cluster"\n'
            ada = ("--level", 4, "--user", "Ada", "--password")
            assert run(*call, "Demo.Private", *ada, secrets / "password").stdout == '"known to you"\n'
            wrong = run(*call, "Demo.Private", *ada, secrets / "wrong")
            assert (wrong.returncode, wrong.stdout) == (69, "")
            assert "UserAuthVerify" in wrong.stderr
            assert "byron" not in wrong.stderr
            assert "no response to Demo.Sleep in time" in run(*call, "Demo.Sleep", "30.0", "--level", 1, "--timeout", 0.2).stderr
            for mistaken, hint in (("Add", "Component.Method"), ("Demo.Echo", "WOLP-19")):
                done = run(*call, mistaken, "null")
                assert (done.returncode, hint in done.stderr) == (64, True)
            heard = run("listen", "wolpertinger", address, "-c", 1, "--level", 1)
            shown = json.loads(heard.stdout)
            assert (heard.returncode, shown["event"], shown["held"]) == (0, "TrustChanged", 1)
        finally:
            process.send_signal(signal.SIGINT)
            out, talk = process.communicate(timeout=SECONDS)
    assert (process.returncode, talk.splitlines()[-1]) == (0, "closing")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [one["parameters"] for one in shown if one.get("call") == "Demo.Add"] == [[40, 2]]
    assert {one["event"] for one in shown if "event" in one} >= {"TrustChanged", "WasReset"}
    assert recording.stat().st_size > 1000
    assert len(list(key_log.load(log))) == 4, "one for each session of level 2 and more, whatever became of it"


def test_what_is_missing_is_said(secrets, wirelake):
    for words, hint in (
        (("call", "wolpertinger", "tcp://127.0.0.1:1", "A.B", "--level", 4), "--user and --password"),
        (("call", "wolpertinger", "tcp://127.0.0.1:1", "A.B", "--level", 3), "--cluster-key"),
        (("call", "wolpertinger", "tcp://127.0.0.1:1", "A.B", "--level", 3, "--cluster-key", secrets / "users"), "hex digits"),
        (("call", "wolpertinger", "xmpp://a@b", "A.B"), "whom to talk to"),
        (("serve", "wolpertinger", "tls://127.0.0.1:0"), "--cert"),
        (("serve", "wolpertinger", "--key-log", secrets / "users"), "chmod 600"),
        (("call", "wolpertinger", "tcp://127.0.0.1:1", "A.B", "--key-log", secrets / "nowhere" / "log"), "nowhere"),
        (("serve", "wolpertinger", "--users", secrets / "password"), "NAME:PASSWORD"),
        (("serve", "wolpertinger", "xmpp://a@b", "--xmpp-server", "nowhere"), "HOST:PORT"),
        (("call", "wolpertinger", "xmpp://a@b/c@d", "A.B", "--xmpp-password", secrets / "none"), "cannot read the password"),
    ):
        outcome = wirelake(*words)
        assert (outcome.code, hint in outcome.talk) == (64, True), outcome.talk
    assert wirelake("call", "wolpertinger", "tcp://127.0.0.1:1", "A.B").code == 69


@pytest.mark.slow
@needs_prosody
def test_over_xmpp(secrets, tmp_path_factory):
    with running(tmp_path_factory.mktemp("prosody")) as xmpp:
        login = ("--xmpp-password", secrets / "xmpp", "--xmpp-server", f"127.0.0.1:{xmpp.port}")
        with served(f"xmpp://bob@{DOMAIN}", *login, "--ca-file", xmpp.authority) as process:
            try:
                assert address_of(process) == f"xmpp://bob@{DOMAIN}"
                done = run(
                    "call", "wolpertinger", f"xmpp://alice@{DOMAIN}/bob@{DOMAIN}", "Demo.Add", 1, 2, *login, "--ca-file", xmpp.authority
                )
                assert done.stdout == "3\n", done.stderr
            finally:
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=SECONDS)
        shown = json.loads(out.splitlines()[0])
        assert shown.pop("received").endswith("Z")
        assert shown == {"from": f"alice@{DOMAIN}", "call": "Demo.Add", "parameters": [1, 2]}
