"""What every test of a pair needs: a link that cuts."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1, 3, 4096])
def cut(request):
    """At how many bytes the link cuts."""
    return request.param
