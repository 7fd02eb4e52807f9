"""Make every run the same: fixed Hypothesis examples (`make soak` draws others), no deadlines, kernels reset after each test.

This file also marks tests that need Spark, and puts all that share a Spark session into one process of a parallel run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.cases import QUICK_EXAMPLES, SOAK_EXAMPLES, TEST_EXAMPLES

from wirelake.protocols import kernel

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

settings.register_profile("wirelake", derandomize=True, deadline=None, max_examples=TEST_EXAMPLES)
settings.register_profile("quick", parent=settings.get_profile("wirelake"), max_examples=QUICK_EXAMPLES)
settings.register_profile("soak", deadline=None, max_examples=SOAK_EXAMPLES, print_blob=True)
settings.load_profile("wirelake")

ROOT = Path(__file__).parents[1]

_TAKES_SESSION = re.compile(r"^def (test_\w+\([^)]*\b(spark|rows)\b|\w+\([^)]*\bspark\b)", re.MULTILINE)
_TAKES_LAKE = re.compile(r"^(def test_|@pytest\.fixture.*\ndef )\w+\([^)]*\blake\b", re.MULTILINE)
_HAS_LAKE = re.compile(r"^def lake\(", re.MULTILINE)


@functools.cache
def shares_session(file: str) -> bool:
    """Whether a file, named from the root of the tree, takes the Spark session of its process, or the lake that is built with it.

    By the text of the file: the process that schedules tests does not import them. A mistake costs a second session, and nothing else.
    """
    if not file.startswith(("tests/lake/", "tests/cluster/", "tests/docs/")):
        return False
    text = (ROOT / file).read_text()
    return bool(_TAKES_SESSION.search(text) or (_TAKES_LAKE.search(text) and not _HAS_LAKE.search(text)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start Spark or take the session, directly or through another fixture; put files with Spark first.

    They take longest: a parallel run that began with the others would wait for them at its end.
    """
    files = {True: set[str](), False: set[str]()}
    for item in items:
        if {"spark", "spark_process"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
            files[shares_session(item.nodeid.partition("::")[0])].add(item.nodeid.partition("::")[0])
    items.sort(key=lambda item: next((rank for rank in (0, 1) if item.nodeid.partition("::")[0] in files[not rank]), 2))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """With `--dist loadfile`: one process for all files that share a Spark session, and one for each other file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SessionOrFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "files that share a Spark session" if shares_session(file) else file

    return SessionOrFile(config, log)


@pytest.fixture(autouse=True, scope="module")
def _kernels_of_a_module() -> Iterator[None]:
    """A fixture of a module that calls `use_compiled` does so for that module alone."""
    before = kernel._use_compiled, kernel._use_plain
    yield
    kernel._use_compiled, kernel._use_plain = before


@pytest.fixture(autouse=True)
def _same_kernels(monkeypatch):
    """A test that calls `use_compiled` does so for itself alone, and then even small messages are scanned compiled."""
    monkeypatch.setattr(kernel, "_use_compiled", kernel._use_compiled)
    monkeypatch.setattr(kernel, "_use_plain", kernel._use_plain)
    monkeypatch.setattr(kernel, "compiled_from", 0)
    monkeypatch.setattr(kernel, "ready", {})


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of this process; starting it takes seconds."""
    from wirelake.lake.session.aot_cache import SWITCH  # needs the lake extra
    from wirelake.lake.session.start import SHORT_SESSION, spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off")  # a session that makes the cache is slower, and making that of a long one takes a minute of CPU
        started = spark_session("local[2]", {**SHORT_SESSION, "spark.sql.shuffle.partitions": "2"})  # plans here are many, and small
    yield started
    started.stop()


@pytest.fixture(scope="session")
def spark_process() -> None:
    """Say that a fixture or a test starts Spark in a process of its own: its tests are marked `spark`."""
