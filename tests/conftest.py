"""Every run is the same run: Hypothesis draws the same examples, no deadline depends on a busy machine, kernels stay as they were."""

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
    """A test that calls `use_compiled` does so for itself alone."""
    monkeypatch.setattr(kernel, "_use_compiled", kernel._use_compiled)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of all tests; starting it takes seconds."""
    from wirelake.lake.session.start import spark_session  # only who asks for it pays

    started = spark_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield started
    started.stop()
