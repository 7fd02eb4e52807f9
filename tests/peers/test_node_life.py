"""Live nodes from their start to their end: files, restarts, what cannot be opened, errors and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest
from tests.peers.nodes import ANY, proven
from tests.peers.world import log_of, run, until
from tests.protocols.event_mesh.mesh import credentials, known

from wirelake.errors import ConnectFailed, SessionClosed, UsageError
from wirelake.peers import private_file, trust_file
from wirelake.peers.event_mesh import Options, node
from wirelake.protocols.event_mesh import TrustStore
from wirelake.protocols.event_mesh.packet.builder import build
from wirelake.protocols.event_mesh.packet.values import text
from wirelake.transports import udp


def test_what_was_heard_before_a_restart_is_a_replay_after_it(tmp_path):
    path = tmp_path / "replays"

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        for expected in ({}, {"replay": 1}):
            async with proven("a", "b", replay_path=path) as one:
                if not expected:
                    data = build(3, [text("x")], credentials("b"), message_id=1, timestamp=int(one.options.clock()))
                raw.send(data, one._endpoint.local)
                await until(lambda: one.metrics.session.received)
                assert one.metrics.session.reasons() == expected
        await raw.close()
        assert path.stat().st_mode & 0o777 == 0o600

    run(main)


def test_the_replay_cache_is_saved_in_between_and_a_full_disk_is_said_at_the_end(tmp_path):
    path = tmp_path / "folder" / "replays"
    path.parent.mkdir()

    async def main():
        async with proven("a", replay_path=path, replay_save_interval=0.01):
            await until(path.exists)
            path.unlink()
            path.parent.rmdir()
            with log_of("wirelake.event_mesh") as lines:
                await until(lambda: any("not saved" in line for line in lines))

    with pytest.raises(UsageError, match="replays"):
        run(main)


def test_a_spoilt_replay_file_is_no_start(tmp_path):
    path = tmp_path / "replays"
    private_file.save_bytes(path, b"garbage")

    async def main():
        with pytest.raises(UsageError, match="replay cache"):
            async with proven("a", replay_path=path):
                pass
        assert path.read_bytes() == b"garbage"

    run(main)


def test_keys_come_from_a_file(tmp_path):
    path = tmp_path / "trust.json"
    trust_file.save(path, known("b"))

    async def main():
        async with (
            node(ANY, credentials=credentials("a"), options=Options(trust_path=path)) as one,
            proven("b", peers=[one.address]) as two,
        ):
            heard = one.subscribe("x")
            await two.publish("x")
            assert (await anext(heard)).identity.authenticated
        with pytest.raises(UsageError, match="not both"):
            async with node(ANY, options=Options(trust_path=path, trust=TrustStore())):
                pass

    run(main)


def test_without_credentials_a_node_has_an_id_and_proves_nothing():
    async def main():
        async with node(ANY) as one, node(ANY, peers=[one.address]) as two:
            heard = one.subscribe("x")
            await two.publish("x")
            event = await anext(heard)
            assert not event.identity.authenticated
            assert event.identity.node_id == two.node_id
            assert one.node_id != two.node_id

    run(main)


def test_what_cannot_be_opened_or_found_is_said():
    async def main():
        async with proven("a") as one:
            with pytest.raises(ConnectFailed, match="in use"):
                async with node(one.address):
                    pass
            with pytest.raises(UsageError, match="in use already"):
                async with one:
                    pass
        for wrong, kind in (
            ({"peers": ["udp://[::1]:5"]}, ConnectFailed),
            ({"peers": ["memory://a:1"]}, UsageError),
            ({"groups": ["udp://127.0.0.1:5"]}, UsageError),
        ):
            with pytest.raises(kind):
                async with node(ANY, **wrong):
                    pass
        for address in ("quic://127.0.0.1:0", "memory://a:1", "tcp://127.0.0.1"):
            with pytest.raises(UsageError):
                node(address)
        with pytest.raises(SessionClosed):
            _ = node(ANY).metrics
        with pytest.raises(SessionClosed):
            _ = node(ANY).peers

    run(main)


def test_handlers_finish_what_had_arrived_but_not_for_ever():
    done = []

    async def main():
        async with proven("b") as two, proven("a", "b", linger=0.05) as one:

            async def hang(_node, event):
                await asyncio.sleep(0.01 if event.content == [1] else 60)
                done.append(event.content)

            one.subscribe("x", hang)
            for number in (1, 2):
                await two.publish("x", number, to=[one.address])
            await until(lambda: one.metrics.session.delivered == 2)

    run(main)
    assert done == [[1]]


async def break_down(one) -> None:
    async with one:
        one.subscribe("x", lambda *_: None)
        _ = 1 / 0


def test_an_error_inside_closes_everything_and_comes_out_as_it_is():
    async def main():
        one = proven("a")
        with pytest.raises(ZeroDivisionError):
            await break_down(one)
        async with proven("a", address=one.address):
            pass

    run(main)


def test_ctrl_c_ends_a_node_in_good_order(tmp_path):
    script = textwrap.dedent(f"""
        import asyncio, os, signal
        from pathlib import Path
        from wirelake.capture.record.recorder import Recorder
        from wirelake.peers.event_mesh import Options, node

        REPLAYS = {str(tmp_path / "replays")!r}
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background may have it ignored

        async def main():
            with Recorder({str(tmp_path / "talk.pcapng")!r}) as recorder:
                async with node("udp://127.0.0.1:0", options=Options(replay_path=Path(REPLAYS), recorder=recorder)) as one:
                    one.subscribe(">", lambda _, event: None)
                    await one.publish("x", to=[one.address])
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep(60)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
    assert (tmp_path / "replays").exists()
    assert (tmp_path / "talk.pcapng").stat().st_size > 500
