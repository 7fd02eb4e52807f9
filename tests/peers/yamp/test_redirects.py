"""Redirects live (YAMP-22): surfaced, followed by choice, never in a loop, never from encrypted to plain. And coming back after a loss."""

from __future__ import annotations

import contextlib

import pytest
from tests.peers.world import run, until
from tests.peers.yamp.world import ANY, HANDSHAKE, demo, raw_server

from wirelake.errors import ConnectFailed, ConnectionLost, Redirected, RemoteProtocolError, SessionClosed
from wirelake.peers.backoff import Backoff
from wirelake.peers.yamp import Options, connect, serve
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import CloseRedirect


def redirecting(url):
    """What a server does that sends every client somewhere else."""
    return Options(redirect_to=url)


def test_a_redirect_is_surfaced_unless_it_shall_be_followed():
    async def main():
        async with serve(ANY, demo()) as there, serve(ANY, options=redirecting(there.address)) as here:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(here.address):
                    pass
            assert isinstance(caught.value.__cause__, Redirected)
            assert caught.value.__cause__.url == there.address
            assert there.address in str(caught.value)
            client = connect(here.address, follow_redirects=True)
            async with client as peer:
                assert await peer.request("echo", "hello") == "hello"
                assert str(client.target) == there.address

    run(main)


@pytest.mark.parametrize("scheme", ["tls", "ws", "wss"])
def test_a_redirect_may_lead_to_another_transport(scheme, contexts):
    async def main():
        server, client = contexts
        tls = server if scheme in ("tls", "wss") else None
        path = "/some/where?x=1" if scheme.startswith("w") else ""
        async with (
            serve(f"{scheme}://127.0.0.1:0{path}", demo(), tls=tls) as there,
            serve(ANY, options=redirecting(there.address)) as here,
            connect(here.address, follow_redirects=True, tls=client) as peer,
        ):
            assert peer.stream.kind == scheme
            assert await peer.request("echo", 1) == 1

    run(main)


@pytest.mark.parametrize("scheme", ["udp", "unix"])
def test_a_redirect_leads_to_its_like_and_from_elsewhere_it_does_not(scheme, tmp_path):
    async def main():
        first, second = (ANY.replace("tcp", "udp"),) * 2 if scheme == "udp" else (f"unix://{tmp_path}/a", f"unix://{tmp_path}/b")
        async with (
            serve(first, demo()) as there,
            serve(second, options=redirecting(there.address)) as here,
            serve(ANY, options=redirecting(there.address)) as elsewhere,
        ):
            async with connect(here.address, follow_redirects=True) as peer:
                assert peer.stream.kind == scheme
                assert await peer.request("echo", 1) == 1
            with pytest.raises(RemoteProtocolError, match="of its like"):
                async with connect(elsewhere.address, follow_redirects=True):
                    pass

    run(main)


def test_five_redirects_are_followed_and_a_sixth_is_not():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            places = [await stack.enter_async_context(serve(ANY, demo()))]
            for _ in range(6):
                places.append(await stack.enter_async_context(serve(ANY, options=redirecting(places[-1].address))))
            async with connect(places[5].address, follow_redirects=True) as peer:
                assert await peer.request("echo", 1) == 1
            with pytest.raises(RemoteProtocolError, match="5 redirects in a row") as caught:
                async with connect(places[6].address, follow_redirects=True):
                    pass
            assert caught.value.fault is Fault.REDIRECT_REFUSED

    run(main)


def test_a_loop_of_redirects_ends_also_if_each_of_them_is_a_session():
    async def main():
        hops, place = [], []

        async def bounce(raw):
            await raw.greet()
            hops.append(1)
            await raw.say(CloseRedirect(place[0]))

        async def stay(client):
            while True:
                await (await client.peer()).over()

        async with raw_server(bounce) as address:
            place.append(address)
            client = connect(address, follow_redirects=True)
            async with client:
                with pytest.raises(RemoteProtocolError, match="5 redirects in a row"):
                    await stay(client)
            assert len(hops) == 6

    run(main)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "tcp://127.0.0.1", "unix:///tmp/x", "tcp://u@127.0.0.1:1", "nonsense"])
