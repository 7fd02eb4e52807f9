"""Trust from 0 to 4, gained in every way there is, by either side, and lost again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.peers.wolpertinger.world import ANY, KEY, SERVER, USERS, Raw, Shop, called, failed, line, raw_client, raw_server, two_peers
from tests.peers.world import log_of, run, until

from wirelake.errors import ConnectFailed, RequestCancelled, RequestFailed, RequestTimeout
from wirelake.peers.wolpertinger import Options, connect, method, serve
from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.events import ErrorReceived, TrustChanged, WasReset
from wirelake.protocols.wolpertinger.options import Options as SessionOptions

ADA = {"user": "Ada", "password": USERS["ada"]}
OURS = Options(cluster_key=KEY, offers=(Shop,))
THEIRS = msgspec.structs.replace(SERVER, offers=(Shop,))
THEIRS_ALONE = SERVER


async def levels(peer):
    """Which of the five methods a peer may call."""
    found = [0]
    for level in range(1, 5):
        try:
            found.append(await peer.call("Shop", f"Level{level}"))
        except RequestFailed as reason:
            assert reason.body == 201  # noqa: PT017 - both outcomes are looked at
    return found


@pytest.mark.parametrize("level", range(5))
def test_each_level_opens_its_methods_and_no_others(level):
    async def main():
        options = Options(cluster_key=KEY, authenticate=level, **ADA)
        async with serve(ANY, Shop, options=SERVER) as server, connect(server.address, options=options) as peer:
            assert await peer.opened() == level
            assert peer.trust_state.held == level
            assert peer.trust_state.encrypted == (level >= 2)
            assert await levels(peer) == list(range(level + 1))

    run(main)


@pytest.mark.parametrize("cut", [None, 5])
def test_the_cluster_is_proved_both_ways(cut):
    async def main():
        async with two_peers(OURS, THEIRS, cut) as (one, two):
            await one.authenticate(3)
            await until(lambda: two.trust_state.held == 3)  # which it learns last
            assert (one.trust_state.held, one.trust_state.granted, two.trust_state.granted) == (3, 3, 3)
            assert await levels(one) == await levels(two) == [0, 1, 2, 3]

    run(main)


def test_the_side_that_was_called_may_authenticate_too():
    async def main():
        async with two_peers(msgspec.structs.replace(SERVER, offers=(Shop,)), OURS) as (one, two):
            assert await two.authenticate(3) == 3
            assert await levels(two) == [0, 1, 2, 3]
            assert await two.authenticate(4, **ADA) == 4
            assert await levels(two) == [0, 1, 2, 3, 4]
            assert one.trust_state.encrypted

    run(main)


def test_trust_is_gained_step_by_step_and_everybody_hears_of_it():
    async def main():
        told = []
        options = msgspec.structs.replace(SERVER, offers=(Shop,), on_event=lambda _, event: told.append(event))
        async with two_peers(OURS, options) as (one, _), one.subscribe("trust") as trust:
            for level in (1, 2, 3):
                assert await one.authenticate(level) == level
            assert await one.authenticate(2) >= 2
            await one.authenticate(4, **ADA)
            await until(lambda: told and told[-1].granted == 4)
            assert [event.granted for event in told if isinstance(event, TrustChanged)][-1] == 4
            first = await anext(trust)
            assert (first.name, first.event.held) == ("trust", 1)

    run(main)


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (Options(cluster_key=b"other key", authenticate=3), "ClusterAuthVerify"),
        (Options(authenticate=4, user="ada", password="byron"), "UserAuthVerify"),  # noqa: S106 - wrong on purpose
        (Options(authenticate=4, user="nobody", password="lovelace"), "UserAuthVerify"),  # noqa: S106
    ],
)
def test_a_wrong_secret_is_a_failed_connection(client, told):
    async def main():
        async with serve(ANY, Shop, options=SERVER) as server:
            with pytest.raises(ConnectFailed, match=told) as caught:
                async with connect(server.address, options=client):
                    pass
            for secret in ("byron", "lovelace", KEY.hex(), "other key"):
                assert secret not in str(caught.value)

    run(main)


def test_who_is_not_admitted_stays_at_level_0():
    async def main():
        asked = []
        options = Options(admits=lambda address: asked.append(address) or False)
        async with serve(ANY, Shop, options=options) as server:
            with pytest.raises(ConnectFailed, match="EstablishConnection"):
                async with connect(server.address, options=Options(authenticate=1)):
                    pass
            async with connect(server.address) as peer:
                with pytest.raises(RequestFailed, match="EstablishConnection"):
                    await peer.authenticate(1)
                assert await peer.Shop.testMethod1("x", False) == "x"
        assert asked == ["127.0.0.1"] * 2

    run(main)


def test_guesses_are_counted_over_all_connections_of_an_address():
    async def main():
        server_live = msgspec.structs.replace(SERVER, attempts=Buckets(0.0001, 3, 16))
        async with serve(ANY, Shop, options=server_live) as server:
            for _ in range(3):
                with pytest.raises(ConnectFailed, match="UserAuthVerify"):
                    async with connect(server.address, options=Options(authenticate=4, user="ada", password="guess")):  # noqa: S106
                        pass
            with pytest.raises(ConnectFailed):  # even the right one comes too late
                async with connect(server.address, options=Options(authenticate=4, **ADA)):
                    pass

    run(main)


def test_a_server_counts_guesses_unless_it_is_told_how():
    async def main():
        async with serve(ANY, Shop, options=THEIRS_ALONE) as server, connect(server.address) as one, connect(server.address) as two:
            for peer in (one, two):
                assert await peer.Shop.testMethod1("x", False) == "x"
            (attempts,) = {id(peer.options.attempts) for peer in server.peers}
            assert attempts != id(None)

    run(main)


def test_a_reset_takes_all_trust_and_the_connection_lives_on():
    async def main():
        begun, stopped = asyncio.Event(), asyncio.Event()

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
                return True

        options = msgspec.structs.replace(SERVER, offers=(Shop, Slow))
        async with two_peers(OURS, options) as (one, two), two.subscribe("reset") as resets:
            await one.authenticate(3)
            waiting = asyncio.ensure_future(one.Slow.Wait())
            await begun.wait()
            one.reset()
            with pytest.raises(RequestCancelled, match=r"reset before Slow\.Wait"):
                await waiting
            happened = await anext(resets)
            assert isinstance(happened.event, WasReset)
            assert not happened.event.here
            await stopped.wait()
            assert (one.trust_state.held, two.trust_state.granted, two.trust_state.encrypted) == (0, 0, False)
            assert await levels(one) == [0]
            await one.authenticate(3)
            assert await levels(one) == [0, 1, 2, 3]

    run(main)


def test_plain_text_after_encryption_is_answered_with_202_and_a_reset():
    async def main():
        async with (
            serve(ANY, Shop, options=SERVER) as server,
            connect(server.address, options=Options(authenticate=2)) as peer,
        ):
            (other,) = server.peers
            async with peer.subscribe("*") as happenings:
                peer.stream.send(line(77, called("Shop", "Level1")))  # behind the session's back
                seen = [(await anext(happenings)).event for _ in range(2)]
                while not isinstance(seen[-1], WasReset):
                    seen.append((await anext(happenings)).event)
            assert [event.code for event in seen if isinstance(event, ErrorReceived)] == [202]
            await until(lambda: other.trust_state.granted == 0)
            assert await peer.Shop.testMethod1("x", False) == "x"

    run(main)


def test_an_encrypted_message_before_there_are_keys_is_result_4():
    async def main():
        async with serve(ANY, Shop) as server, raw_client(server.address) as raw:
            await raw.say(line(1, b"0" * 16, encryption="aes"))
            assert (await raw.result()).metadata == {"result": "4", "message_id": "1"}

    run(main)


def test_authentication_that_hangs_is_given_up():
    async def main():
        async def mute(raw: Raw):
            while await raw.message() is not None:
                pass

        async with raw_server(mute) as address:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(address, options=Options(authenticate=2, authentication_timeout=0.2)):
                    pass
            assert isinstance(caught.value.__cause__, RequestTimeout)

    run(main)


def test_a_peer_that_refuses_with_an_error_is_told_with_its_code():
    async def main():
        async def strict(raw: Raw):
            heard = await raw.message()
            await raw.say(line(1, failed("Authentication", 200, heard.of("CallId"))))
            while await raw.message() is not None:
                pass

        async with raw_server(strict) as address:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(address, options=Options(authenticate=2)):
                    pass
            assert caught.value.__cause__.body == 200

    run(main)


def test_hooks_that_fail_let_nobody_in_and_take_nothing_down():
    async def main():
        def broken(*_):
            raise ValueError("broken")

        def strict(_, name, __):
            if name == "Shop.Notes":
                raise RequestFailed(201)

        options = Options(admits=broken, on_event=broken, on_call=strict)
        with log_of("wirelake.wolpertinger") as lines:
            async with serve(ANY, Shop, options=options) as server, connect(server.address) as peer:
                with pytest.raises(RequestFailed, match="EstablishConnection"):
                    await peer.authenticate(1)
                with pytest.raises(RequestFailed) as caught:
                    await peer.Shop.Notes()
                assert caught.value.body == 201
                peer.send_error("Shop", 100)
                assert await peer.Shop.testMethod1("x", False) == "x"
        assert any("admits failed" in one for one in lines)
        assert any("on_event failed" in one for one in lines)

    run(main)


def test_an_authentication_that_is_cancelled_is_taken_back_and_another_may_begin():
    async def main():
        asked, heard = asyncio.Event(), []

        async def answers_the_second(raw: Raw):
            while (one := await raw.message()) is not None:
                heard.append(one.of("MethodName"))
                asked.set()
                if heard.count("EstablishConnection") == 2:
                    response = (
                        f"<RemoteMethodResponse><ComponentName>Authentication</ComponentName><CallId>{one.of('CallId')}</CallId>"
                        '<ResponseValue><object type="boolean">true</object></ResponseValue></RemoteMethodResponse>'
                    )
                    await raw.say(line(1, response))

        async with raw_server(answers_the_second) as address, connect(address) as peer:
            trying = asyncio.ensure_future(peer.authenticate(1))
            await asked.wait()
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying
            assert await peer.authenticate(1) == 1
            assert heard == ["EstablishConnection", "SendResetNotice", "EstablishConnection"]

    run(main)


def test_one_authentication_waits_for_the_other():
    async def main():
        async with two_peers(OURS, THEIRS) as (one, _):
            assert await asyncio.gather(one.authenticate(2), one.authenticate(3)) == [2, 3]

    run(main)


def test_secrets_are_not_shown():
    options = msgspec.structs.replace(SERVER, **ADA)
    assert "lovelace" not in repr(options)
    assert KEY.hex() not in repr(options)
    assert repr(KEY) not in repr(options)
    assert repr(KEY) not in repr(SessionOptions(cluster_key=KEY))
