"""Secrets of Spark's masters and settings are never shown, and need not be on the command line."""

import logging
import socket

import pytest

from wirelake import masking
from wirelake.cli.flags import spark_settings
from wirelake.cli.logs import logging_to_stderr
from wirelake.errors import LakeError, UsageError
from wirelake.explore.query import query
from wirelake.lake.session import start
from wirelake.masking import mask

SECRET = "hunter2hunter2"  # noqa: S105 - of nobody


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch):
    """Secrets of one test are none of another's."""
    monkeypatch.setattr(masking, "_secrets", set())
    for name in ("WIRELAKE_MASTER", "WIRELAKE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nobody():
    """A port of loopback on which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sc://host:15002/;token=abc;user_id=me", "sc://host:15002/;token=***;user_id=me"),
        ("sc://host/;user_id=me;TOKEN=a%20b", "sc://host/;user_id=me;TOKEN=***"),
        ("spark.hadoop.fs.s3a.secret.key=xyz and more", "spark.hadoop.fs.s3a.secret.key=*** and more"),
        ("fs.s3a.access.key=x,y=1", "fs.s3a.access.key=***,y=1"),
        ("password='x y' is wrong", "password=*** is wrong"),
        ("s3://id:pass@bucket/key", "s3://id:***@bucket/key"),
        ("spark://head:7077", "spark://head:7077"),
        ("/captures/token/a.pcap: no such file", "/captures/token/a.pcap: no such file"),
    ],
)
def test_what_is_named_like_a_secret_is_masked(text, shown):
    assert mask(text) == shown


def test_a_value_that_is_known_to_be_secret_is_masked_wherever_it_occurs():
    masking.keep_secrets({"spark.authenticate.secret": SECRET, "spark.executor.memory": "4g 4g", "x.password": "a"})
    assert mask(f"cannot do {SECRET!r} with 4g 4g and a banana") == "cannot do '***' with 4g 4g and a banana"


@pytest.fixture
def no_session(monkeypatch):
    """As in a process of its own: a session that other tests use here is not found."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))


@pytest.mark.slow
def test_the_token_of_a_master_is_nowhere_to_be_read(wirelake, tmp_path, nobody, no_session):
    (tmp_path / "x.pcap").write_bytes(b"x")
    master = f"sc://127.0.0.1:{nobody}/;token={SECRET}"
    outcome = wirelake("-v", "ingest", tmp_path / "lake", tmp_path / "x.pcap", "--master", master)
    assert outcome.code == 1
    assert f"sc://127.0.0.1:{nobody}/;token=***" in outcome.talk
    assert "Traceback" in outcome.talk
    assert SECRET not in outcome.talk
    assert SECRET not in str(query(tmp_path / "lake", "from runs").to_pylist())
    for path in (tmp_path / "lake").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_following_with_such_a_master_is_refused_without_its_token(wirelake, tmp_path):
    outcome = wirelake("ingest", tmp_path / "lake", "--follow", tmp_path, "--master", f"sc://h/;token={SECRET}")
    assert (outcome.code, SECRET in outcome.talk) == (64, False)
    assert "sc://h/;token=***" in outcome.talk


@pytest.mark.slow
def test_master_and_token_come_from_the_environment(wirelake, tmp_path, nobody, monkeypatch, no_session):
    (tmp_path / "x.pcap").write_bytes(b"x")
    monkeypatch.setenv("WIRELAKE_MASTER", f"sc://127.0.0.1:{nobody}")
    monkeypatch.setenv("WIRELAKE_TOKEN", f"{SECRET} ;=")
    outcome = wirelake("ingest", tmp_path / "lake", tmp_path / "x.pcap")
    assert outcome.code == 1
    assert f"no Spark Connect server at sc://127.0.0.1:{nobody}/;token=***:" in outcome.talk
    assert SECRET not in outcome.talk


def test_a_token_is_added_once_and_as_spark_reads_it(monkeypatch):
    monkeypatch.setenv("WIRELAKE_TOKEN", "a;b")
    assert start._with_token("sc://h:1") == "sc://h:1/;token=a%3Bb"
    assert start._with_token("sc://h:1/;user_id=me;") == "sc://h:1/;user_id=me;token=a%3Bb"
    assert start._with_token("sc://h:1/;token=mine") == "sc://h:1/;token=mine"


def test_settings_come_from_the_environment_and_their_secrets_are_masked(monkeypatch):
    monkeypatch.setenv("S3_SECRET", SECRET)
    assert spark_settings(["spark.hadoop.fs.s3a.secret.key=env:S3_SECRET", "a=b=c"]) == {
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "a": "b=c",
    }
    assert mask(f"the job failed: {SECRET}") == "the job failed: ***"
    with pytest.raises(UsageError, match="there is no environment variable NOT_THERE"):
        spark_settings(["x=env:NOT_THERE"])


def test_logs_are_masked_with_their_tracebacks(capsys):
    masking.keep_secret(SECRET)
    with logging_to_stderr():
        try:
            raise LakeError(f"lost {SECRET}")
        except LakeError:
            logging.getLogger("wirelake.lake").exception("token=%s", SECRET)
    talk = capsys.readouterr().err
    assert SECRET not in talk
    assert "lost ***" in talk
    assert "token=***" in talk
