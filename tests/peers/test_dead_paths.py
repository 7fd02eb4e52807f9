"""A path that is dead is noticed: by the system, and by requests that are never answered; a plain timeout ends nothing."""

from __future__ import annotations

import asyncio
import functools
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from tests.peers.ends import ANY, ways
from tests.peers.raw import RawEnd, listening
from tests.peers.world import HELLO, log_of, run, until

from wirelake.errors import ConnectionLost, DeliveryFailed, RequestTimeout
from wirelake.peers import emp, relink, wolpertinger, yamp
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.transports.xmpp_login import Login, Xmpp

SOON = 0.02
GREETINGS = {"emp": HELLO, "yamp": b"\0\0\1\4json", "wolpertinger": b""}
OPTIONS: dict[str, Callable[..., Any]] = {
    "emp": emp.Options,
    "yamp": yamp.Options,
    "wolpertinger": functools.partial(wolpertinger.Options, confirm_timeout=SOON, retries=0),
}
UNANSWERED = RequestTimeout, DeliveryFailed
"""wolpertinger also tells that a call was not confirmed."""
CONNECT: dict[str, Callable[..., Any]] = {"emp": emp.connect, "yamp": yamp.connect, "wolpertinger": wolpertinger.connect}


async def ask(protocol: str, peer: Any, timeout: float = SOON) -> None:
    """A request that nobody will answer."""
    if protocol == "emp":
        await peer.request(b"?", timeout=timeout)
    elif protocol == "yamp":
        await peer.request("echo", timeout=timeout)
    else:
        await peer.call("Any", "Thing", timeout=timeout)


class Deaf:
    """A server that shakes hands, and then says only what it is told to."""

    def __init__(self, protocol: str) -> None:
        self.ends: list[RawEnd] = []
        self._greeting = GREETINGS[protocol]

    async def talk(self, raw: RawEnd) -> None:
        self.ends.append(raw)
        raw.writer.write(self._greeting)
        await raw.reader.read()


@pytest.mark.parametrize("protocol", ["emp", "yamp", "wolpertinger"])
def test_three_unanswered_requests_and_silence_end_the_connection(protocol):
    async def main():
        deaf = Deaf(protocol)
        options = OPTIONS[protocol](silence_timeout=4 * SOON, linger=0.1)
        async with listening(RawEnd, deaf.talk) as address, CONNECT[protocol](address, options=options) as peer:
            with log_of("wirelake.driver") as lines:
                count = 0
                while peer.ended is None and count < 50:
                    with pytest.raises(UNANSWERED):
                        await ask(protocol, peer)
                    count += 1
            assert isinstance(await peer.over(), ConnectionLost)
            assert count >= 3
            assert "requests in a row timed out" in "\n".join(lines)

    run(main)


@pytest.mark.parametrize("protocol", ["emp", "yamp", "wolpertinger"])
def test_a_client_that_reconnects_is_connected_again(protocol):
    async def main():
        deaf = Deaf(protocol)
        options = OPTIONS[protocol](silence_timeout=0, linger=0.1)
        async with listening(RawEnd, deaf.talk) as address:
            client = CONNECT[protocol](address, options=options, reconnect=emp.Backoff(first=0.01))
            async with client as peer:
                for _ in range(3):
                    with pytest.raises(UNANSWERED):
                        await ask(protocol, peer)
                assert await client.peer() is not peer
        assert len(deaf.ends) == 2

    run(main)


@pytest.mark.parametrize("protocol", ["emp", "yamp", "wolpertinger"])
def test_timeouts_alone_end_nothing(protocol):
    """Many in a short time are slow answers; two in a long time are too few."""

    async def main():
        deaf = Deaf(protocol)
        many, two = OPTIONS[protocol](silence_timeout=60.0, linger=0.1), OPTIONS[protocol](silence_timeout=0.0, linger=0.1)
        for options, count in ((many, 6), (two, 2)):
            async with listening(RawEnd, deaf.talk) as address, CONNECT[protocol](address, options=options) as peer:
                for _ in range(count):
                    with pytest.raises(UNANSWERED):
                        await ask(protocol, peer)
                assert peer.ended is None

    run(main)


