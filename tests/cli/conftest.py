"""The command line as a test sees it: words and bytes in, exit code, bytes and talk out."""

import io
import sys
from typing import NamedTuple

import pytest

from wirelake.cli.main import run


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: bytes
    talk: str


@pytest.fixture
def wirelake(monkeypatch, capfdbinary):
    """Run `wirelake` in this process."""

    def call(*words: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        out, talk = capfdbinary.readouterr()
        return Outcome(code, out, talk.decode())

    return call


@pytest.fixture
def no_spark(monkeypatch):
    """Starting Spark fails the test."""

    def session(*_):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("wirelake.lake.session.start.spark_session", session)
