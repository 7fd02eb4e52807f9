"""Make every run the same: fixed Hypothesis examples, no deadlines, kernels reset after each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from wirelake.protocols import kernel

settings.register_profile("wirelake", derandomize=True, deadline=None)
settings.load_profile("wirelake")


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
    from wirelake.lake.session.start import SHORT_SESSION, spark_session  # needs the lake extra

    started = spark_session("local[2]", {**SHORT_SESSION, "spark.sql.shuffle.partitions": "2"})  # plans here are many, and small
    yield started
    started.stop()
