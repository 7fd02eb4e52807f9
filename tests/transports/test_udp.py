"""UDP on loopback: what is sent arrives whole and with its sender; bursts are held, losses counted; groups; closing wakes."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys

import pytest
from tests.peers.world import run

from wirelake.errors import UsageError
from wirelake.transports import udp
from wirelake.transports.datagram import BATCH
from wirelake.transports.udp import Multicast, is_multicast, listen, resolve

GROUP4, GROUP6 = "239.255.50.41", "ff01::5041"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(
    not has_ipv6(), reason="this machine has no IPv6 loopback: sysctl net.ipv6.conf.lo.disable_ipv6=0 enables it"
)
HOSTS = ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)]


def loopback() -> str:
    """The name of the loopback interface."""
    return next(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))


async def collect(endpoint, count: int) -> list:
    found = []
    while len(found) < count:
        found += await endpoint.receive()
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_datagrams_arrive_whole_and_with_their_sender(host):
    async def main():
        one, two = await listen(host, 0), await listen(host, 0)
        said = [b"", b"x", bytes(range(256)) * 2, b"y" * 60_000]
        for data in said:
            assert one.send(data, two.local)
        assert await collect(two, 4) == [(data, one.local) for data in said]
        assert two.send(b"back", one.local)
        assert await one.receive() == [(b"back", two.local)]
        assert (one.kind, one.lost, one.unsent) == ("udp", 0, 0)
        await one.close()
        await two.close()

    run(main)


def test_a_burst_waits_here_and_comes_in_batches():
    async def main():
        one, two = await listen("127.0.0.1", 0), await listen("127.0.0.1", 0, max_queue=400)
        for number in range(600):
            one.send(b"%d" % number, two.local)
        first = await two.receive()
        assert len(first) == BATCH
        assert len(two._queue) == 400 - BATCH
        rest = await collect(two, 600 - BATCH)
        assert [int(data) for data, _ in first + rest] == list(range(600))
        await one.close()
        await two.close()

    run(main)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what it dropped")
def test_what_the_system_drops_is_counted():
    async def main():
        one, two = await listen("127.0.0.1", 0), await listen("127.0.0.1", 0, socket_buffer=4096, max_queue=8)
        for _ in range(500):
            one.send(b"x" * 500, two.local)
        got = 0
        async with asyncio.timeout(5):
            while got + two.lost < 500:
                got += len(await two.receive())
        assert two.lost > 0
        await two.close()
        assert got + two.lost == 500
        await one.close()

    run(main)


def test_waiting_for_a_datagram_can_be_given_up_without_losing_it():
    async def main():
        one, two = await listen("127.0.0.1", 0), await listen("127.0.0.1", 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await two.receive()
        one.send(b"still here", two.local)
        assert await two.receive() == [(b"still here", one.local)]
        await one.close()
        await two.close()

    run(main)


def test_closing_wakes_who_waits_and_ends_it():
    async def main():
        one = await listen("127.0.0.1", 0)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(one.receive())
            await asyncio.sleep(0)
            await one.close()
        assert reading.result() == []
        assert await one.receive() == []
        assert one.send(b"x", ("127.0.0.1", 9))
        assert one.unsent == 1
        await one.ready()
        await one.close()

    run(main)


def test_what_cannot_be_sent_is_counted_and_harms_nobody():
    async def main():
        one, two = await listen("127.0.0.1", 0), await listen("127.0.0.1", 0)
        assert one.send(bytes(70_000), two.local)
        assert one.send(b"x", ("255.255.255.255", 9))
        assert one.unsent == 2
        gone = two.local
        await two.close()
        one.send(b"nobody is there", gone)
        one.send(b"nobody is there", gone)
        assert one.send(b"to myself", one.local)
        assert await one.receive() == [(b"to myself", one.local)]
        await one.close()

    run(main)


class Full:
    """A socket that has no room, until it is told."""

    def __init__(self, sock):
        self.sock = sock
        self.full = True

    def sendto(self, data, to):
        if self.full:
            raise BlockingIOError(errno.EAGAIN, "full")
        return self.sock.sendto(data, to)

    def __getattr__(self, name):
        return getattr(self.sock, name)


def test_a_full_socket_says_so_and_is_ready_again():
    async def main():
        one = await listen("127.0.0.1", 0)
        one._main = full = Full(one._main)
        assert one.send(b"x", one.local) is False
        assert one.unsent == 0
        await asyncio.gather(one.ready(), one.ready())
        full.full = False
        assert one.send(b"x", one.local)
        assert await one.receive() == [(b"x", one.local)]
        await one.close()

    run(main)


def test_a_port_that_is_taken_is_an_error():
    async def main():
        one = await listen("127.0.0.1", 0)
        with pytest.raises(OSError, match="in use") as caught:
            await listen(*one.local)
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match=r"no host name|not known|failure"):
            await listen("no..name", 0)
        await one.close()

    run(main)


def test_names_are_resolved_in_the_family_that_is_wanted():
    async def main():
        assert await resolve("localhost", 7, socket.AF_INET) == ("127.0.0.1", 7)
        assert await resolve("127.0.0.1", 7) == ("127.0.0.1", 7)
        assert await resolve("127.0.0.1", 7, socket.AF_INET) == ("127.0.0.1", 7)
        with pytest.raises(socket.gaierror):
            await resolve("::1", 7, socket.AF_INET)

    run(main)
    assert udp.family_of("::1") == socket.AF_INET6
    assert udp.family_of("127.0.0.1") == socket.AF_INET
    assert udp._address(("fe80::1", 7, 0, 3)) == ("fe80::1%3", 7)
    assert udp._address(("::1", 7, 0, 0)) == ("::1", 7)


# Groups.


def test_a_group_hears_what_is_sent_to_it_and_answers_find_the_sender():
    async def main():
        heard = Multicast(((GROUP4, 15_041),), interface=loopback())
        one, two = await listen("127.0.0.1", 0, multicast=heard), await listen("127.0.0.1", 0, multicast=heard)
        assert one.send(b"to all", (GROUP4, 15_041))
        assert await two.receive() == [(b"to all", one.local)]
        assert await one.receive() == [(b"to all", one.local)]
        two.send(b"to one", one.local)
        assert await one.receive() == [(b"to one", two.local)]
        await one.close()
        await two.close()

    run(main)


@needs_ipv6
def test_a_group_of_ipv6():
    async def main():
        heard = Multicast(((GROUP6, 15_041),), interface=loopback())
        one, two = await listen("::1", 0, multicast=heard), await listen("::1", 0, multicast=heard)
        one.send(b"to all", (GROUP6, 15_041))
        sent = not one.unsent
        if sent:
            assert await two.receive() == [(b"to all", one.local)]
        await one.close()
        await two.close()
        return sent

    if not run(main):
        pytest.skip("the loopback interface here carries no IPv6 multicast: run this test where it has the flag MULTICAST")


def test_what_is_no_group_and_what_is_no_interface_is_refused():
    async def main():
        for wrong in (Multicast((("127.0.0.1", 5),)), Multicast(((GROUP4, 5),), interface="no-such-one")):
            with pytest.raises(UsageError):
                await listen("127.0.0.1", 0, multicast=wrong)

    run(main)
    assert is_multicast(GROUP4)
    assert is_multicast("ff02::1%lo")
    assert not is_multicast("127.0.0.1")
    assert not is_multicast("localhost")


def test_the_options_of_groups_are_set():
    """What they do shows only between machines: a loopback interface brings back everything."""

    async def main():
        heard = Multicast(((GROUP4, 15_043),), interface=loopback(), ttl=7, loop=False)
        one = await listen("127.0.0.1", 0, multicast=heard)
        assert one._main.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 7
        assert one._main.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP) == 0
        await one.close()

    run(main)


def test_many_senders_at_once():
    async def main():
        here = await listen("127.0.0.1", 0)
        senders = [await listen("127.0.0.1", 0) for _ in range(8)]
        for number in range(50):
            for one in senders:
                one.send(b"%d" % number, here.local)
        found = await collect(here, 400)
        for one in senders:
            assert [int(data) for data, source in found if source == one.local] == list(range(50))
            await one.close()
        await here.close()

    run(main)
