"""The page about live nodes: its example runs and prints what the page says, and the names in its other pieces exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "event-mesh-live.md").read_text()


def test_the_example_prints_what_the_page_says():
    example = next(iter(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    (said,) = re.findall(r"It prints `(.*?)`", PAGE)
    done = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (said + "\n", "", 0)


def test_the_names_and_options_of_the_other_pieces_exist():
    from wirelake.peers.event_mesh import Options, node
    from wirelake.protocols.event_mesh import Policy, RelayRule
    from wirelake.transports.quic import Quic
    from wirelake.transports.udp import Multicast

    makers = {"Options": Options, "RelayRule": RelayRule, "Policy": Policy, "Multicast": Multicast, "Quic": Quic}
    pieces = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1:]
    assert pieces
    for call in [one for piece in pieces for one in ast.walk(ast.parse(piece)) if isinstance(one, ast.Call)]:
        named = {keyword.arg for keyword in call.keywords}
        if call.func.id == "node":
            assert named <= set(node.__kwdefaults__)
        else:
            assert named <= set(makers[call.func.id].__struct_fields__)


def test_options_that_the_text_names_exist():
    from wirelake.peers.event_mesh import NodeMetrics, Options
    from wirelake.protocols.event_mesh import Policy
    from wirelake.protocols.event_mesh.events import Metrics

    known = {name for one in (Options, NodeMetrics, Policy, Metrics) for name in one.__struct_fields__}
    for owner, name in re.findall(r"`(Options)\.(\w+)", PAGE):
        assert name in known, (owner, name)
    for name in ("hello_interval", "heartbeat_interval", "missed_heartbeats", "rate_limit", "replay_capacity", "replays_evicted"):
        assert f"`{name}`" in PAGE
        assert name in known
