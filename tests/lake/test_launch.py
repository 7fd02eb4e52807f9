"""The command that starts Spark's JVM: remembered once, printed again, and never with the arguments of a session."""

from __future__ import annotations

import subprocess

import pytest

from wirelake.lake.session import java, launch
from wirelake.lake.session.settings import LONG_INGEST, SHORT_SESSION

MAIN = "org.apache.spark.launcher.Main"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    for name in launch._OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


@pytest.fixture
def launcher(tmp_path):
    """A Java that counts its starts and prints a command, as Spark's launcher does."""
    path = tmp_path / "launcher java"
    path.write_text(
        f"#!/bin/sh\necho started >>'{tmp_path}/starts'\n"
        f"printf '\\0\\n'; printf '%s\\0' /old/bin/java -cp 'a b:c' -Xmx1g {SUBMIT} --conf spark.secret=hidden pyspark-shell\n"
    )
    path.chmod(0o700)
    return java.Java(str(path), 17, "PATH")


def run(found, command, folder, *arguments: str) -> list[str]:
    """Ask the script for the command, as `spark-class` does."""
    home = java.home(found, folder, folder.parent / "log", printed=command.printed)
    asked = [home / "bin" / "java", "-Xmx128m", "-cp", "jars/*", MAIN, SUBMIT, *arguments]
    said = subprocess.run(asked, capture_output=True, check=True).stdout
    assert said.startswith(b"\0\n")
    assert said.endswith(b"\0")
    return said[2:-1].decode().split("\0")


def test_the_launcher_runs_once(tmp_path, spark_home, launcher):
    first = launch.find(launcher, spark_home, {"spark.driver.memory": "1g"}, tmp_path)
    assert run(launcher, first, tmp_path / "one", "--conf", "spark.secret=hidden", "pyspark-shell")[0] == "/old/bin/java"
    first.keep()
    assert not first.printed.exists()
    assert b"hidden" not in first.path.read_bytes()
    again = launch.find(launcher, spark_home, {"spark.driver.memory": "1g"}, tmp_path)
    assert again.printed is None
    assert again.words() == ["-cp", "a b:c", "-Xmx1g", SUBMIT]
    again.forget()
    assert launch.find(launcher, spark_home, {"spark.driver.memory": "1g"}, tmp_path).printed is not None


def test_a_home_with_a_script_of_its_own_is_started_by_spark(tmp_path, spark_home, launcher):
    (spark_home / "conf").mkdir()
    (spark_home / "conf" / "spark-env.sh").touch()
    assert launch.find(launcher, spark_home, {}, tmp_path) is None


def test_other_settings_of_the_driver_have_another_command(tmp_path, spark_home, launcher):
    paths = {launch.find(launcher, spark_home, {"spark.driver.memory": memory}, tmp_path).path for memory in ("1g", "2g")}
    assert len(paths) == 2
    same = {launch.find(launcher, spark_home, {"spark.local.dir": folder}, tmp_path).path for folder in ("a", "b")}
    assert len(same) == 1
    assert launch.find(launcher, spark_home, SHORT_SESSION, tmp_path) is not None
    assert launch.find(launcher, spark_home, LONG_INGEST, tmp_path) is not None


def test_what_a_user_chose_is_not_stored(tmp_path, spark_home, launcher, monkeypatch):
    assert launch.find(launcher, spark_home, {"spark.driver.extraJavaOptions": "-Dpassword=x"}, tmp_path) is None
    monkeypatch.setenv(launch.SWITCH, "off")
    assert launch.find(launcher, spark_home, {}, tmp_path) is None


@pytest.mark.parametrize("printed", [b"", b"Error: no memory\n", b"\0\n/x/java\0-cp\0a", f"\0\n{SUBMIT}\0".encode()])
def test_what_is_no_command_is_not_remembered(tmp_path, spark_home, launcher, printed):
    command = launch.find(launcher, spark_home, {}, tmp_path)
    command.printed.write_bytes(printed)
    command.keep()
    assert not command.path.exists()


def test_the_version_of_a_java_is_asked_once(tmp_path, spark_home, monkeypatch):
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "java"
    for version in ("21", "25"):
        path.write_text(f"#!/bin/sh\necho >>'{tmp_path}/asked'\necho 'openjdk version \"{version}\"' >&2\n# {version * 8}\n")
        path.chmod(0o700)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert [java.find().version for _ in range(3)] == [int(version)] * 3
        path.unlink()
    assert (tmp_path / "asked").read_text() == "\n\n"
