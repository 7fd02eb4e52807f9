"""What live peers record is what they said and heard, to the byte: whole messages, the tail of a cut one, and how it began and ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from tests.capture.build import read_checked
from tests.peers.world import ANY, BYE, HELLO, QUIET, Raw, facing, raw_client, raw_server, run, two_peers

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import CaptureError, SessionClosed
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.messages import Bye, Data, Error, Hello, Message, RequestResponse
from wirelake.protocols.emp.wire import decode, encode


class Told:
    """One recorded connection as a reader sees it."""

    def __init__(self, flow) -> None:
        self.flow = flow
        self.said: dict[bool, list[bytes]] = {True: [], False: []}
        self.events: list[tuple[str, str, str]] = []

    def stream(self, to_server: bool) -> bytes:
        return b"".join(self.said[to_server])

    def messages(self, to_server: bool) -> list[Message]:
        return messages(self.stream(to_server))


def messages(data: bytes) -> list[Message]:
    """Whole messages, and nothing else."""
    found = []
    while data:
        size = int.from_bytes(data[:4])
        found.append(decode(data[:size]))
        data = data[size:]
    return found


def told(path: Path) -> dict[str, Told]:
    """Who observed what; one connection for each observer."""
    seen: dict[str, Told] = {}
    for block in read_checked(path):
        for flow in block.flows:
            seen.setdefault(flow.observer_kind, Told(flow))
        for start, stop, flow, to_server, _missing in block.segments.tolist():
            seen[block.flows[flow].observer_kind].said[bool(to_server)].append(bytes(block.data[start:stop]))
        for event in block.events:
            seen[block.flows[event.flow].observer_kind].events.append((event.what, event.by, event.detail))
    return seen


def test_client_and_server_record_the_same_conversation_into_one_file(tmp_path):
    path = tmp_path / "talk.pcapng"
    bodies = [b"", b"one", bytes(range(256)) * 2000, b"two" * 1000]

    async def main(recorder):
        options = msgspec.structs.replace(QUIET, recorder=recorder, on_request=lambda _peer, request: request.body[::-1])
        async with serve(ANY, options=options) as server, connect(server.address, options=options) as peer:
            for body in bodies:
                assert await peer.request(body) == body[::-1]
            await peer.send(b"packed" * 100, compress=True)
            return server.target.port

    with Recorder(path) as recorder:
        port = run(lambda: main(recorder))
    seen = told(path)
    assert set(seen) == {"client", "server"}
    asked = [Data(body, (RequestResponse(True, number),)) for number, body in enumerate(bodies, 1)]
    answered = [Data(body[::-1], (RequestResponse(False, number),)) for number, body in enumerate(bodies, 1)]
    for one in seen.values():
        assert one.messages(False) == [Hello(), *answered]
        *whole, packed, bye = one.messages(True)
        assert (whole, bye) == ([Hello(), *asked], Bye())
        assert len(packed.body) < 100
        assert (one.flow.protocol, one.flow.transport, one.flow.known_by) == ("emp", "tcp", "tag")
        assert one.flow.server.port == port
        assert one.events == [("opened", "client", ""), ("closed", "client", "bye")]
    assert seen["client"].flow.client == seen["server"].flow.client
    assert seen["client"].stream(True) == seen["server"].stream(True)


@pytest.mark.parametrize("cut", [1, 3, 4096])
def test_runs_hold_whole_messages_wherever_the_stream_was_cut(tmp_path, cut):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        options = msgspec.structs.replace(QUIET, recorder=recorder, on_request=lambda _peer, request: request.body)
        async with two_peers(options, options, cut) as (client, _):
            await asyncio.gather(*(client.request(bytes(number * 50)) for number in range(8)))

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    seen = told(path)
    assert seen["client"].stream(True) == seen["server"].stream(True)
    assert seen["client"].stream(False) == seen["server"].stream(False)
    for one in seen.values():
        assert one.flow.transport == "memory"
        for to_server in (True, False):
            assert sum(len(messages(run)) for run in one.said[to_server]) == len(one.messages(to_server))


def test_the_tail_of_a_cut_message_is_kept(tmp_path):
    path = tmp_path / "talk.pcapng"
    cut = encode(Data(b"never finished"))[:13]

    async def main(recorder):
        async with serve(ANY, options=msgspec.structs.replace(QUIET, recorder=recorder)) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, Data(b"whole"), cut)
            raw.writer.write_eof()
            await raw.hear_rest()

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    one = told(path)["server"]
    assert one.stream(True) == HELLO + encode(Data(b"whole")) + cut
    assert one.messages(False) == [Hello()]
    assert one.events == [("opened", "client", ""), ("closed", "client", "closed")]


def test_what_still_comes_after_our_error_is_kept_in_order(tmp_path):
    path = tmp_path / "talk.pcapng"
    bad, late = b"\x00\x00\x00\x08\x7f\x00\x00\x00", encode(Data(b"on its way already"))

    async def main(recorder):
        async with serve(ANY, options=msgspec.structs.replace(QUIET, recorder=recorder)) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, bad, late[:5])
            await raw.hear()
            assert isinstance(await raw.hear(), Error)
            await raw.say(late[5:], BYE)
            raw.writer.write_eof()
            await raw.hear_rest()

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    one = told(path)["server"]
    assert one.stream(True) == HELLO + bad + late + BYE
    hello, error = one.messages(False)
    assert (hello, error.error_code) == (Hello(), 3)
    assert one.events[-1] == ("closed", "server", "error")


def test_bytes_after_the_end_of_sense_are_kept(tmp_path):
    """An impossible size: nothing after it can be read, and all of it is recorded."""
    path = tmp_path / "talk.pcapng"
    nonsense = b"\xff" * 3000

    async def main(recorder):
        async with serve(ANY, options=msgspec.structs.replace(QUIET, recorder=recorder)) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, nonsense)
            raw.writer.write_eof()
            await raw.hear_rest()

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    assert told(path)["server"].stream(True) == HELLO + nonsense


def test_a_cancelled_peer_records_its_end(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        async def greet(raw: Raw) -> None:
            await raw.greet()
            await raw.hear_rest()

        async with raw_server(greet) as address:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), connect(address, options=msgspec.structs.replace(QUIET, recorder=recorder)):
                    await asyncio.Event().wait()

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    one = told(path)["client"]
    assert one.messages(True) == [Hello(), Bye()]
    assert one.events == [("opened", "client", ""), ("closed", "client", "bye")]


def test_ipv6_addresses_are_recorded(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        options = msgspec.structs.replace(QUIET, recorder=recorder)
        async with serve("tcp://[::1]:0", options=options) as server, connect(server.address, options=options):
            pass

    with Recorder(path) as recorder:
        try:
            run(lambda: main(recorder))
        except Exception as reason:
            if "Cannot assign" in str(reason) or "not supported" in str(reason):
                pytest.skip("this machine has no IPv6 loopback: sysctl net.ipv6.conf.lo.disable_ipv6=0 enables it")
            raise
    for one in told(path).values():
        assert (one.flow.client.address, one.flow.server.address) == ("::1", "::1")


def test_a_disk_that_fills_up_does_not_disturb_the_conversation(tmp_path):
    recorder = Recorder(tmp_path / "talk.pcapng", flush_bytes=1)
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), recorder._descriptor)

    async def main():
        options = msgspec.structs.replace(QUIET, recorder=recorder, on_request=lambda _peer, request: request.body)
        async with serve(ANY, options=options) as server:
            for _ in range(2):  # also a connection that begins after the failure
                async with connect(server.address, options=options) as peer:
                    for number in range(10):
                        assert await peer.request(b"%d" % number) == b"%d" % number

    run(main)
    assert "No space left" in str(recorder.failure)
    with pytest.raises(CaptureError, match="No space left"):
        recorder.close()


def test_many_connections_in_one_recording_keep_apart(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        options = msgspec.structs.replace(QUIET, recorder=recorder, on_request=lambda _peer, request: request.body)
        async with serve(ANY, options=options) as server:

            async def talk(number):
                async with connect(server.address, options=QUIET) as peer:
                    for _ in range(5):
                        await peer.request(b"%d" % number)

            await asyncio.gather(*(talk(number) for number in range(10)))

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    streams: dict[bytes, bytes] = {}
    for block in read_checked(path):
        for start, stop, flow, to_server, _missing in block.segments.tolist():
            if to_server:
                name = block.flows[flow].session_id
                streams[name] = streams.get(name, b"") + bytes(block.data[start:stop])
    spoken = sorted({message.body for message in messages(stream) if isinstance(message, Data)} for stream in streams.values())
    assert len(streams) == 10
    assert sorted(body for bodies in spoken for body in bodies) == sorted(b"%d" % number for number in range(10))
    assert {len(bodies) for bodies in spoken} == {1}


def test_a_peer_in_memory_is_recorded_under_its_own_names(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        async with facing(msgspec.structs.replace(QUIET, recorder=recorder)) as (peer, other):
            other.send(HELLO + BYE)
            await peer.over()

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    one = told(path)["server"]
    assert (one.flow.client.address, one.flow.client.port, one.flow.server.port) == ("memory", 2, 1)
    assert one.messages(True) == [Hello(), Bye()]


def ended(path: Path, who: str) -> tuple[tuple[str, str], int, int]:
    """How a connection ended and by whom, how much of what was sent is unconfirmed, and how much was sent."""
    one = told(path)[who]
    *_, (what, by, _how) = one.events
    details = [detail for event, side, detail in one.events if event == "unconfirmed" and side == who]
    lost = int(details[0].split()[0].removeprefix("bytes=")) if details else 0
    return (what, by), lost, len(one.stream(who == "client"))


async def flood(address: str, options: Options) -> None:
    """Send until the connection breaks."""
    async with connect(address, options=options) as peer:
        while True:
            await peer.send(bytes(400_000))


def test_a_reset_leaves_what_was_not_acknowledged_unconfirmed(tmp_path):
    path, heard = tmp_path / "talk.pcapng", []

    async def main(recorder):
        async def hang_up(raw: Raw) -> None:
            await raw.greet()
            heard.append(len(HELLO) + len(await raw.reader.readexactly(100_000)))
            raw.writer.transport.abort()  # it has not read everything: that is a reset

        async with raw_server(hang_up) as address:
            options = msgspec.structs.replace(QUIET, recorder=recorder)
            with pytest.raises(SessionClosed):
                await flood(address, options)

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    how, lost, sent = ended(path, "client")
    assert how == ("reset", "server")
    assert 0 < lost <= sent - heard[0]


def test_a_peer_that_is_given_up_leaves_its_queue_unconfirmed(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        async def stall(raw: Raw) -> None:
            await raw.greet()
            await raw.writer.wait_closed()

        options = msgspec.structs.replace(QUIET, recorder=recorder, stall_timeout=0.2, linger=0.1)
        async with raw_server(stall) as address:
            with pytest.raises(SessionClosed):
                await flood(address, options)

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    how, lost, sent = ended(path, "client")
    assert how == ("closed", "client"), "this side gave up"
    assert 1_000_000 < lost < sent


def test_what_left_in_order_is_confirmed(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main(recorder):
        options = msgspec.structs.replace(QUIET, recorder=recorder, on_request=lambda _peer, request: request.body)
        async with serve(ANY, options=options) as server, connect(server.address, options=options) as peer:
            for _ in range(10):
                assert await peer.request(bytes(300_000)) == bytes(300_000)

    with Recorder(path) as recorder:
        run(lambda: main(recorder))
    for who in ("client", "server"):
        how, lost, _ = ended(path, who)
        assert (how, lost) == (("closed", "client"), 0)
