"""What remote peers do wrong is logged as a notice, whatever the protocol; what they do right is not."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.ends import ANY
from tests.peers.world import run
from tests.transports.certificates import Authority

from wirelake.errors import WirelakeError
from wirelake.peers import emp, relink, wolpertinger, yamp
from wirelake.peers.admission import ServerLimits
from wirelake.peers.event_mesh import node as event_mesh_node
from wirelake.peers.notices import NOTICE
from wirelake.peers.wolpertinger.demo_component import Demo
from wirelake.transports.tls import server_context

HERE = relink.Endpoint("here")


async def take(link):
    async for _ in link:
        pass


async def say(address: str, data: bytes) -> None:
    """Send bytes as a client of nobody's making, and read until the server ends the connection."""
    reader, writer = await asyncio.open_connection(*address.rpartition("/")[2].split(":"))
    writer.write(data)
    try:
        writer.write_eof()
        await reader.read()
    except OSError:
        pass
    writer.close()


async def break_emp():
    async with emp.serve(ANY) as server:
        await say(server.address, b"nonsense" * 10)


async def break_yamp():
    async with yamp.serve(ANY) as server:
        await say(server.address, b"nonsense" * 10)


async def break_wolpertinger():
    async with wolpertinger.serve(ANY, Demo) as server:
        await say(server.address, b"nonsense\n")


async def break_relink():
    async with relink.serve(ANY, {HERE: take}) as server:
        await say(server.address, b"nonsense" * 100)


async def break_event_mesh():
    async with event_mesh_node("udp://127.0.0.1:0") as node:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", node.target.port)
        )
        transport.sendto(b"nonsense")
        while not node.metrics.session.rejected:
            await asyncio.sleep(0.001)
        transport.close()


async def ask_yamp_for_an_unknown_uri():
    async with yamp.serve(ANY) as server, yamp.connect(server.address) as peer:
        with pytest.raises(WirelakeError):
            await peer.request("nowhere")


async def call_an_unknown_component():
    async with wolpertinger.serve(ANY, Demo) as server, wolpertinger.connect(server.address) as peer:
        with pytest.raises(WirelakeError):
            await peer.call("Nope", "Nope")


async def ask_relink_for_an_unknown_endpoint():
    async with relink.serve(ANY, {HERE: take}) as server:
        with pytest.raises(WirelakeError):
            async with relink.connect(server.address, relink.Endpoint("elsewhere"), reconnect=None):
                pass


async def be_one_too_many():
    async with emp.serve(ANY, limits=ServerLimits(max_connections=0)) as server:
        await say(server.address, b"")


@pytest.mark.parametrize(
    ("do", "told"),
    [
        (break_emp, "ended: EMP-35: an envelope's size is over the limit"),
        (break_yamp, "ended: YAMP-42: unknown message type"),
        (break_wolpertinger, "METADATA_MISSING tolerated from"),
        (break_relink, "ended: RELINK-31: no endpoint here has this name"),
        (break_event_mesh, "dropped a packet from"),
        (ask_yamp_for_an_unknown_uri, "for unknown uri 'nowhere'"),
        (call_an_unknown_component, "COMPONENT_UNKNOWN tolerated from"),
        (ask_relink_for_an_unknown_endpoint, "no endpoint here has this name: 'elsewhere'"),
        (be_one_too_many, "refused a connection at tcp://127.0.0.1:"),
    ],
)
def test_what_a_peer_does_wrong_is_a_notice_of_one_line(caplog, do, told):
    caplog.set_level(NOTICE, "wirelake")
    run(do)
    assert len(caplog.records) == 1, caplog.messages
    assert told in caplog.messages[0]


def test_a_client_without_tls_at_a_server_with_it_is_a_notice(caplog, tmp_path):
    context = server_context(*Authority(tmp_path).sign("127.0.0.1"))

    async def main():
        async with emp.serve("tls://127.0.0.1:0", tls=context) as server:
            await say(server.address, b"nonsense" * 10)

    caplog.set_level(NOTICE, "wirelake")
    run(main)
    assert [message.partition(" at tls://")[0] for message in caplog.messages] == ["refused a connection"]


def test_what_peers_do_right_is_no_notice(caplog):
    async def main():
        options = emp.Options(on_request=lambda _peer, request: request.body)
        async with emp.serve(ANY, options=options) as server, emp.connect(server.address) as peer:
            await peer.request(b"x")
        async with yamp.serve(ANY) as server, yamp.connect(server.address) as peer:
            await peer.send("news", 1)
        async with wolpertinger.serve(ANY, Demo) as server, wolpertinger.connect(server.address) as peer:
            await peer.call("Demo", "Echo", 1)
        async with relink.serve(ANY, {HERE: take}) as server, relink.connect(server.address, HERE) as link:
            await link.channel().send(b"x")

    caplog.set_level(NOTICE, "wirelake")
    run(main)
    assert caplog.messages == []
