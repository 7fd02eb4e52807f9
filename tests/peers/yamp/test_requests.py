"""Requests live: outcomes as values and exceptions, progress, cancellation both ways, types, timeouts, pressure."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest
from tests.peers.world import log_of, run, until
from tests.peers.yamp.world import demo, two_peers
from tests.protocols.yamp.speech import request

from wirelake.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RequestCancelled,
    RequestFailed,
    RequestTimeout,
    SessionClosed,
    UsageError,
)
from wirelake.peers.workload import LOOKAHEAD
from wirelake.peers.yamp import Options, Service
from wirelake.protocols.yamp.faults import Fault


class Point(msgspec.Struct):
    x: int
    y: int


def serving(service, **options):
    return Options(service=service, **options)


def with_service(body):
    """A test that talks to a service, as client and as server."""

    def test():
        async def main():
            service = Service()
            async with two_peers(Options(), serving(service)) as (peer, other):
                await body(service, peer, other)

        run(main)

    test.__name__ = body.__name__
    return test


# What handlers do.


@with_service
async def test_what_a_handler_returns_is_the_answer(service, peer, other):
    service.request("plain", lambda _, call: [call.uri, call.body, call.progressive])

    @service.request("slow")
    async def slow(_, call):
        await asyncio.sleep(0)
        return call.peer is other

    assert await peer.request("plain", 4) == ["plain", 4, False]
    assert await peer.request("slow") is True


@with_service
async def test_what_a_handler_raises_is_the_error(service, peer, other):
    @service.request("plain")
    def plain(_, call):
        raise RequestFailed({"code": 4})

    @service.request("slow")
    async def slow(_, call):
        raise RequestFailed("no")

    @service.request("given-up")
    async def given_up(_, call):
        raise RequestCancelled("I would rather not")

    with pytest.raises(RequestFailed) as caught:
        await peer.request("plain")
    assert caught.value.body == {"code": 4}
    assert str(caught.value) == "'plain' failed: {'code': 4}"
    with pytest.raises(RequestFailed) as caught:
        await peer.request("slow")
    assert caught.value.body == "no"
    with pytest.raises(RequestCancelled):
        await peer.request("given-up")
    assert peer.is_open


@with_service
async def test_a_bug_in_a_handler_is_told_without_its_secrets(service, peer, other):
    @service.request("plain")
    def plain(_, call):
        raise ZeroDivisionError("secret")

    @service.request("slow")
    async def slow(_, call):
        await asyncio.sleep(0)
        raise ZeroDivisionError("secret")

    @service.request("object")
    def no_body(_, call):
        return object()

    with log_of("wirelake.yamp") as lines:
        for uri, told in (("plain", "the request failed"), ("slow", "the request failed"), ("object", "the answer cannot be sent")):
            with pytest.raises(RequestFailed) as caught:
                await peer.request(uri)
            assert caught.value.body == told
    assert len([line for line in lines if "secret" in line]) == 2
    assert peer.is_open


def test_an_application_makes_its_own_errors():
    async def main():
        service = Service()
        service.request("a", lambda _, call: 1 / 0)
        service.request("b", lambda _, call: 1 / 0)

        def explain(_peer, call, reason):
            if call.uri == "b":
                raise RuntimeError("a bug in here, too")
            return {"kind": type(reason).__name__}

        with log_of("wirelake.yamp"):
            async with two_peers(Options(), serving(service, on_failure=explain)) as (peer, _):
                for uri, body in (("a", {"kind": "ZeroDivisionError"}), ("b", "the request failed")):
                    with pytest.raises(RequestFailed) as caught:
                        await peer.request(uri)
                    assert caught.value.body == body

    run(main)


def test_an_answer_over_the_limit_is_a_failure_that_can_be_sent_and_a_request_over_it_closes():
    async def main():
        service = demo()
        service.request("large", lambda _, call: "x" * 200)
        async with two_peers(Options(), serving(service, max_body_size=100)) as (peer, other):
            with log_of("wirelake.yamp"), pytest.raises(RequestFailed, match="the answer cannot be sent"):
                await peer.request("large")
            with pytest.raises(SessionClosed, match="message too large"):
                await peer.request("echo", "x" * 200)
            assert other.ended.fault is Fault.BODY_OVER_LIMIT

    run(main)


@with_service
async def test_types_are_checked_on_both_sides(service, peer, other):
    service.request("point", lambda _, call: call.body, of=Point)
    service.request("wrong", lambda _, call: {"x": "one"})
    assert await peer.request("point", {"x": 1, "y": 2}, of=Point) == Point(1, 2)
    with log_of("wirelake.yamp"), pytest.raises(RequestFailed, match=r"the body does not fit: .*\$\.y"):
        await peer.request("point", {"x": 1, "y": "2"})
    assert other.noticed == {Fault.BODY_UNDECODABLE: 1}
    with pytest.raises(RemoteProtocolError) as caught:
        await peer.request("wrong", of=Point)
    assert caught.value.fault is Fault.BODY_UNDECODABLE
    assert peer.is_open


@with_service
async def test_a_handler_for_everything_else(service, peer, other):
    service.request("known", lambda _, call: "known")
    service.otherwise(lambda _, call: [call.uri, call.body])
    assert [await peer.request(uri, 1) for uri in ("known", "other")] == ["known", ["other", 1]]
    with pytest.raises(UsageError, match="have a handler already"):
        service.otherwise(lambda _, call: 1)


def test_a_uri_has_one_handler():
    service = demo()
    with pytest.raises(UsageError, match="have a handler already"):
        service.request("echo", lambda _, call: 1)


# Progress.


@with_service
async def test_steps_come_one_by_one_and_the_answer_after_them(service, peer, other):
    go_on = asyncio.Event()

    @service.request("work")
    async def work(_, call):
        for step in range(3):
            assert await call.progress({"step": step})
        await go_on.wait()
        return "done"

    async with await peer.ask("work") as ask:
        assert [await anext(ask) for _ in range(3)] == [{"step": 0}, {"step": 1}, {"step": 2}]
        go_on.set()
        assert [step async for step in ask] == []
        assert await ask.answer() == "done"
    assert ask.kill() is False


@with_service
async def test_steps_nobody_asked_for_are_not_sent(service, peer, other):
    told = []

    @service.request("work")
    async def work(_, call):
        told.append(await call.progress(1))
        return "done"

    assert await peer.request("work") == "done"
    assert told == [False]
    assert peer.noticed == {}


@with_service
async def test_who_wants_only_the_answer_need_not_read_the_steps(service, peer, other):
    @service.request("work")
    async def work(_, call):
        for step in range(5000):
            await call.progress(step)
        return "done"

    ask = await peer.ask("work")
    assert await ask.answer() == "done"


def test_who_reads_steps_slowly_slows_their_maker():
    async def main():
        service, sent = Service(), []

        @service.request("work")
        async def work(_, call):
            for step in range(3000):
                await call.progress("x" * 1000)
                sent.append(step)
            return "done"

        async with two_peers(Options(max_inbox=10), serving(service)) as (peer, _):
            ask = await peer.ask("work")
            await until(lambda: len(sent) > 20)
            before = -1
            while before != len(sent):
                before = len(sent)
                await asyncio.sleep(0.05)
            assert before < 3000
            assert sum([1 async for _ in ask]) == 3000
            assert await ask.answer() == "done"

    run(main)


@with_service
async def test_a_failure_ends_the_steps_with_its_error(service, peer, other):
    @service.request("work")
    async def work(_, call):
        await call.progress(1)
        raise RequestFailed("half way")

    ask = await peer.ask("work")
    assert await anext(ask) == 1
    with pytest.raises(RequestFailed, match="half way"):
        await anext(ask)
    with pytest.raises(RequestFailed, match="half way"):
        await ask.answer()


# Cancellation.


@with_service
async def test_a_handler_learns_of_a_graceful_cancel_and_may_clean_up(service, peer, other):
    story = []

    @service.request("work")
    async def work(_, call):
        try:
            await call.progress("begun")
            await asyncio.Event().wait()
        finally:
            story.append(("cleaned up", call.cancelled, call.killed))

    ask = await peer.ask("work")
    assert await anext(ask) == "begun"
    assert ask.cancel()
    with pytest.raises(RequestCancelled):
        await anext(ask)
    assert story == [("cleaned up", True, False)]
    assert ask.cancel() is False


@with_service
async def test_a_handler_may_answer_all_the_same(service, peer, other):
    @service.request("work")
    async def work(_, call):
        await call.progress("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "what there was"

    ask = await peer.ask("work")
    await anext(ask)
    ask.cancel()
    assert await ask.answer() == "what there was"


@with_service
async def test_a_killed_request_ends_at_once_and_its_handler_is_interrupted_without_an_answer(service, peer, other):
    ended = asyncio.Event()

    @service.request("work")
    async def work(_, call):
        try:
            await call.progress("begun")
            await asyncio.Event().wait()
        finally:
            assert call.killed
            ended.set()

    ask = await peer.ask("work")
    await anext(ask)
    assert ask.kill()
    with pytest.raises(RequestCancelled, match="killed"):
        await ask.answer()
    await ended.wait()
    assert await peer.ping() >= 0
    assert peer.noticed == {}, "nothing was answered"


@with_service
async def test_a_request_that_is_cancelled_before_its_handler_began(service, peer, other):
    @service.request("work")
    async def work(_, call):
        raise AssertionError("never")

    await peer.send("first")  # all that follows in this turn of the loop is sent together
    asks = [await peer.ask("work") for _ in range(2)]
    asks[0].cancel()
    asks[1].kill()
    with pytest.raises(RequestCancelled):
        await asks[0].answer()
    await peer.ping()
    assert peer.noticed == {}


def test_a_cancel_is_answered_at_once_while_all_handlers_are_busy():
    async def main():
        service, free, begun = Service(), asyncio.Event(), []

        @service.request("work")
        async def work(_, call):
            begun.append(call.body)
            await free.wait()
            return call.body

        async with two_peers(Options(), serving(service, max_in_flight=1)) as (peer, other):
            asks = [await peer.ask("work", number) for number in range(4)]
            await until(lambda: begun == [0])
            waiting = other.account.waiting
            asks[1].cancel()
            with pytest.raises(RequestCancelled):
                await asks[1].answer()
            asks[2].kill()
            await peer.ping()
            assert begun == [0], "no other handler had its turn"
            assert other.account.waiting == waiting // 2, "half of the messages are gone"
            free.set()
            assert [await asks[number].answer() for number in (0, 3)] == [0, 3]
            assert begun == [0, 3], "what was cancelled never began"
            assert peer.noticed == other.noticed == {}
            assert other.account.waiting == 0

    run(main)


def test_pings_and_cancels_are_answered_while_memory_is_full_and_a_little_more_is_read():
    async def main():
        service, free, begun = Service(), asyncio.Event(), []

        @service.request("work")
        async def work(_, call):
            begun.append(call.body)
            await free.wait()

        async with two_peers(Options(), serving(service, max_memory=100_000)) as (peer, other):
            large = [await peer.ask("work", number * 10_000) for number in ("a", "b", "c")]
            await until(lambda: len(begun) == 3)
            assert not other.account.is_full()
            large += [await peer.ask("work", "d" * 100_000)]
            await until(lambda: len(begun) == 4)
            assert other.account.is_full()
            for _ in range(3):
                assert await peer.ping() >= 0
            large[3].cancel()
            with pytest.raises(RequestCancelled):
                await large[3].answer()
            assert not other.account.is_full(was_full=True)

            asks = [await peer.ask("work", "e" * 70_000)]
            await until(other.account.is_full)
            asks += [await peer.ask("work", 1) for _ in range(1000)]
            await until(lambda: not other._driver._readable.is_set())
            assert len(begun) < 5 + 3 * LOOKAHEAD // len(request(body=b"1")), "a few, and no more"
            free.set()
            for ask in [*large[:3], *asks]:
                await ask.answer()
            assert len(begun) == 1005

    run(main)


@with_service
async def test_a_task_that_waits_for_an_answer_and_is_cancelled_kills_the_request(service, peer, other):
    begun, ended = asyncio.Event(), asyncio.Event()

    @service.request("work")
    async def work(_, call):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(peer.request("work"))
        await begun.wait()
        task.cancel()
        await ended.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await peer.request("work")


@with_service
async def test_leaving_the_block_kills_the_request(service, peer, other):
    ended = asyncio.Event()

    @service.request("work")
    async def work(_, call):
        try:
            await call.progress(1)
            await call.progress(2)
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with await peer.ask("work") as ask:
        async for _ in ask:
            break
    await ended.wait()


@with_service
async def test_a_handler_that_cancels_itself_still_answers(service, peer, other):
    @service.request("work")
    async def work(_, call):
        raise asyncio.CancelledError

    with log_of("wirelake.yamp"), pytest.raises(RequestFailed, match="the request failed"):
        await peer.request("work")


# Time and the end.


@with_service
async def test_a_request_nobody_answers_expires_and_the_connection_lives(service, peer, other):
    @service.request("work")
    async def work(_, call):
        await asyncio.sleep(0.1)
        return "late"

    with pytest.raises(RequestTimeout, match="'work'"):
        await peer.request("work", timeout=0.02)
    assert await peer.request("work", timeout=math.inf) == "late"
    assert peer.noticed == {Fault.RESPONSE_UNMATCHED: 1}


@with_service
async def test_steps_keep_a_request_alive(service, peer, other):
    @service.request("work")
    async def work(_, call):
        for _ in range(5):
            await asyncio.sleep(0.05)
            await call.progress(None)
        return "done"

    ask = await peer.ask("work", timeout=0.15)
    assert await ask.answer() == "done"


@pytest.mark.parametrize("by_peer", [False, True])
def test_all_that_is_pending_fails_when_the_session_ends(by_peer):
    async def main():
        service = Service()

        @service.request("work")
        async def work(_, call):
            await asyncio.Event().wait()

        async with two_peers(Options(), serving(service)) as (peer, other):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_reason(peer.request("work"))) for _ in range(5)]
                ask = await peer.ask("work")
                pinging = group.create_task(_reason(peer.ping())) if by_peer else None
                await asyncio.sleep(0)
                (other if by_peer else peer).close("enough")
            errors = [task.result() for task in tasks]
            assert {type(error) for error in errors} == {SessionClosed}
            assert all("enough" in str(error) for error in errors)
            assert len({id(error) for error in errors}) == 5, "one for each"
            with pytest.raises(SessionClosed, match="enough"):
                await ask.answer()
            with pytest.raises(SessionClosed, match="enough"):
                await anext(ask)
            assert pinging is None or isinstance(pinging.result(), SessionClosed | float)

    run(main)


async def _reason(awaitable):
    try:
        return await awaitable
    except SessionClosed as reason:
        return reason


@with_service
async def test_what_cannot_be_asked_is_the_caller_s_fault(service, peer, other):
    for uri, body, fault in (("", 1, Fault.URI_SIZE), ("a", object(), Fault.BODY_UNSERIALIZABLE)):
        with pytest.raises(LocalProtocolError) as caught:
            await peer.request(uri, body)
        assert caught.value.fault is fault
    assert peer.is_open


def test_requests_of_both_sides_at_once_under_pressure():
    async def main():
        small = {"max_in_flight": 4, "max_memory": 10_000}
        async with two_peers(serving(demo(), **small), serving(demo(), **small), cut=1000) as (peer, other):
            bodies = ["x" * 3000] * 40
            found = await asyncio.gather(*(end.request("echo", body) for body in bodies for end in (peer, other)))
            assert found == [body for body in bodies for _ in range(2)]
            found = await asyncio.gather(*(end.request("sum", [number] * 9) for number in range(40) for end in (peer, other)))
            assert found == [9 * number for number in range(40) for _ in range(2)]

    run(main)
