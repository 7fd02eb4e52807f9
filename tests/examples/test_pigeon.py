"""PIGEON/1 of examples/: a protocol of another package speaks live, is decoded, ingested, judged and reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pigeon"
TWICE = bytes.fromhex("5001000101 50020006000000016869 5001000101")
"""A hello, a note, and a hello that §3.1 forbids."""

pytestmark = pytest.mark.slow  # pip builds and installs the example


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder that pip installed the package into: built here from a copy, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "pigeon", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def environment(installed) -> dict[str, str]:
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def wirelake(environment):
    def run(*words: str, stdin: str = "", timeout: float = 60) -> str:
        command = [sys.executable, "-m", "wirelake.cli.main", *words]
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, timeout=timeout)
        assert done.returncode in (0, 65), done.stderr
        return done.stdout

    return run


def test_it_is_decoded_and_encoded(wirelake):
    objects = [json.loads(line) for line in wirelake("decode", "pigeon", "--hex", stdin=TWICE.hex() + "4142").splitlines()]
    assert [one.get("type", one.get("fault")) for one in objects] == ["hello", "note", "hello", "NOT_A_FRAME"]
    assert (objects[1]["text"], objects[3]["clause"]) == ("hi", "§2.1")
    assert wirelake("encode", "pigeon", "--hex", stdin=json.dumps(objects[1])).strip() == TWICE[5:15].hex()


def test_its_faults_are_explained_without_a_rule_book(wirelake):
    (found,) = map(json.loads, wirelake("explain", "pigeon/not_a_frame", "-T", "json").splitlines())
    assert (found["protocol"], found["faults"][0]["name"], found["faults"][0]["lake"]) == ("pigeon", "NOT_A_FRAME", "`violations`, error")
    assert wirelake("explain", "pigeon/not_a_frame").startswith("pigeon: a protocol of another package, without a rule book\n")


def test_it_is_one_of_the_choices(wirelake):
    assert "pigeon" in wirelake("serve", "--help")
    assert "pigeon" not in wirelake("call", "--help")


@pytest.fixture(scope="module")
def recording(wirelake, environment, tmp_path_factory) -> Path:
    """Two sessions with a live server: one by the book, and one whose client says hello twice."""
    path = tmp_path_factory.mktemp("recording") / "server.pcapng"
    command = [sys.executable, "-m", "wirelake.cli.main", "serve", "pigeon", "tcp://127.0.0.1:0", "--record", str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = server.stderr.readline().split("listening at ")[1].split(";")[0]
            wirelake("send", "pigeon", address, "hello", "wörld")
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=30) as client:
                client.sendall(TWICE)
                while client.recv(1000):
                    pass
        finally:
            server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=60)
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["hello", "wörld", "hi"], err
    return path


def test_a_recording_is_decoded_as_it_was_spoken(wirelake, recording):
    objects = [json.loads(line) for line in wirelake("decode", "pigeon", str(recording)).splitlines()]
    assert sorted(one["text"] for one in objects if one["type"] == "note") == ["hello", "hi", "wörld"]


def test_a_lake_has_its_messages_its_table_and_its_violations(spark_process, wirelake, recording, tmp_path):
    lake = str(tmp_path / "lake")
    wirelake("ingest", lake, str(recording), timeout=540)

    def rows(sql: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in wirelake("query", lake, sql, "-T", "json").splitlines()]

    assert {row["protocol"] for row in rows("SELECT DISTINCT protocol FROM messages")} == {"pigeon"}
    assert [row["text"] for row in rows("SELECT text FROM pigeon WHERE text IS NOT NULL ORDER BY text")] == ["hello", "hi", "wörld"]
    broken = rows("SELECT protocol, rule, clause, severity, direction FROM violations WHERE severity = 'error'")
    assert {"protocol": "pigeon", "rule": "HELLO_EXPECTED", "clause": "§3.1", "severity": "error", "direction": "to_server"} in broken
    assert rows("SELECT protocol, handshake FROM sessions") == [{"protocol": "pigeon", "handshake": "complete"}] * 2
    page = tmp_path / "report.html"
    wirelake("report", lake, "-o", str(page))
    assert "pigeon" in page.read_text()
