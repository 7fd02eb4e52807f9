"""EMP inside TLS (EMP-42): checked by default, and every mistake with it is said in one clear line."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
import uvloop
from tests.peers.raw import place
from tests.peers.world import ANY, HELLO, log_of, quick, raw_client, raw_server, run, until
from tests.transports.certificates import Authority, self_signed

from wirelake.errors import ConnectFailed, UsageError
from wirelake.peers.admission import ServerLimits
from wirelake.peers.client import Client
from wirelake.peers.emp import Options, Peer, connect, serve
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.transports import tcp
from wirelake.transports.address import parse
from wirelake.transports.memory import MemoryStream
from wirelake.transports.tls import client_context, server_context

TLS = "tls://127.0.0.1:0"


def upper(_peer, request):
    return request.body.upper()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder):
    return Authority(folder)


@pytest.fixture(scope="module")
def trusted(authority):
    """The context of a server with a good certificate."""
    return server_context(*authority.sign("localhost", "127.0.0.1"))


async def refusal(address: str, **options) -> str:
    """Why a client does not get a connection; in one line."""
    with pytest.raises(ConnectFailed) as caught:
        async with connect(address, **options):
            pass
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop])
def test_requests_and_megabytes_inside_tls(authority, trusted, factory):
    async def main():
        context = client_context(ca_file=authority.files.cert)
        async with serve(TLS, tls=trusted, on_request=upper) as server, connect(server.address, tls=context) as peer:
            assert server.address.startswith("tls://")
            assert peer.stream.kind == "tls"
            assert await peer.request(b"secret") == b"SECRET"
            assert await asyncio.gather(*(peer.request(bytes([97 + n]) * 1_000_000) for n in range(8))) == [
                bytes([65 + n]) * 1_000_000 for n in range(8)
            ]

    run(main, loop_factory=factory)


def test_a_self_signed_certificate_is_refused_by_default(folder):  # EMP-42
    async def main():
        alone = self_signed(folder, "127.0.0.1")
        async with serve(TLS, tls=server_context(*alone), on_request=upper) as server:
            text = await refusal(server.address)
            assert text.startswith(f"cannot connect to {server.address}: its certificate is not trusted (self")
            async with connect(server.address, tls=client_context(ca_file=alone.cert)) as peer:
                assert await peer.request(b"a") == b"A"
            async with connect(server.address, tls=client_context(verify=False)) as peer:
                assert await peer.request(b"a") == b"A"

    run(main)


def test_an_unknown_authority_is_refused_by_default(trusted):  # EMP-42
    async def main():
        async with serve(TLS, tls=trusted) as server:
            assert "not trusted (unable to get local issuer" in await refusal(server.address)

    run(main)


def test_a_certificate_for_another_name_is_refused(authority):  # EMP-42
    async def main():
        other = server_context(*authority.sign("elsewhere.example", file="other"))
        async with serve(TLS, tls=other, on_request=upper) as server:
            text = await refusal(server.address, tls=client_context(ca_file=authority.files.cert))
            assert "IP address mismatch" in text
            named = server.address.replace("127.0.0.1", "localhost")
            assert "Hostname mismatch" in await refusal(named, tls=client_context(ca_file=authority.files.cert))
            async with connect(server.address, tls=client_context(verify=False)) as peer:
                assert await peer.request(b"a") == b"A"

    run(main)


def test_tls_to_a_plain_port_is_a_clear_error():  # EMP-42
    async def main():
        async with serve(ANY) as server:
            text = await refusal(server.address.replace("tcp", "tls"))
            assert text.startswith(f"cannot connect to {server.address.replace('tcp', 'tls')}: no TLS there")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"tls://127.0.0.1:{silent.getsockname()[1]}"
            assert await refusal(address, connect_timeout=0.2) == f"cannot connect to {address}: no answer in 0.2 s"

    run(main)


def test_plain_to_a_tls_port_is_a_clear_error(trusted):  # EMP-42
    async def main():
        async with serve(TLS, tls=trusted) as server:
            plain = server.address.replace("tls", "tcp")
            text = await refusal(plain)
            assert text.startswith(f"no handshake with {plain}: ")
            assert "tls://" in text

    run(main)


def test_a_server_outlives_failed_handshakes(authority, trusted):
    async def main():
        async with serve(TLS, tls=trusted, on_request=upper) as server:
            async with raw_client(server.address) as raw:
                await raw.say(b"GET / HTTP/1.0\r\n\r\n", HELLO)
                with contextlib.suppress(ConnectionError):
                    await raw.reader.read()
            await refusal(server.address)
            async with connect(server.address, tls=client_context(ca_file=authority.files.cert)) as peer:
                assert await peer.request(b"still here") == b"STILL HERE"

    run(main)


def test_who_does_not_finish_the_tls_handshake_is_dropped_and_counts_as_a_connection(trusted, monkeypatch):
    monkeypatch.setattr(tcp, "TLS_TIMEOUT", 0.3)

    async def main():
        with log_of("wirelake.server") as lines:
            async with serve(TLS, tls=trusted, limits=ServerLimits(max_connections=2)) as server, contextlib.AsyncExitStack() as stack:
                silent = [await stack.enter_async_context(raw_client(server.address)) for _ in range(3)]
                await asyncio.gather(*(ended(raw) for raw in silent))
                assert server.accepted == 2
                assert not server.peers
            assert any(line.startswith(f"refused a connection at {server.address} from ") for line in lines)

    async def ended(raw):
        with contextlib.suppress(ConnectionError):
            assert await raw.reader.read() == b""

    run(main)


def test_a_server_closes_at_once_although_somebody_is_in_the_tls_handshake(trusted):
    async def main():
        with quick(5):
            async with serve(TLS, tls=trusted) as server, raw_client(server.address) as raw:
                await until(lambda: server.accepted)
                await server.__aexit__(None, None, None)
                with contextlib.suppress(ConnectionError):
                    assert await raw.reader.read() == b""

    run(main)


def test_a_server_closes_cleanly_in_the_very_moment_of_an_accept(trusted):
    async def main():
        for context in (None, trusted):
            async with serve(TLS if context else ANY, tls=context) as server:
                sock = socket.create_connection(place(server.address))
                while not server.accepted:
                    await asyncio.sleep(0)
            sock.close()

    run(main)


@pytest.mark.slow
def test_the_last_word_arrives_through_tls_too(authority, trusted):  # EMP-34
    async def main():
        options = Options(ping_interval=None)
        async with serve(TLS, tls=trusted, options=options) as server:
            context = client_context(ca_file=authority.files.cert)
            reader, writer = await asyncio.open_connection(*place(server.address), ssl=context)
            writer.write(HELLO + HELLO)
            with quick(10):
                said = await reader.read()
            assert b"EMP-25" in said
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    run(main)


def test_a_context_without_tls_in_the_address_is_refused(trusted):
    for attempt in (
        lambda: connect("tcp://127.0.0.1", tls=client_context()),
        lambda: serve("tcp://127.0.0.1", tls=trusted),
        lambda: serve("tls://127.0.0.1"),
    ):
        with pytest.raises(UsageError, match="TLS context"):
            attempt()


def test_a_tls_server_that_closes_before_the_handshake_is_a_clear_error():
    async def main():
        async def hang_up(raw):
            await raw.reader.read(1)

        async with raw_server(hang_up) as address:
            text = await refusal(address.replace("tcp", "tls"))
            assert text.startswith("cannot connect to tls://")
            assert len(text.partition(": ")[2]) > 5

    run(main)


def test_a_client_without_the_certificate_that_is_wanted_is_told_so(authority):
    """With TLS 1.3 the refusal comes after the client's own handshake."""

    async def main():
        context = server_context(*authority.sign("localhost", "127.0.0.1", file="wanting"), client_ca_file=authority.files.cert)
        async with serve(TLS, tls=context) as server:
            text = await refusal(server.address, tls=client_context(ca_file=authority.files.cert))
            assert text.endswith("(does it want a certificate from us?)")

    run(main)


@pytest.mark.slow
def test_what_tls_says_at_the_end_is_told():
    class Refused(MemoryStream):
        async def receive(self):
            alert = ssl.SSLError(1, "alert")
            alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            raise alert

    async def dial(_target, _context):
        return Refused(1)

    async def main():
        client = Client(parse("tls://localhost:1", 1), lambda stream: Peer(Speaker.CLIENT, stream), dial=dial)
        with pytest.raises(ConnectFailed, match=r"wants a certificate from us that it trusts \(tlsv13 alert certificate required\)"):
            async with client:
                pass

    run(main)
