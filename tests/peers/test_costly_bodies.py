"""Bodies that are dear to read: a thread parses large ones, decompression has a budget, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time

import msgspec
from tests.peers.wolpertinger.world import called, line
from tests.peers.world import ANY, BYE, HELLO, QUIET, raw_client, run, until
from tests.peers.yamp import world as yamp_world
from tests.protocols.yamp import speech

from wirelake.peers import emp, yamp
from wirelake.protocols.emp.messages import Compression, Data, Scheme
from wirelake.protocols.emp.session import Session as EmpSession
from wirelake.protocols.emp.state_machine import Speaker as EmpSpeaker
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.wolpertinger.options import Options as WolpertingerOptions
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.yamp import STANDARD
from wirelake.protocols.yamp.messages import Close
from wirelake.protocols.yamp.session import Session as YampSession
from wirelake.protocols.yamp.state_machine import Speaker as YampSpeaker

LARGE = 2_000_000
BODY = b'"' + b"x" * LARGE + b'"'


class Slow:
    """JSON that takes as long as a test wants for large bodies, and notes which ones it reads in the thread of the loop."""

    def __init__(self, most: int = LARGE) -> None:
        self.most = most
        self.may = threading.Event()
        self.begun = threading.Event()
        self.inline: list[bool] = []
        self.serialize = msgspec.json.encode

    def parse(self, data: bytes, /):
        self.inline.append(threading.current_thread() is threading.main_thread())
        assert self.inline[-1] == (len(data) <= self.most)
        if len(data) > LARGE:
            self.begun.set()
            assert self.may.wait(30)
        return msgspec.json.decode(data)


def heard_by(service: yamp.Service) -> list[object]:
    """Bodies of events, as they come; of a large one its length."""
    bodies: list[object] = []
    service.on(">")(lambda _, event: bodies.append(len(event.body) if isinstance(event.body, str) else event.body))
    return bodies


def options(slow: Slow, **more) -> yamp.Options:
    return yamp.Options(serializers=STANDARD.adding("json", slow), **more)


def test_others_are_served_while_a_large_body_is_parsed_and_its_connection_stays_in_order():
    async def main():
        service, slow = yamp_world.demo(), Slow()
        bodies = heard_by(service)
        async with yamp.serve(ANY, service, options=options(slow)) as server, yamp_world.raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(speech.event(b"a", b"1") + speech.event(b"b", BODY) + speech.event(b"c", b"2") + speech.event(b"d", BODY))
            await raw.say(speech.event(b"e", b"3"))
            await asyncio.to_thread(slow.begun.wait, 30)
            async with yamp.connect(server.address) as friend:
                assert await friend.request("echo", 7) == 7
            assert bodies == [1]
            slow.may.set()
            await until(lambda: len(bodies) == 5)
        assert bodies == [1, LARGE, 2, LARGE, 3]
        assert sorted(slow.inline) == [False] * 2 + [True] * 4

    run(main)


def test_requests_and_answers_may_be_large():
    async def main():
        slow = Slow()
        slow.may.set()
        async with (
            yamp.serve(ANY, yamp_world.demo(), options=options(slow)) as server,
            yamp.connect(server.address, options=options(slow)) as peer,
        ):
            assert await peer.request("echo", "x" * LARGE) == "x" * LARGE
            assert await peer.request("echo", 1) == 1

    run(main)


def test_the_end_of_a_stream_waits_for_the_body_before_it():
    async def main():
        service, slow = yamp_world.demo(), Slow()
        bodies = heard_by(service)
        async with yamp.serve(ANY, service, options=options(slow)) as server:
            async with yamp_world.raw_client(server.address) as raw:
                await raw.greet()
                await raw.say(speech.event(b"b", BODY) + speech.event(b"c", b"2"))
                await asyncio.to_thread(slow.begun.wait, 30)
            await asyncio.sleep(0)
            slow.may.set()
            await until(lambda: bodies == [LARGE, 2])

    run(main)


def test_a_session_that_ends_while_a_thread_parses_drops_the_body():
    async def main():
        service, slow = yamp_world.demo(), Slow()
        bodies = heard_by(service)
        async with yamp.serve(ANY, service, options=options(slow)) as server, yamp_world.raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(speech.event(b"b", BODY))
            await asyncio.to_thread(slow.begun.wait, 30)
            for peer in server.peers:
                peer.close("enough")
            assert isinstance(await raw.hear(), Close)
            slow.may.set()
            assert await raw.hear() is None
        assert bodies == []

    run(main)


def test_a_body_up_to_the_limit_is_parsed_at_once():
    async def main():
        service, slow = yamp_world.demo(), Slow(len(BODY))
        slow.may.set()
        bodies = heard_by(service)
        async with (
            yamp.serve(ANY, service, options=options(slow, max_body_inline=len(BODY))) as server,
            yamp_world.raw_client(server.address) as raw,
        ):
            await raw.greet()
            await raw.say(speech.event(b"b", BODY))
            await until(lambda: bodies == [LARGE])
        assert slow.inline == [True]

    run(main)


MIB = 1024 * 1024
PACKED = Data(gzip.compress(bytes(MIB), mtime=0), (Compression(Scheme.GZIP),))


def test_a_connection_that_inflates_more_than_its_budget_waits_and_others_do_not():
    """EMP-37: eight bodies of 1 MiB with a budget of 4 MiB a second: four at once, the others in the second after that."""

    async def main():
        came: list[float] = []
        settings = msgspec.structs.replace(QUIET, max_inflated_rate=4 * MIB, on_data=lambda *_: came.append(time.monotonic()))
        async with emp.serve(ANY, on_request=lambda _, asked: asked.body, options=settings) as server, raw_client(server.address) as raw:
            await raw.say(HELLO)
            for _ in range(8):
                await raw.say(PACKED)
                await asyncio.sleep(0.01)
            async with emp.connect(server.address, options=QUIET) as friend:
                assert await friend.request(b"hello") == b"hello"
            assert 4 <= len(came) < 8
            await until(lambda: len(came) == 8)
            assert came[-1] - came[0] > 0.7  # it would be nothing, and it is a second
            await raw.say(BYE)

    run(main)


def test_what_wolpertinger_inflates_is_counted_with_its_tags_and_also_when_it_is_refused():
    session = Session(Speaker.SERVER, WolpertingerOptions(max_inflated_size=MIB), draw=bytes)
    document = called("Demo", "Echo", *['<object type="int32">1</object>'] * 100).encode()
    packed, bomb = gzip.compress(document, mtime=0), gzip.compress(bytes(2 * MIB), mtime=0)
    session.receive(line(1, packed, gzip=len(packed)), 0.0)
    assert session.inflated == len(document) + 16 * document.count(b"<")
    before = session.inflated
    session.receive(line(2, bomb, gzip=len(bomb)), 0.0)
    assert session.inflated - before == MIB + 1
    session.receive(line(3, document), 0.0)
    assert session.inflated - before == MIB + 1


def test_frames_behind_much_that_was_inflated_wait_for_another_turn_and_stay_in_order():
    """Also those that a session takes in bulk, without the scanner: they must not overtake."""
    session = EmpSession(EmpSpeaker.SERVER, QUIET)
    session.inflated_a_turn = MIB
    session.start(0.0)
    session.receive(HELLO, 0.0)
    session.events()
    large, small = [encode(PACKED)] * 4, [encode(Data(bytes((number,)))) for number in range(200)]
    session.receive(b"".join([*large[:2], *small, *large[2:], *small, *small]), 0.0)
    turns = [[len(event.body) for event in session.events()]]
    while (job := session.job) is not None:
        session.finish(job(), 0.0)
        turns.append([len(event.body) for event in session.events()])
    assert turns == [[MIB, MIB], [1] * 200 + [MIB, MIB], [1] * 400]


def test_a_session_whose_owner_does_no_jobs_takes_everything_at_once():
    session = EmpSession(EmpSpeaker.SERVER, QUIET)
    session.start(0.0)
    session.receive(HELLO + encode(PACKED) * 5, 0.0)
    assert len(session.events()) == 6
    assert session.job is None


def test_the_outcome_of_a_job_after_the_end_of_its_session_is_dropped():
    session = YampSession(YampSpeaker.SERVER, yamp.Options(max_body_inline=1), draw=bytes)
    session.start(0.0)
    session.receive(speech.handshake() + speech.event(body=b"[1]") + speech.event(body=b"2"), 0.0)
    job = session.job
    session.bye()
    session.events()
    session.finish(job(), 0.0)
    assert session.events() == []
    assert session.job is None