def test_a_redirect_that_must_not_be_followed_is_an_error(url):
    async def main():
        async with serve(ANY, options=redirecting(url)) as here:
            with pytest.raises(RemoteProtocolError) as caught:
                async with connect(here.address, follow_redirects=True):
                    pass
            assert caught.value.fault is Fault.REDIRECT_REFUSED

    run(main)


def test_no_redirect_leads_from_encrypted_to_plain(contexts):
    async def main():
        server, client = contexts
        async with serve(ANY, demo()) as plain, serve("tls://127.0.0.1:0", options=redirecting(plain.address), tls=server) as here:
            with pytest.raises(RemoteProtocolError, match="not encrypted"):
                async with connect(here.address, tls=client, follow_redirects=True):
                    pass

    run(main)


def test_a_server_may_send_a_client_away_at_any_moment():
    async def main():
        async with serve(ANY, demo()) as there, serve(ANY, demo()) as here:
            client = connect(here.address, follow_redirects=True)
            async with client as peer:
                await until(lambda: here.peers)
                (other,) = here.peers
                other.redirect(there.address)
                reason = await peer.over()
                assert (type(reason), reason.url) == (Redirected, there.address)
                with pytest.raises(Redirected):
                    await peer.request("echo")
                again = await client.peer()
                assert await again.request("echo", 1) == 1
                assert there.accepted == 1

    run(main)


# Reconnecting.

SOON = Backoff(first=0.01, most=0.05)


def test_a_client_comes_back_after_a_loss():
    async def main():
        talks = []

        async def talk(raw):
            await raw.greet()
            talks.append(raw)
            if len(talks) < 3:
                return
            await raw.hear_rest()

        async with raw_server(talk) as address:
            client = connect(address, reconnect=SOON)
            async with client as first:
                assert type(await first.over()) is ConnectionLost
                await until(lambda: client.connections == 3)
                assert (await client.peer()).is_open

    run(main)


def test_a_client_that_was_redirected_comes_back_to_where_it_began():
    async def main():
        async with serve(ANY, demo()) as home:
            async with serve(ANY, demo()) as away:
                client = connect(home.address, reconnect=SOON, follow_redirects=True)
                peer = await client.__aenter__()
                await until(lambda: home.peers)
                next(iter(home.peers)).redirect(away.address)
                await peer.over()
                peer = await client.peer()
                assert str(client.target) == away.address
            assert isinstance(await peer.over(), SessionClosed)
            peer = await client.peer()
            assert str(client.target) == home.address
            assert await peer.request("echo", 1) == 1
            await client.__aexit__(None, None, None)

    run(main)


def test_a_refused_handshake_is_a_connect_error_with_the_server_s_words():
    async def main():
        async with serve(ANY, options=Options(serializers={"json": Options().serializers["json"]})) as server:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(server.address, options=Options(serializer="msgpack")):
                    pass
            assert str(caught.value).endswith("the peer closed the session: Serializer msgpack not supported. Use json")
        assert HANDSHAKE == b"\x00\x00\x01\x04json"

    run(main)


def test_an_application_may_refuse_where_a_redirect_leads():
    async def main():
        async with serve(ANY, demo()) as there, serve(ANY, options=redirecting(there.address)) as here:
            asked = []

            def may_follow(target):
                asked.append(str(target))
                return len(asked) > 1

            with pytest.raises(RemoteProtocolError, match="does not want to go there") as caught:
                async with connect(here.address, follow_redirects=True, may_follow=may_follow):
                    pass
            assert caught.value.fault is Fault.REDIRECT_REFUSED
            async with connect(here.address, follow_redirects=True, may_follow=may_follow) as peer:
                assert await peer.request("echo", 1) == 1
            assert asked == [there.address] * 2

    run(main)
