"""When the driver sends what a session says: the first message at once, those that follow it together, and timers in time."""

from __future__ import annotations

import asyncio

from tests.peers.test_draining import Asking
from tests.peers.world import run

from wirelake.peers.accountant import Account
from wirelake.peers.driver import Driver
from wirelake.transports.memory import pair


class Speaking(Asking):
    """A session whose owner lets it speak; it takes what the peer says, and has a deadline if told so."""

    unfinished = walked = 0

    def receive(self, _data, _now):
        pass


def driven(*, gather=False):
    """A driver, its session, and what its stream was given."""
    one, _ = pair()
    session = Speaking()
    driver = Driver(session, one, lambda _: None, account=Account(None, 1), linger=1, stall_timeout=1, max_unsent=1, gather=gather)
    written = []
    one.send = written.append
    return driver, session, written


def post(driver, session, said, due=None):
    session.said += said
    driver.post(len(said), due)


def test_the_first_message_is_sent_at_once_and_nothing_is_planned():
    async def main():
        driver, session, written = driven()
        post(driver, session, b"1")
        assert written == [b"1"]
        assert not driver.flush_planned

    run(main)


def test_messages_of_one_turn_are_two_writes():
    async def main():
        driver, session, written = driven()
        for said in (b"1", b"2", b"3"):
            post(driver, session, said)
        session.said += b"4"
        driver.wake()
        assert written == [b"1"]
        await asyncio.sleep(0)
        assert written == [b"1", b"234"]

    run(main)


def test_after_a_receipt_and_after_a_flush_the_next_message_is_sent_at_once_again():
    async def main():
        driver, session, written = driven()
        post(driver, session, b"1")
        driver._take(b"answer")
        post(driver, session, b"2")
        assert written == [b"1", b"2"]
        post(driver, session, b"3")
        await asyncio.sleep(0)
        post(driver, session, b"4")
        assert written == [b"1", b"2", b"3", b"4"]

    run(main)


def test_what_a_handler_posts_is_sent_after_it():
    async def main():
        driver, session, written = driven()
        said = [[b"event"]]
        session.events = lambda: said.pop() if said else []
        driver._handle = lambda _: [post(driver, session, one) for one in (b"1", b"2")]
        driver._take(b"request")
        assert written == [b"12"]

    run(main)


def test_a_deadline_before_the_timer_moves_it_and_a_later_one_does_not():
    async def main():
        driver, session, _ = driven()
        for deadline, due in ((50.0, 50.0), (60.0, 50.0), (40.0, 40.0)):
            driver._is_fresh = True
            session.deadline = driver.now + deadline
            post(driver, session, b"?", session.deadline)
            assert abs(driver._due - driver.now - due) < 5
        assert driver._timer is not None
        driver._timer.cancel()

    run(main)


def test_with_gather_an_answer_at_once_needs_no_more_turns_of_the_loop():
    """A confirmation goes with what a handler answers at once, or else with what tasks say in this turn."""

    async def main():
        for answers in (True, False):
            driver, session, written = driven(gather=True)
            session.deadline = driver.now + 50
            said = [[b"request"]]
            session.events = lambda said=said: said.pop() if said else []
            session.said = b"confirmation "

            def answer(_, driver=driver, session=session):
                session.said += b"answer"
                driver.wake()

            driver._handle = answer if answers else lambda _: None
            driver._take(b"request")
            assert written == ([b"confirmation answer"] if answers else [])
            assert driver.flush_planned is not answers
            assert (driver._timer is not None) is answers
            await asyncio.sleep(0)
            assert written == [b"confirmation answer" if answers else b"confirmation "]
            assert driver._timer is not None
            driver._timer.cancel()

    run(main)
