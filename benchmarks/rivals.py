"""Processes of a benchmark: both sides of ours and of each rival, a broker where a rival needs one, and what is not installed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["absent", "broker", "command", "find_broker", "started", "told"]

PATIENCE = 300
"""Seconds that a line of a process may take."""
LIBRARIES = {
    "nats": "pip install nats-py",
    "grpc": "pip install grpcio",
    "zmq": "pip install pyzmq",
    "zenoh": "pip install eclipse-zenoh",
    "websockets": "pip install websockets",
}
"""Module of a rival -> how to install it."""


def absent() -> dict[str, str]:
    """Rivals that cannot take part -> how to install what they lack."""
    lacking = {name: remedy for name, remedy in LIBRARIES.items() if importlib.util.find_spec(name) is None}
    if "nats" not in lacking and not find_broker():
        lacking["nats"] = "apt-get install nats-server (or put a release of github.com/nats-io/nats-server on the PATH)"
    for name, remedy in lacking.items():
        print(f"{name} does not take part: {remedy}", file=sys.stderr)
    return lacking


def find_broker() -> str:
    """Debian puts it where only root looks."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin") or ""


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """nats-server on a free port of loopback."""
    port = free_port()
    process = subprocess.Popen([find_broker(), "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """A port that nothing has at the moment, for rivals that must be told one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command(script: str, role: str, address: str = "-", count: int = 0) -> list[str]:
    """How to start a process of a benchmark: see `figures.main`."""
    here = str(Path(script).resolve())
    return [sys.executable, here, "--role", role, "--address", address, "--count", str(count)]


@contextlib.contextmanager
def started(script: str, role: str, address: str = "-", count: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process for as long as the block runs; its first line says where it is, read it with `told`."""
    process = subprocess.Popen(command(script, role, address, count), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def told(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints, within PATIENCE."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    line = process.stdout.readline().strip() if ready else ""
    if not line:
        raise SystemExit(f"{process.args!r} said nothing: it broke down, or took longer than {PATIENCE} s")
    return line


def outcome(script: str, role: str, address: str, count: int) -> dict[str, float]:
    """Run a process to its end; what it reported."""
    found = subprocess.run(command(script, role, address, count), check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return dict(json.loads(found.stdout.splitlines()[-1]))
