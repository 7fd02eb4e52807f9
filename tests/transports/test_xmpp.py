"""XMPP as a transport of lines, over a real server: logins, conversations with many, trouble."""

from __future__ import annotations

import asyncio
import base64
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.world import run, until
from tests.transports.certificates import Authority
from tests.transports.prosody import PASSWORD, needs_prosody, running

from wirelake.errors import UsageError
from wirelake.transports.address import parse
from wirelake.transports.tls import client_context
from wirelake.transports.xmpp import Login, Xmpp, XmppStream, bare, connect, listen, login
from wirelake.transports.xmpp_login import MAX_WAITING

OPTIONS = Xmpp(password=PASSWORD)
WRONG = "mellon"


def target(text):
    return parse(text, None, ("xmpp",))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("prosody")) as found:
        yield found


@pytest.fixture(scope="module")
def tls(server):
    return client_context(ca_file=server.authority)


async def lines(stream, count):
    """So many lines, however they are cut."""
    got = b""
    while got.count(b"\n") < count:
        data = await stream.receive()
        assert data, "the stream ended"
        got += data
    return got.splitlines()


@needs_prosody
def test_lines_travel_both_ways_between_two_accounts(server, tls):
    async def main():
        arrived = asyncio.Queue()
        listener = await listen(target(server.account("bob")), arrived.put_nowait, OPTIONS, tls)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            one = await connect(target(server.account("alice", "bob")), OPTIONS, tls)
            one.send(b"message_id:1;PHg+\nmessage_id:2;<&>\n")
            two = await arrived.get()
            assert (two.kind, two.local, two.remote) == ("xmpp", ("bob@localhost", 0), ("alice@localhost", 0))
            assert await lines(two, 2) == [b"message_id:1;PHg+", b"message_id:2;<&>"]
            for number in range(300):
                two.send(b"result:0;message_id:%d;\n" % number)
            assert await lines(one, 300) == [b"result:0;message_id:%d;" % number for number in range(300)]
            await one.drain()
            assert (one.unsent, one.congested) == (0, False)
            await one.close()
            await one.close()
            listener.close()
            await two.close()

    run(main)


@needs_prosody
def test_one_login_talks_with_many_and_names_are_compared_without_case(server, tls):
    async def main():
        arrived = asyncio.Queue()
        listener = await listen(target(server.account("Bob")), arrived.put_nowait, OPTIONS, tls)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            ends = [await connect(target(server.account(name, "BOB")), OPTIONS, tls) for name in ("alice", "carol")]
            for end in ends:
                end.send(b"from " + end.local[0].encode() + b"\n")
            streams = [await arrived.get(), await arrived.get()]
            assert {stream.remote[0]: await lines(stream, 1) for stream in streams} == {
                "alice@localhost": [b"from alice@localhost"],
                "carol@localhost": [b"from carol@localhost"],
            }
            with pytest.raises(UsageError, match="session with alice@localhost already"):
                listener.stream("ALICE@localhost/anywhere")
            for stream in streams:
                stream.send(b"to " + stream.remote[0].encode() + b"\n")
            assert [await lines(end, 1) for end in ends] == [[b"to alice@localhost"], [b"to carol@localhost"]]
            assert arrived.empty()
            for one in (*ends, *streams):
                await one.close()
            listener.close()

    run(main)


@needs_prosody
def test_who_is_not_there_is_told_at_once(server, tls):
    async def main():
        stream = await connect(target(server.account("alice", "carol")), OPTIONS, tls)
        stream.send(b"anybody?\n")
        with pytest.raises(OSError, match="carol@localhost cannot be reached \\(service-unavailable\\)"):
            await stream.receive()
        await stream.close()

    run(main)


@needs_prosody
def test_a_wrong_password_is_told_and_never_shown(server, tls, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "password").write_text("mellon\nnot this line\n")

    async def main():
        for options in (Xmpp(password=WRONG), Xmpp(password_file=tmp_path / "password")):
            with pytest.raises(OSError, match="refuses the account or its password"):
                await login(target(server.account("alice")), options, tls)
            assert "mellon" not in repr(options)
        right = await login(target(server.account("alice")), OPTIONS, tls)
        right.stream("bob@localhost").send(b"a secret body\n")
        right.close()
        right.lose("")
        await right.over()

    run(main)
    for secret in ("mellon", PASSWORD, "secret body"):
        assert secret not in caplog.text
    assert base64.b64encode(b"\0alice\0mellon").decode() not in caplog.text
    assert "SEND" not in caplog.text


