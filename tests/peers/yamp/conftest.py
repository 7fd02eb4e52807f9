"""One transport after the other."""

from __future__ import annotations

import pytest
from tests.peers.ends import Way, ways


@pytest.fixture(params=["tcp", "tls", "ws", "wss", "unix", "udp"])
def way(request, tmp_path, contexts) -> Way:
    """A transport, with certificates where it needs them."""
    return ways(tmp_path, *contexts)[request.param]
