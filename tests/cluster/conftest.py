"""A real cluster on loopback: one master and two workers, each a process group of its own with a working folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.capture.build import pcap
from tests.lake.conftest import CASES, record
from tests.lake.hashing import hashes
from tests.lake.kills import kill_session
from tests.lake.test_captures import talks

from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.session import java
from wirelake.lake.session.settings import SHORT_SESSION

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds that starting may take, however busy the machine."""
SECONDS = 400.0
"""Seconds that an ingest may take."""
_SMALL = {"spark.executor.memory": "600m", "spark.sql.shuffle.partitions": "2", **SHORT_SESSION}
SMALL = tuple(chain(*(("--conf", f"{name}={value}") for name, value in _SMALL.items())))
"""What an ingest is told that has little to do."""


class Cluster:
    """Its processes, by name."""

    def __init__(self, folder: Path, *, has_package: bool = True) -> None:
        self._folder, self._has_package = folder, has_package
        self._java = java.find()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
        for name in ("one", "two"):
            self.add_worker(name)

    def add_worker(self, name: str) -> None:
        """One more machine, or one that comes back."""
        self._start(
            name, "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", f"{self._at(name)}", self.url
        )
        self._said(name, r"(Successfully registered with master)")

    def _at(self, name: str) -> Path:
        return self._folder / name

    def _start(self, name: str, what: str, *words: str) -> None:
        shutil.rmtree(self._at(name), ignore_errors=True)
        self._at(name).mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java.home(self._java, self._folder / f"{name}-java", self._folder / f"{name}.log")),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        if self._has_package:
            environment["PYTHONPATH"] = str(ROOT / "src")  # where a real one has it installed
        (self._folder / f"{name}.log").unlink(missing_ok=True)
        command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{what}", *words]
        self._processes[name] = subprocess.Popen(
            command, cwd=self._at(name), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def _said(self, name: str, pattern: str) -> str:
        log, until, said = self._folder / f"{name}.log", time.monotonic() + PATIENCE, ""
        while time.monotonic() < until:
            said = log.read_text(errors="replace") if log.exists() else ""
            if found := re.search(pattern, said):
                return found[1]
            time.sleep(0.2)
        raise TimeoutError(f"{name} did not say {pattern!r} but {said[-1000:]!r}")

    def worker_of(self, pid: int) -> str:
        """The worker that a process belongs to."""
        leader = os.getsid(pid)
        return next(name for name, process in self._processes.items() if process.pid == leader)

    def kill(self, name: str) -> None:
        """The machine is gone, with everything that ran on it."""
        kill_session(self._processes[name].pid)
        self._processes[name].wait()

    def stop(self) -> None:
        """Leave no process behind."""
        for name in self._processes:
            self.kill(name)


@pytest.fixture(scope="module")
def cluster(spark_process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of a module."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def bare_cluster(spark_process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whose workers know nothing of the package."""
    running = Cluster(tmp_path_factory.mktemp("bare"), has_package=False)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording, which is decoded where it is read, and packets, which are dealt by connection."""
    folder = tmp_path_factory.mktemp("captures") / "in [here]"
    folder.mkdir()
    record(folder / "cases.pcapng", {name: CASES[name] for name in ("plain", "late", "id in flight", "cut")})
    for seed in range(2):
        (folder / f"packets-{seed}.pcap").write_bytes(pcap(talks(seed), link=101))
    return folder


def environment() -> dict[str, str]:
    """Of a driver: nothing of the tests' own Spark."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_HOME"))}
    return clean | {"PYTHONPATH": str(ROOT / "src")}


_started: list[subprocess.Popen[str]] = []


def started(cwd: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """A process somewhere else than here; what is left of it when a test is over is ended."""
    cwd.mkdir(parents=True, exist_ok=True)
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    _started.append(subprocess.Popen([*words], cwd=cwd, env=environment() | more, start_new_session=True, **told))
    return _started[-1]


def driver(cwd: Path, *words: str) -> subprocess.Popen[str]:
    """A driver in Python."""
    return started(cwd, sys.executable, *words)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while _started:
        process = _started.pop()
        kill_session(process.pid)
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a driver printed and said, if all went well."""
    out, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, talk
    return out, talk


@pytest.fixture(scope="session")
def local(spark: Any, captures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one machine makes of the captures."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    ingest(spark, lake, [captures])
    return hashes(lake)