def test_a_peer_that_says_something_is_not_silent():
    async def main():
        deaf = Deaf("yamp")
        options = yamp.Options(silence_timeout=0.0, linger=0.1)
        async with listening(RawEnd, deaf.talk) as address, yamp.connect(address, options=options) as peer:
            heard = peer.subscribe(">")
            for _ in range(8):
                with pytest.raises(UNANSWERED):
                    await ask("yamp", peer)
                deaf.ends[0].writer.write(b"\x05" + bytes(16) + b"\1x" + b"\0\0\0\4null")
                await anext(heard)
            assert peer.is_open

    run(main)


def test_without_reading_nothing_can_be_heard():
    """A peer whose events wait for a handler of ours is not silent."""

    async def main():
        deaf = Deaf("yamp")
        is_over = asyncio.Event()

        async def slow(_peer: object, _event: object) -> None:
            await is_over.wait()

        service = yamp.Service()
        service.on(">", slow)
        options = yamp.Options(silence_timeout=0.0, linger=0.1, max_in_flight=1)
        async with listening(RawEnd, deaf.talk) as address, yamp.connect(address, service, options=options) as peer:
            deaf.ends[0].writer.write(b"\x05" + bytes(16) + b"\1x" + b"\0\0\0\4null")
            await until(lambda: not peer._driver._readable.is_set())
            for _ in range(5):
                with pytest.raises(UNANSWERED):
                    await ask("yamp", peer)
            assert peer.is_open
            is_over.set()

    run(main)


def test_over_xmpp_the_peer_is_given_up_and_the_login_stays():
    async def main():
        login = Login("me@example.org", Xmpp())
        streams = [login.stream(name) for name in ("gone@example.org", "here@example.org")]
        options = OPTIONS["wolpertinger"](silence_timeout=0.0, linger=0.01)
        peers = [wolpertinger.Peer(Speaker.CLIENT, one, options) for one in streams]
        async with asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(peer.run())
            for _ in range(3):
                with pytest.raises(UNANSWERED):
                    await ask("wolpertinger", peers[0])
            assert isinstance(await peers[0].over(), ConnectionLost)
            assert peers[1].ended is None
            assert not login._over.is_set()
            peers[1].close()

    run(main)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws"])
def test_the_system_watches_both_ends_of_every_path(tmp_path, contexts, scheme, loop):
    async def main():
        way = ways(tmp_path, *contexts)[scheme]
        options = yamp.Options(path_timeout=80.0)
        async with (
            yamp.serve(way.address, tls=way.server) as server,
            yamp.connect(server.address, tls=way.client, options=options) as peer,
        ):
            (other,) = server.peers
            assert watched(peer.stream) == (True, 80_000, 40)
            assert watched(other.stream) == (True, 120_000, 60)

    run(main, loop_factory=loop)


def watched(stream: Any) -> tuple[bool, int, int]:
    """Whether the system probes the path, and milliseconds and seconds until it gives it up and until it probes."""
    sock = getattr(stream, "_inner", stream)._socket
    assert sys.platform == "linux"
    found = [sock.getsockopt(socket.IPPROTO_TCP, one) for one in (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE)]
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)), found[0], found[1]


def test_a_path_is_not_given_up_before_a_stalled_peer():
    async def main():
        options = emp.Options(path_timeout=10.0, stall_timeout=300.0)
        async with emp.serve(ANY) as server, emp.connect(server.address, options=options) as peer:
            assert watched(peer.stream)[1] == 300_000
        async with emp.serve(ANY) as server, emp.connect(server.address, options=emp.Options(path_timeout=None)) as peer:
            assert watched(peer.stream)[:2] == (False, 0)

    run(main)


def test_a_link_is_watched_too():
    async def main():
        async def take(link: Any) -> None:
            async for _ in link:
                pass

        demo = relink.Endpoint("demo", 4, 4)
        async with relink.serve(ANY, {demo: take}) as listener, relink.connect(listener.address, demo) as link:
            assert watched(link._carrier.stream) == (True, 120_000, 60)

    run(main)
