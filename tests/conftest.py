"""Every run is the same run: Hypothesis draws the same examples, no deadline depends on a busy machine, kernels stay as they were."""

import pytest
from hypothesis import settings

from wirelake.protocols import kernel

settings.register_profile("wirelake", derandomize=True, deadline=None)
settings.load_profile("wirelake")


@pytest.fixture(autouse=True)
def _same_kernels(monkeypatch):
    """A test that calls `use_compiled` does so for itself alone."""
    monkeypatch.setattr(kernel, "_use_compiled", kernel._use_compiled)
