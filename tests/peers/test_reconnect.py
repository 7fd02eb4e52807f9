"""Trying again: doubling with jitter, back to the start only after progress, and the next peer for who asks."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from tests.peers.world import ANY, BYE, HELLO, PING, QUIET, Raw, quick, raw_server, run, until

from wirelake.errors import ConnectFailed, ConnectionLost, LocalProtocolError, SessionClosed
from wirelake.peers import emp, live_peer, wolpertinger, yamp
from wirelake.peers.backoff import Backoff, BackoffTimer
from wirelake.peers.client import Client
from wirelake.peers.emp import Options, Peer, connect, serve
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Bye, Data
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.transports.address import parse

LIVE = msgspec.structs.replace(QUIET, linger=0.2)
SOON = Backoff(first=0.01, most=0.02)


def ceilings(timer: BackoffTimer, outcomes: list[bool]) -> list[float | None]:
    return [timer.next(opened) for opened in outcomes]


def longest(_low: float, high: float) -> float:
    return high


def test_waits_double_up_to_the_most():
    timer = BackoffTimer(Backoff(first=0.5, most=5), longest)
    assert ceilings(timer, [False] * 6) == [0.5, 1, 2, 4, 5, 5]
    timer.fruitless = 10_000  # and numbers do not overflow
    assert timer.next(False) == 5


def test_a_wait_is_anywhere_between_nothing_and_its_ceiling():
    asked = []
    timer = BackoffTimer(Backoff(first=1, most=100), lambda low, high: asked.append((low, high)) or 0.25)
    assert ceilings(timer, [False] * 3) == [0.25] * 3
    assert asked == [(0, 1), (0, 2), (0, 4)]
    free = BackoffTimer(Backoff(first=1, most=8))
    waits = [free.next(False) for _ in range(200)]
    assert all(0 <= wait <= 8 for wait in waits)
    assert len(set(waits)) > 190


def test_only_a_finished_handshake_goes_back_to_the_start():
    timer = BackoffTimer(Backoff(first=1, most=100), longest)
    assert ceilings(timer, [False, False, False, True, False, False]) == [1, 2, 4, 1, 1, 2]


def test_a_handshake_without_progress_does_not_go_back_to_the_start():
    """Waits go on growing, but a handshake is an attempt that did not fail: it does not give up."""
    timer = BackoffTimer(Backoff(first=1, most=100, attempts=2), longest)
    waits = [timer.next(opened, progressed=progressed) for opened, progressed in ((True, False),) * 3 + ((False, True), (True, True))]
    assert waits == [1, 2, 4, 8, 1]


def test_attempts_in_a_row_are_counted_and_a_lost_connection_is_none():
    timer = BackoffTimer(Backoff(first=1, most=100, attempts=3), longest)
    assert ceilings(timer, [False, False, False]) == [1, 2, None]
    timer = BackoffTimer(Backoff(first=1, most=100, attempts=2), longest)
    assert ceilings(timer, [True, False, False]) == [1, 1, None]


def client_of(address: str, backoff: Backoff, timer: BackoffTimer | None = None, options: Options = LIVE) -> Client[Peer]:
    """A client whose timer a test can watch."""
    target = parse(address, 5040)
    return Client(target, lambda stream: Peer(Speaker.CLIENT, stream, options), reconnect=backoff, backoff=timer)


async def echo(raw: Raw) -> None:
    await raw.greet()
    await raw.answer()
    await raw.hear_rest()


def test_the_next_connection_is_there_for_who_asks():
    async def main():
        connections = 0

        async def one_answer(raw: Raw) -> None:
            nonlocal connections
            connections += 1
            await raw.greet()
            if connections <= 5:
                assert await raw.answer() == 1  # EMP-13: identifiers start again
            await raw.hear()

        async with raw_server(one_answer) as address:
            client = connect(address, options=LIVE, reconnect=SOON)
            async with client as first:
                peer = first
                for number in range(1, 6):
                    assert client.connections == number
                    assert await peer.request(b"a") == b"a"
                    with pytest.raises(ConnectionLost):
                        await peer.request(b"b")
                    before, peer = peer, await client.peer()
                    assert peer is not before
                    assert peer.is_open
        assert connections == client.connections == 6

    run(main)


def test_who_asks_right_after_the_end_never_gets_the_dead_peer():
    """Its connection may still be closing: the linger time is long, and the client asks at once."""

    async def main():
        async def bye_and_stay(raw: Raw) -> None:
            await raw.greet()
            await raw.hear()
            await raw.say(b"\x00\x00\x00\x08\x7f\x00\x00\x00")  # our side ends it, and lingers
            await asyncio.Event().wait()

        async with raw_server(bye_and_stay) as address:
            client = connect(address, options=LIVE, reconnect=SOON)
            async with client as first:
                await first.send(b"go")
                await first.over()
                second = await client.peer()
                assert second is not first
                assert second.is_open

    run(main)


def test_a_server_that_hangs_up_before_hello_does_not_reset_the_back_off():
    async def main():
        asked: list[float] = []

        def uniform(_low: float, high: float) -> float:
            asked.append(high)
            return 0.0

        taken = 0

        async def hang_up_six_times(raw: Raw) -> None:
            nonlocal taken
            taken += 1
            if taken > 6:
                await echo(raw)

        backoff = Backoff(first=1, most=1000)
        async with raw_server(hang_up_six_times) as address:
            client = client_of(address, backoff, BackoffTimer(backoff, uniform))
            async with client as peer:
                assert await peer.request(b"at last") == b"at last"
                assert client.connections == 1
        assert asked == [1, 2, 4, 8, 16, 32]

    run(main)


def test_a_message_after_the_handshake_resets_the_back_off():
    async def main():
        asked: list[float] = []

        def uniform(_low: float, high: float) -> float:
            asked.append(high)
            return 0.0

        taken = 0

        async def sometimes(raw: Raw) -> None:
            nonlocal taken
            taken += 1
            if taken in (3, 6, 9):  # and no more: the client may be leaving by then
                await raw.greet()
                await raw.say(Data(b"useful"))

        backoff = Backoff(first=1, most=1000)
        async with raw_server(sometimes) as address:
            client = client_of(address, backoff, BackoffTimer(backoff, uniform))
            async with client:
                await until(lambda: client.connections >= 3)
        assert asked[:8] == [1, 2, 1, 1, 2, 1, 1, 2]

    run(main)


@pytest.mark.parametrize("protocol", ["emp", "yamp"])
def test_connections_that_die_after_their_handshake_are_no_progress(protocol):
    """Pings and pongs are none either: waits go on growing."""

    async def main():
        asked: list[float] = []

        def uniform(_low: float, high: float) -> float:
            asked.append(high)
            return 0.0

        async def die(raw: Raw) -> None:
            hello, ping = (HELLO, PING) if protocol == "emp" else (b"\0\0\1\4json", b"\x01\4ping")
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the client may leave as a connection begins
                await raw.say(hello, ping)
                await raw.reader.readexactly(len(hello))

        def make(stream):
            return Peer(Speaker.CLIENT, stream, LIVE) if protocol == "emp" else yamp.Peer(Speaker.CLIENT, stream, yamp.Options(linger=0.2))

        backoff = Backoff(first=1, most=1000)
        async with raw_server(die) as address:
            client = Client(parse(address, 5040), make, reconnect=backoff, backoff=BackoffTimer(backoff, uniform))
            async with client:
                await until(lambda: len(asked) >= 6)
        assert asked[:6] == [1, 2, 4, 8, 16, 32]

    run(main)


def test_a_connection_that_lived_for_a_while_was_of_use(monkeypatch):
    async def main():
        async def silent(raw: Raw) -> None:
            await raw.greet()
            await raw.hear_rest()

        async with raw_server(silent) as address, connect(address, options=LIVE) as peer:
            assert not peer.has_progressed
            monkeypatch.setattr(live_peer, "SETTLED", 0.01)
            await until(lambda: peer.has_progressed)

    run(main)


@pytest.mark.parametrize("protocol", ["emp", "yamp", "wolpertinger"])
def test_leaving_in_the_first_moment_of_a_new_connection_ends_it(protocol):
    """The peer exists, and has not begun its handshake."""

    async def main():
        kinds = {"emp": emp.Peer, "yamp": yamp.Peer, "wolpertinger": wolpertinger.Peer}
        entered = asyncio.Event()
        made = 0

        def make(stream):
            nonlocal made
            made += 1
            if made == 2:
                entered.set()
            return kinds[protocol](Speaker.CLIENT, stream)

        async def once(raw: Raw) -> None:
            await raw.say({"emp": HELLO, "yamp": b"\0\0\1\4json", "wolpertinger": b""}[protocol])
            await asyncio.sleep(0.05)
            if made == 2:
                await raw.reader.read()

        async with raw_server(once) as address:
            client = Client(parse(address, 5040), make, reconnect=SOON)
            with quick(10):
                async with client:
                    await entered.wait()
        assert made == 2

    run(main)


def test_it_gives_up_after_so_many_attempts_and_says_the_last_reason():
    async def main():
        taken = 0

        async def hang_up(raw: Raw) -> None:
            nonlocal taken
            taken += 1

        async with raw_server(hang_up) as address:
            with pytest.raises(ConnectFailed, match="no handshake with tcp://"):
                async with connect(address, options=LIVE, reconnect=Backoff(first=0.001, attempts=4)):
                    pass
        assert taken == 4
        with pytest.raises(ConnectFailed, match="Connection refused"), quick(10):
            async with connect(address, options=LIVE, reconnect=Backoff(first=0.001, attempts=3)):
                pass

    run(main)


def test_it_gives_up_after_a_lost_connection_too_and_tells_everybody_who_waits():
    async def main():
        taken = 0

        async def once(raw: Raw) -> None:
            nonlocal taken
            taken += 1
            if taken == 1:
                await raw.greet()
                await raw.hear()

        async with raw_server(once) as address:
            client = connect(address, options=LIVE, reconnect=Backoff(first=0.001, attempts=2))
            async with client as peer:
                await peer.send(b"go")
                await peer.over()
                results = await asyncio.gather(*(client.peer() for _ in range(3)), return_exceptions=True)
                assert {type(result) for result in results} == {ConnectFailed}
        assert taken == 3

    run(main)


def test_who_connects_gets_what_was_said_even_if_the_server_left_at_once():
    async def main():
        async def speak_and_leave(raw: Raw) -> None:
            await raw.say(HELLO, Data(b"short"), BYE)
            await raw.hear_rest()

        async with raw_server(speak_and_leave) as address, connect(address, options=LIVE) as peer:
            assert [message.body async for message in peer] == [b"short"]

    run(main)


def test_a_client_that_does_not_reconnect_says_how_its_connection_ended():
    async def main():
        async def cut(raw: Raw) -> None:
            await raw.greet()
            await raw.hear()

        async with raw_server(cut) as address:
            client = connect(address, options=LIVE)
            async with client as peer:
                await peer.send(b"go")
                with pytest.raises(ConnectionLost, match="without bye or error"):
                    await peer.request(b"")
                with pytest.raises(ConnectionLost, match="without bye or error"):
                    await client.peer()

    run(main)


def test_leaving_while_it_waits_for_the_next_attempt_is_prompt_and_tells_who_waits():
    async def main():
        async def once(raw: Raw) -> None:
            await raw.greet()
            await raw.hear()

        async with raw_server(once) as address:
            client = connect(address, options=LIVE, reconnect=Backoff(first=1000, most=1000))

            async def wait() -> str:
                with pytest.raises(SessionClosed) as caught:
                    await client.peer()
                return str(caught.value)

            with quick(10):
                async with asyncio.TaskGroup() as group, client as peer:
                    await peer.send(b"go")
                    await peer.over()
                    waiting = group.create_task(wait())
                    await asyncio.sleep(0.05)
            assert waiting.result() == "the client was closed"

    run(main)


def test_a_server_that_comes_back_is_found_again():
    async def main():
        options = msgspec.structs.replace(QUIET, on_request=lambda _peer, request: request.body, linger=0.2)
        async with serve(ANY, options=options) as first:
            address = first.address
            client = connect(address, options=LIVE, reconnect=SOON)
            peer = await client.__aenter__()
            assert await peer.request(b"a") == b"a"
        with pytest.raises(SessionClosed):
            await peer.request(b"b")
        async with serve(address, options=options):
            peer = await client.peer()
            assert await peer.request(b"c") == b"c"
            assert client.connections == 2
            await client.__aexit__(None, None, None)

    run(main)


def test_cancelling_an_attempt_leaves_nothing_behind():
    async def main():
        async def silent(raw: Raw) -> None:
            await raw.reader.read()

        async with raw_server(silent) as address:
            for reconnect in (None, SOON):
                with pytest.raises(TimeoutError), quick(10):
                    async with asyncio.timeout(0.1), connect(address, options=LIVE, reconnect=reconnect):
                        pass

    run(main)


def test_a_bug_in_a_codec_ends_the_session_and_says_so():
    class Broken:
        def undo(self, content, body):
            raise ZeroDivisionError("my own bug")

    async def main():
        async def extended(raw: Raw) -> None:
            await raw.greet()
            await raw.hear()
            await raw.say(b"\x00\x00\x00\x10\x05\x80\x00\x00\x00\x00\x00\x08\x82\x00\x00\x00")
            await raw.hear_rest()

        options = Options(codecs={130: Broken()}, ping_interval=None)
        async with raw_server(extended) as address, connect(address, options=options) as peer:
            await peer.send(b"go")
            with pytest.raises(LocalProtocolError, match="my own bug") as caught:
                async for _ in peer:
                    pass
            assert caught.value.fault is Fault.HANDLER_FAILED

    run(main)


def test_a_bug_of_our_own_comes_out_of_the_client_and_is_not_hidden():
    def make(stream) -> Peer:
        def receive(_data, _now):
            raise ZeroDivisionError("my own bug")

        peer = Peer(Speaker.CLIENT, stream, LIVE)
        peer._session.receive = receive
        return peer

    async def main():
        async with raw_server(echo) as address:
            with pytest.raises(ExceptionGroup) as caught:
                await Client(parse(address, 5040), make).__aenter__()
        assert caught.group_contains(ZeroDivisionError, match="my own bug")

    async def echo(raw: Raw) -> None:
        await raw.greet()
        assert await raw.hear_rest() == [Bye()]

    run(main)
