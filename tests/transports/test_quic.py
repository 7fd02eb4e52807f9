"""Datagrams inside QUIC on loopback: secret, from whom a certificate vouches for, bounded, and no worse than UDP for the rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.peers.world import log_of, run, until
from tests.transports.certificates import Authority, self_signed

from wirelake.errors import UsageError
from wirelake.transports import udp
from wirelake.transports.quic import LONGEST, Quic, QuicEndpoint


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def trusted(authority) -> Quic:
    cert = authority.sign("127.0.0.1", "mesh.example")
    return Quic(cert.cert, cert.key, ca_file=authority.files.cert, retry_after=0.05)


@contextlib.asynccontextmanager
async def endpoints(*quics: Quic, alpn: tuple[str, ...] = ("test", "test", "test")) -> AsyncIterator[list[QuicEndpoint]]:
    made = []
    try:
        for quic, name in zip(quics, alpn, strict=False):
            made.append(QuicEndpoint(await udp.listen("127.0.0.1", 0), quic, name))
        yield made
    finally:
        for one in made:
            await one.close()


@contextlib.asynccontextmanager
async def listening(*ends: QuicEndpoint) -> AsyncIterator[dict[QuicEndpoint, list]]:
    """Everybody listens all the time; what they hear."""
    heard: dict[QuicEndpoint, list] = {one: [] for one in ends}

    async def listen(one: QuicEndpoint) -> None:
        while found := await one.receive():
            heard[one] += found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listen(one)) for one in ends]
        try:
            yield heard
        finally:
            for task in tasks:
                task.cancel()


def test_datagrams_go_both_ways_between_the_same_two_places(trusted):
    async def main():
        async with endpoints(trusted, trusted) as (one, two), listening(one, two) as heard:
            said = [b"", b"x", b"y" * LONGEST]
            for data in said:
                one.send(data, two.local)
            await until(lambda: len(heard[two]) == 3)
            assert sorted(heard[two]) == sorted((data, one.local) for data in said)
            two.send(b"back", one.local)
            await until(lambda: heard[one])
            assert heard[one] == [(b"back", two.local)]
            assert len(one._links) == len(two._links) == 1
            assert (one.kind, one.lost, one.unsent) == ("quic", 0, 0)

    run(main)


def test_who_connects_at_the_same_time_is_understood(trusted):
    async def main():
        async with endpoints(trusted, trusted) as (one, two), listening(one, two) as heard:
            for number in range(20):
                one.send(b"%d" % number, two.local)
                two.send(b"%d" % number, one.local)
            await until(lambda: len(heard[one]) == len(heard[two]) == 20)

    run(main)


def test_what_is_said_is_not_to_be_read_on_the_way(trusted):
    async def main():
        async with endpoints(trusted, trusted) as (one, two):
            seen = []
            under = one._under.send
            one._under.send = lambda data, to: seen.append(data) or under(data, to)
            async with listening(one, two) as heard:
                one.send(b"a secret that is long enough", two.local)
                await until(lambda: heard[two])
            assert seen
            assert not any(b"a secret" in data for data in seen)

    run(main)


def test_a_certificate_nobody_vouches_for_gets_no_connection(trusted, tmp_path):
    alone = self_signed(tmp_path, "127.0.0.1")

    async def main():
        async with endpoints(trusted, Quic(alone.cert, alone.key)) as (one, two), listening(one, two) as heard:
            with log_of("wirelake.quic") as lines:
                one.send(b"x", two.local)
                await until(lambda: one.unsent)
            assert heard[two] == []
            assert "no QUIC connection" in lines[0]
            one.send(b"too soon", two.local)
            assert one.unsent == 2

    run(main)


def test_a_certificate_for_another_name_gets_none_either_unless_that_name_is_wanted(authority):
    cert = authority.sign("mesh.example", file="named")
    strict = Quic(cert.cert, cert.key, ca_file=authority.files.cert)
    named = Quic(cert.cert, cert.key, ca_file=authority.files.cert, server_name="mesh.example")
    careless = Quic(cert.cert, cert.key, verify=False)

    async def main():
        async with endpoints(strict, named, careless) as (one, two, three), listening(one, two, three) as heard:
            with log_of("wirelake.quic"):
                one.send(b"x", two.local)
                await until(lambda: one.unsent)
            two.send(b"named", three.local)
            three.send(b"careless", one.local)
            await until(lambda: heard[three] and heard[one])
            assert heard[two] == []

    run(main)


@pytest.mark.slow
def test_another_protocol_gets_no_connection(trusted):
    async def main():
        async with endpoints(trusted, trusted, alpn=("one", "two")) as (one, two), listening(one, two) as heard:
            with log_of("wirelake.quic"):
                one.send(b"x", two.local)
                await until(lambda: one.unsent)
            assert heard[two] == []

    run(main)


def test_what_is_too_long_is_counted(trusted):
    async def main():
        async with endpoints(trusted, trusted) as (one, two):
            assert one.send(bytes(LONGEST + 1), two.local)
            assert (one.unsent, len(one._links)) == (1, 0)

    run(main)


def test_what_waits_for_a_peer_that_does_not_answer_is_bounded(trusted):
    async def main():
        async with endpoints(trusted) as (one,):
            with log_of("wirelake.quic"):
                for _ in range(1000):
                    one.send(b"x", ("127.0.0.1", 9))
            assert one.unsent == 1000 - 256

    run(main)


def test_connections_are_bounded(trusted):
    from msgspec.structs import replace

    few = replace(trusted, max_connections=2)

    async def main():
        async with endpoints(few, trusted, trusted, alpn=("t", "t", "t")) as (one, two, three), listening(one, two, three) as heard:
            two.send(b"2", one.local)
            three.send(b"3", one.local)
            await until(lambda: len(heard[one]) == 2)
            one.send(b"x", ("127.0.0.1", 9))
            assert (one.unsent, len(one._links)) == (1, 2)

    run(main)


@pytest.mark.slow
def test_a_connection_whose_first_packets_are_lost_is_made_all_the_same(trusted):
    """Somebody waits in `receive` without a deadline when sending makes one: it must be woken to say it again."""

    async def main():
        async with endpoints(trusted, trusted) as (one, two):
            under, lost = one._under.send, []
            one._under.send = lambda data, to: under(data, to) if len(lost) >= 2 else lost.append(data) or True
            async with listening(one, two) as heard:
                await asyncio.sleep(0.01)
                one.send(b"in the end", two.local)
                await until(lambda: heard[two])
            assert len(lost) == 2

    run(main)


def test_a_packet_that_breaks_the_library_breaks_one_connection(trusted):
    async def main():
        async with endpoints(trusted, trusted, trusted) as (one, two, three), listening(one, two, three) as heard:
            two.send(b"2", one.local)
            three.send(b"3", one.local)
            await until(lambda: len(heard[one]) == 2)
            (link,) = [link for link in one._links if link.remote == two.local]

            def fail(*_):
                raise AssertionError("not foreseen")

            link.connection.receive_datagram = fail
            with log_of("wirelake.quic") as lines:
                two.send(b"2", one.local)
                await until(lambda: lines)
            assert link not in one._links
            assert not link.ids & set(one._by_id)
            three.send(b"3", one.local)
            await until(lambda: len(heard[one]) == 3)

    run(main)


def test_garbage_and_spoofed_beginnings_leave_nothing_behind(trusted):
    """RFC 9000, §8.1.2: of who did not prove its address, nothing is remembered."""
    from aioquic.quic.connection import QuicConnection

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        async with endpoints(trusted, trusted) as (one, two), listening(one, two) as heard:
            begun = QuicConnection(configuration=two._client)
            begun.connect(one.local, 0.0)
            ((initial, _),) = begun.datagrams_to_send(0.0)
            other_version = initial[:1] + b"\x0a\x0a\x0a\x0a" + initial[5:]
            for data in (b"", b"\0", bytes(1200), b"\xff" * 1200, initial, initial[:600], other_version, other_version[:600]):
                raw.send(data, one.local)
            two.send(b"honest", one.local)
            await until(lambda: heard[one])
            assert heard[one] == [(b"honest", two.local)]
            assert len(one._links) == 1
            answers = []
            while len(answers) < 2:
                answers += await raw.receive()
            assert all(len(data) < 200 for data, _ in answers)  # a retry and a list of versions: nothing is amplified
        await raw.close()

    run(main)


def test_a_peer_that_goes_away_says_so_and_can_be_connected_to_again(trusted):
    async def main():
        async with endpoints(trusted, trusted) as (one, two), listening(one) as heard:
            async with listening(two):
                two.send(b"first", one.local)
                await until(lambda: heard[one])
            place = two.local
            await two.close()
            await until(lambda: not one._links)
            assert one._by_id == {}
            again = QuicEndpoint(await udp.listen(*place), trusted, "test")
            async with listening(again) as second:
                one.send(b"welcome back", place)
                await until(lambda: second[again])
            await again.close()

    run(main)


def test_closing_wakes_who_waits(trusted):
    async def main():
        async with endpoints(trusted) as (one,):
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(one.receive())
                await asyncio.sleep(0)
                await one.close()
            assert reading.result() == []
            assert await one.receive() == []
            one.send(b"x", ("127.0.0.1", 9))
            assert one.unsent == 1
            await one.ready()

    run(main)


def test_a_certificate_that_is_not_there_is_said(tmp_path):
    async def main():
        under = await udp.listen("127.0.0.1", 0)
        with pytest.raises(UsageError, match="cannot use certificate"):
            QuicEndpoint(under, Quic(tmp_path / "none.pem", tmp_path / "none.key"), "test")
        await under.close()

    run(main)


# Limits for each host.


async def at(host: str, quic: Quic) -> QuicEndpoint:
    return QuicEndpoint(await udp.listen(host, 0), quic, "test")


@contextlib.asynccontextmanager
async def closing(*ends: QuicEndpoint) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for one in ends:
            await one.close()


def hosts_of(server: QuicEndpoint) -> list[str]:
    return sorted(link.remote[0] for link in server._links)


def test_one_host_does_not_take_all_connections(trusted):
    async def main():
        limited = msgspec.structs.replace(trusted, max_connections=4, max_connections_per_host=2, evict_after=60.0)
        server = await at("127.0.0.1", limited)
        greedy = [await at("127.0.0.2", trusted) for _ in range(4)]
        honest = await at("127.0.0.1", trusted)
        async with closing(server, honest, *greedy), listening(server, honest, *greedy) as heard:
            for number, one in enumerate(greedy):
                one.send(b"%d" % number, server.local)
            await until(lambda: len(heard[server]) == 2)
            honest.send(b"honest", server.local)
            await until(lambda: b"honest" in [data for data, _ in heard[server]])
            assert hosts_of(server) == ["127.0.0.1", "127.0.0.2", "127.0.0.2"]

    run(main)


def test_a_full_host_makes_space_for_its_own_and_who_is_unproven_goes_first(trusted):
    async def main():
        limited = msgspec.structs.replace(trusted, max_connections_per_host=2, evict_after=0.05)
        server, first, half, second = [await at("127.0.0.1", limited)] + [await at("127.0.0.2", trusted) for _ in range(3)]
        sent, plain = 0, half._under.send

        def lossy(data, to):
            nonlocal sent
            sent += 1
            return plain(data, to) if sent <= 2 else True  # its handshake gets no further than the proof of its address

        half._under.send = lossy
        async with closing(server, first, half, second), listening(server, first, half, second) as heard:
            first.send(b"first", server.local)
            await until(lambda: len(heard[server]) == 1)
            half.send(b"half", server.local)
            await until(lambda: len(server._links) == 2)
            await asyncio.sleep(0.1)
            second.send(b"second", server.local)
            await until(lambda: len(heard[server]) == 2)
            assert {link.remote for link in server._links} == {first.local, second.local}
            first.send(b"again", server.local)
            await until(lambda: heard[server][-1][0] == b"again")

    run(main)


def test_what_we_connect_to_is_not_closed_for_others(trusted):
    async def main():
        limited = msgspec.structs.replace(trusted, max_connections=1, evict_after=0.0)
        server, friend, other = await at("127.0.0.1", limited), await at("127.0.0.1", trusted), await at("127.0.0.2", trusted)
        async with closing(server, friend, other), listening(server, friend, other) as heard:
            server.send(b"hello", friend.local)
            await until(lambda: len(heard[friend]) == 1)
            other.send(b"let me in", server.local)
            await asyncio.sleep(0.2)
            assert heard[server] == []
            assert [link.remote for link in server._links] == [friend.local]

    run(main)
