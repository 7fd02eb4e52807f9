"""What the driver tells a session of its output: how much of what came before a question has left."""

from __future__ import annotations

from tests.peers.world import run

from wirelake.peers.driver import LITTLE, Driver
from wirelake.transports import tcp
from wirelake.transports.memory import pair


class Asking:
    """A session that says what it is told to, and keeps what it learns."""

    ended = None
    deadline = None
    rest = frames = b""
    sent_sizes = frame_sizes = ()
    inflated = 0
    job = None

    def __init__(self):
        self.asked = 0
        self.said = b""
        self.learnt = []

    def output(self):
        said, self.said = self.said, b""
        return said

    def events(self):
        return []

    def drained(self, count, _):
        self.learnt.append(count)

    def tick(self, _):
        pass


def test_only_what_was_sent_up_to_the_question_counts():
    async def main():
        one, two = pair()
        session = Asking()
        driver = Driver(session, one, lambda _: None, linger=1, stall_timeout=1, max_unsent=1)
        session.said = b"x" * 100
        driver._settle()
        session.said, session.asked = b"?", 1
        driver._settle()
        session.said = b"y" * 50
        driver._settle()
        for size in (0, 60, 41, 50):
            del two._incoming[:size]
            driver._tick()
        assert session.learnt == [60, 41]

    run(main)


def test_the_system_is_asked_once_for_a_few_questions():
    """A little that nothing waited before counts as gone; a backlog, or more than that, is looked at."""

    class Counting(type(pair()[0])):
        looked = 0

        @property
        def unacknowledged(self):
            self.looked += 1
            return 5

    async def main():
        _, two = pair()
        stream = Counting(1)
        stream._other = two
        session = Asking()
        driver = Driver(session, stream, lambda _: None, linger=1, stall_timeout=1, max_unsent=1)
        stream.looked = 0

        def ask(size):
            session.said, session.asked = b"?" * size, session.asked + 1
            driver._settle()
            return stream.looked

        looks = []
        for size in (LITTLE, 1):
            looks.append(ask(size))
            two._incoming.clear()
        looks.append(ask(1))
        assert looks == [1, 2, 3], "what was given waits in the stream"

        type(stream).unsent = 0
        assert [ask(100), ask(100), ask(LITTLE - 207), ask(1), ask(100), ask(100)] == [3, 3, 3, 3, 4, 4]

    run(main)


def test_bytes_that_the_system_holds_have_not_left():
    async def main():
        arrived = []
        listener = await tcp.listen("127.0.0.1", 0, arrived.append)
        stream = await tcp.connect("127.0.0.1", listener.port)
        try:
            stream.send(bytes(16_000_000))
            assert stream.unsent > 0
            assert stream.unacknowledged > 0
            assert stream.unsent + stream.unacknowledged <= 16_000_000
        finally:
            stream.abort()
            await stream.close()
            listener.close()
            for sock in arrived:
                sock.close()
        assert stream.unacknowledged == 0

    run(main)