@needs_prosody
def test_a_server_that_nobody_vouches_for_is_refused(server, tmp_path):
    strangers = client_context(ca_file=Authority(tmp_path).files.cert)

    async def main():
        for options in (OPTIONS, Xmpp(password=PASSWORD, direct_tls=True, server=("127.0.0.1", server.direct_port))):
            with pytest.raises(OSError, match="certificate"):
                await login(target(server.account("alice")), options, strangers)

    run(main)


@needs_prosody
def test_tls_from_the_first_byte(server, tls):
    async def main():
        options = Xmpp(password=PASSWORD, direct_tls=True, server=("127.0.0.1", server.direct_port))
        found = await login(target("xmpp://alice@localhost"), options, tls)
        found.close()
        assert await found.over() == ""

    run(main)


@needs_prosody
def test_a_listener_that_loses_its_login_logs_in_again(server, tls, monkeypatch):
    monkeypatch.setattr("wirelake.transports.xmpp.FIRST_PAUSE", 0.01)

    async def main():
        arrived = asyncio.Queue()
        listener = await listen(target(server.account("bob")), arrived.put_nowait, OPTIONS, tls)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            first = listener._login
            met = listener.stream("carol@localhost")
            first._client.transport.abort()
            with pytest.raises(OSError, match="the server closed the connection"):
                await met.receive()
            await met.close()
            await until(lambda: listener._login not in (None, first))
            one = await connect(target(server.account("alice", "bob")), OPTIONS, tls)
            one.send(b"again\n")
            two = await arrived.get()
            assert await lines(two, 1) == [b"again"]
            await one.close()
            listener.close()
            await two.close()

    run(main)


def test_nobody_listens_there():
    async def main():
        with pytest.raises(OSError, match="refused"):
            await connect(target("xmpp://alice@localhost:1/bob@localhost"), Xmpp(server=("127.0.0.1", 1)), client_context())

    run(main)


@pytest.mark.slow
def test_somebody_who_does_not_speak_xmpp_costs_the_login_timeout():
    async def main():
        async def mute(reader, writer):
            await reader.read()
            writer.close()
            gone.set()

        gone = asyncio.Event()
        other = await asyncio.start_server(mute, "127.0.0.1", 0)
        place = other.sockets[0].getsockname()[:2]
        with pytest.raises(OSError, match=r"no login in 0\.2 s"):
            await login(target("xmpp://alice@localhost"), Xmpp(server=place, login_timeout=0.2), client_context())
        await gone.wait()
        other.close()

    run(main)


def test_a_flood_is_dropped_and_counted_beyond_its_limit():
    async def main():
        stream = XmppStream(Login("bob@localhost", OPTIONS), "alice@localhost")
        for _ in range(6):
            stream.put("x" * (MAX_WAITING // 4 - 1))
        assert stream.lost == 2
        assert len(await stream.receive()) == MAX_WAITING
        stream.put("room\nagain")
        assert await stream.receive() == b"room again\n"

    run(main)


def test_a_login_is_not_an_address_to_talk_to():
    async def main():
        with pytest.raises(UsageError, match="whom to talk to: write xmpp://alice@localhost/peer@domain"):
            await connect(target("xmpp://alice@localhost"))
        with pytest.raises(UsageError, match="password from"):
            await login(target("xmpp://alice@localhost"), Xmpp(password_file=Path("nowhere")))

    run(main)


def test_addresses_are_compared_bare():
    assert bare("Alice@Example.ORG/Phone") == bare("alice@example.org") == "alice@example.org"


def test_without_the_library_one_is_told_what_to_install():
    code = """
import asyncio, sys
sys.modules["slixmpp"] = None
from wirelake.transports import xmpp
from wirelake.transports.address import parse
from wirelake.transports.tls import client_context
try:
    asyncio.run(xmpp.login(parse("xmpp://a@b:1", None, ("xmpp",)), tls=client_context()))
except Exception as reason:
    print(type(reason).__name__, reason)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "MissingExtra slixmpp is not installed: run `pip install 'wirelake[wolpertinger]'`\n"


@pytest.mark.slow
def test_a_server_without_tls_is_not_blamed_on_the_password():
    features = (
        b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='1' "
        b"from='localhost' version='1.0'><stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>"
        b"<mechanism>PLAIN</mechanism></mechanisms></stream:features>"
    )

    async def main():
        said = []

        async def greet(reader, writer):
            said.append(await reader.read(4096))
            writer.write(features)
            while data := await reader.read(4096):
                said.append(data)
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            options = Xmpp(password=PASSWORD, server=server.sockets[0].getsockname())
            with pytest.raises(OSError, match="the server offers no TLS"):
                await login(target("xmpp://alice@localhost"), options, client_context())
        assert b"<auth" not in b"".join(said)

    run(main)
