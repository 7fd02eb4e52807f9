"""A real XMPP server for tests: Prosody on loopback, with a configuration, accounts and a certificate of its own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.transports.certificates import Authority

PROSODY = shutil.which("prosody")
needs_prosody = pytest.mark.skipif(PROSODY is None, reason="prosody is not installed: make tools, or apt-get install -y prosody")
DOMAIN = "localhost"
ACCOUNTS = ("alice", "bob", "carol")
PASSWORD = "open sesame"  # noqa: S105 - of accounts that live as long as a test
PATIENCE = 30.0
"""Seconds after which the server will not start any more."""

CONFIG = """
run_as_root = true
pidfile = "{folder}/prosody.pid"
data_path = "{folder}/data"
certificates = "{folder}"
plugin_paths = {{}}
log = {{ {{ levels = {{ min = "info" }}, to = "file", filename = "{folder}/prosody.log" }} }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
c2s_direct_tls_ports = {{ {direct_port} }}
modules_enabled = {{ "roster", "saslauth", "tls", "disco" }}
modules_disabled = {{ "s2s", "offline", "http", "posix" }}
authentication = "internal_plain"
c2s_require_encryption = true
ssl = {{ key = "{key}", certificate = "{cert}" }}
VirtualHost "{domain}"
"""


class XmppServer(NamedTuple):
    """Where it is, and whom to trust."""

    port: int
    direct_port: int
    authority: Path
    log: Path

    def account(self, user: str, peer: str = "") -> str:
        """The address of an account, and of whom it talks to."""
        return f"xmpp://{user}@{DOMAIN}:{self.port}{f'/{peer}@{DOMAIN}' if peer else ''}"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[XmppServer]:
    """A server that is there until the end of the block."""
    authority = Authority(folder)
    cert, key = authority.sign(DOMAIN, file="prosody")
    accounts = folder / "data" / DOMAIN / "accounts"
    accounts.mkdir(parents=True)
    for name in ACCOUNTS:
        (accounts / f"{name}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}"; }};\n')
    port, direct_port = free_port(), free_port()
    config = folder / "prosody.cfg.lua"
    config.write_text(CONFIG.format(folder=folder, port=port, direct_port=direct_port, key=key, cert=cert, domain=DOMAIN))
    with subprocess.Popen([str(PROSODY), "--config", str(config), "-F"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_for(port, process)
            yield XmppServer(port, direct_port, authority.files.cert, folder / "prosody.log")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen) -> None:
    """Until somebody listens there."""
    begin = time.monotonic()
    while time.monotonic() - begin < PATIENCE:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, f"prosody ended: {process.stdout.read().decode(errors='replace')}"
        time.sleep(0.05)
    raise AssertionError("prosody does not listen")
