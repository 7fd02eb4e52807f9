"""Spark Connect: a client without a virtual machine of its own ingests, reads captures, and reads the lake."""

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from tests.cluster.conftest import PATIENCE, driver, environment, finish
from tests.lake.hashing import hashes
from tests.lake.kills import kill_session

from wirelake.lake.session import java

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent
CLIENT = str(Path(__file__).with_name("connect_client.py"))


@pytest.fixture(scope="module")
def server(spark_process, tmp_path_factory):
    """A Connect server on loopback; gives its address."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = java.home(java.find(), folder / "java", folder / "java.log")
    told = environment() | {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    main = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]")
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *main, *conf, "spark-internal"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=told | {"PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.2)
    yield f"sc://127.0.0.1:{port}"
    kill_session(process.pid)
    process.wait()


def test_a_connect_client_ingests_and_reads(server, captures, local, tmp_path):
    words = ("ingest", str(tmp_path / "lake"), str(captures), "--master", server)
    finish(driver(tmp_path / "cwd", "-m", "wirelake.cli.main", *words))
    assert hashes(tmp_path / "lake") == local
    out, _ = finish(driver(tmp_path / "cwd", CLIENT, server, str(captures), str(tmp_path / "lake")))
    (messages, packets, exchanges), (sessions,), (ranges,) = (list(map(int, line.split())) for line in out.splitlines())
    assert min(messages, packets, exchanges, sessions) > 0
    assert ranges == 3, "byte ranges of large captures are walked by tasks"
