"""wolpertinger where it was made for: over XMPP, through a real server."""

from __future__ import annotations

import pytest
import uvloop
from tests.peers.wolpertinger.world import KEY, SERVER, Shop
from tests.peers.world import run, until
from tests.transports.prosody import PASSWORD, needs_prosody, running

from wirelake.errors import ConnectFailed, ConnectionLost, RequestFailed, SessionClosed, UsageError
from wirelake.peers.wolpertinger import Options, Xmpp, connect, serve
from wirelake.peers.wolpertinger.demo_component import Demo
from wirelake.transports.tls import client_context

pytestmark = needs_prosody
LOGIN = Xmpp(password=PASSWORD)


@pytest.fixture(scope="module")
def xmpp(tmp_path_factory):
    with running(tmp_path_factory.mktemp("prosody")) as found:
        yield found


@pytest.fixture(scope="module")
def tls(xmpp):
    return client_context(ca_file=xmpp.authority)


@pytest.mark.slow
@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_one_account_serves_many_each_with_its_own_trust(xmpp, tls, factory):
    async def main():
        server = serve(xmpp.account("bob"), Shop, options=SERVER, tls=tls, login=LOGIN)
        trusted = Options(cluster_key=KEY, authenticate=3)
        async with (
            server,
            connect(xmpp.account("alice", "bob"), Demo, options=trusted, tls=tls, login=LOGIN) as alice,
            connect(xmpp.account("carol", "Bob"), tls=tls, login=LOGIN) as carol,
        ):
            assert await alice.Shop.Level3() == 3
            assert await alice.Shop.testMethod1("x" * 100_000, True) == "X" * 100_000
            await carol.Shop.Note.tell("from carol")
            assert (await carol.Shop.Notes(), await alice.Shop.Notes()) == (("from carol",), ())
            with pytest.raises(RequestFailed) as caught:
                await carol.Shop.Level3()
            assert caught.value.body == 201
            assert {peer.stream.remote[0] for peer in server.peers} == {"alice@localhost", "carol@localhost"}
            (other,) = (peer for peer in server.peers if peer.stream.remote[0] == "alice@localhost")
            assert await other.Demo.Add(1, 2) == 3
            assert alice.stream.kind == "xmpp"

    run(main, loop_factory=factory)


@pytest.mark.slow
def test_who_comes_back_without_having_said_goodbye_is_let_in_again(xmpp, tls):
    async def main():
        trusted = Options(cluster_key=KEY, authenticate=3)
        async with serve(xmpp.account("bob"), Shop, options=SERVER, tls=tls, login=LOGIN) as server:
            for _ in range(2):
                async with connect(xmpp.account("alice", "bob"), options=trusted, tls=tls, login=LOGIN) as alice:
                    assert await alice.Shop.Level3() == 3
                    alice.stream.abort()
                    assert isinstance(await alice.over(), ConnectionLost)
            assert server.accepted == 1, "it is the same conversation to the server"

    run(main)


@pytest.mark.slow
def test_a_server_may_speak_first_over_its_login(xmpp, tls):
    async def main():
        async with (
            serve(xmpp.account("bob"), Demo, tls=tls, login=LOGIN),
            serve(xmpp.account("alice"), Shop, tls=tls, login=LOGIN) as alice,
        ):
            met = alice.meet("bob@localhost")
            assert await met.Demo.Add(2, 3) == 5
            with pytest.raises(UsageError, match="session with bob@localhost already"):
                alice.meet("BOB@localhost")
            met.close()
            assert isinstance(await met.over(), SessionClosed)
        async with serve("tcp://127.0.0.1:0") as lines:
            with pytest.raises(UsageError, match="over XMPP"):
                lines.meet("bob@localhost")

    run(main)


@pytest.mark.slow
def test_who_is_not_there_is_told(xmpp, tls):
    async def main():
        async with connect(xmpp.account("alice", "nobody"), tls=tls, login=LOGIN) as peer:
            with pytest.raises(SessionClosed):
                await peer.Demo.Add(1, 2)
        with pytest.raises(ConnectFailed, match="refuses the account or its password"):
            async with connect(xmpp.account("alice", "bob"), tls=tls, login=Xmpp(password="no")):  # noqa: S106 - wrong on purpose
                pass
        with pytest.raises(ConnectFailed, match="cannot listen at"):
            async with serve(xmpp.account("alice"), tls=tls, login=Xmpp(password="no")):  # noqa: S106
                pass

    run(main)


@pytest.mark.slow
def test_a_conversation_in_which_nothing_is_said_is_closed(xmpp, tls):
    async def main():
        options = Options(idle_timeout=0.3)
        async with (
            serve(xmpp.account("bob"), Demo, options=options, tls=tls, login=LOGIN) as server,
            connect(xmpp.account("alice", "bob"), tls=tls, login=LOGIN) as peer,
        ):
            assert await peer.Demo.Add(1, 2) == 3
            await until(lambda: server.accepted == 1 and not server.peers)
            assert await peer.Demo.Add(1, 2) == 3, "and begins anew when somebody speaks"
            assert server.accepted == 2

    run(main)
