"""Connections that do not come about: every cause is told in one clear line."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from tests.peers.world import ANY, QUIET, Raw, raw_server, run

from wirelake.errors import ConnectFailed, PeerError
from wirelake.peers.emp import connect, serve
from wirelake.protocols.emp.messages import Error

LIVE = QUIET


def test_a_port_in_use_is_a_clear_error():
    async def main():
        async with serve(ANY) as server:
            with pytest.raises(ConnectFailed) as caught:
                async with serve(server.address):
                    pass
            assert str(caught.value) == f"cannot listen at {server.address}: Address already in use"

    run(main)


async def refusal(address: str, **options) -> str:
    with pytest.raises(ConnectFailed) as caught:
        async with connect(address, **options):
            pass
    return str(caught.value)


def test_nobody_listening_is_a_clear_error():
    async def main():
        async with serve(ANY) as server:
            address = server.address
        assert await refusal(address) == f"cannot connect to {address}: Connection refused"
        named = address.replace("127.0.0.1", "localhost")
        assert (await refusal(named)).startswith(f"cannot connect to {named}: Connection refused")

    run(main)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".invalid", "no..such.host"])
def test_an_unknown_host_is_a_clear_error(host):
    async def main():
        text = await refusal(f"tcp://{host}:1", connect_timeout=10)
        assert text.startswith(f"cannot connect to tcp://{host}:1: ")
        assert "\n" not in text
        with pytest.raises(ConnectFailed, match="cannot listen at"):
            async with serve(f"tcp://{host}:1"):
                pass

    run(main)


def test_a_host_that_does_not_answer_is_a_clear_error():
    """A listening socket whose queue is full drops what arrives, like a host behind a silent firewall."""

    async def main():
        loop = asyncio.get_running_loop()
        with socket.socket() as full, contextlib.ExitStack() as stack:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    sock.connect(full.getsockname())
            await asyncio.sleep(0.05)
            address = f"tcp://127.0.0.1:{full.getsockname()[1]}"
            begin = loop.time()
            text = await refusal(address, connect_timeout=0.3)
            assert loop.time() - begin < 5
        assert text == f"cannot connect to {address}: no answer in 0.3 s"

    run(main)


def test_a_server_that_speaks_something_else_is_a_clear_error():
    async def main():
        async def web(raw: Raw) -> None:
            await raw.say(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            await raw.reader.read()

        async with raw_server(web) as address:
            text = await refusal(address)
            assert text.startswith(f"no handshake with {address}: EMP-35")

    run(main)


def test_the_errors_of_the_handshake_reach_the_user():
    async def main():
        async def refuse(raw: Raw) -> None:
            await raw.say(Error(3, message="EMP-27: unsupported version"))
            await raw.hear_rest()

        async with raw_server(refuse) as address:
            with pytest.raises(ConnectFailed, match="unsupported version") as caught:
                async with connect(address):
                    pass
            assert isinstance(caught.value.__cause__, PeerError)
            assert "tls" not in str(caught.value)

    run(main)
