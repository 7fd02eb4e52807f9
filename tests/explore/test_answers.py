"""Answers of the server: computed once for all who ask, kept for a snapshot, and ended when nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.explore.rows import message

from wirelake.errors import QueryError
from wirelake.explore.model.database import Database
from wirelake.explore.visit import Visit
from wirelake.explore.web.answers import KEPT, Answers

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7"


@pytest.fixture
def answers(fill: Callable[..., Path], tmp_path: Path) -> Iterator[Answers]:
    row = message(0, message_id=b"m" * 16, protocol="emp", name="data", size=1, status="ok", source="/a", offset=0, length=1)
    with Database(fill(tmp_path / "lake", {"messages": [row]})) as database:
        yield Answers(database)


class Reader(threading.Thread):
    """A reader who asks in a thread."""

    def __init__(self, answers: Answers, make: Callable[[Any], Any], key: str = "key") -> None:
        super().__init__()
        self.visit = Visit()
        self._ask = lambda: answers.get((key,), make)
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.visit.run(self._ask)
        except QueryError as error:
            self.answer = error


def test_an_answer_is_made_once(answers: Answers) -> None:
    made = []
    for _ in range(3):
        assert answers.get(("key",), lambda connection: made.append(connection) or len(made)) == (0, 1)  # type: ignore[func-returns-value]
    for number in range(KEPT):
        answers.get((number,), lambda _: None)
    assert answers.get(("key",), lambda _: "again") == (0, "again")  # only some are kept


def test_readers_who_ask_the_same_wait_for_one_answer(answers: Answers) -> None:
    begun, go, made = threading.Event(), threading.Event(), []

    def make(_: Any) -> str:
        made.append(1)
        begun.set()
        go.wait()
        return "answer"

    first = Reader(answers, make)
    begun.wait()
    others = [Reader(answers, make) for _ in range(3)]
    go.set()
    for reader in (first, *others):
        reader.join()
        assert reader.answer == (0, "answer")
    assert made == [1]


def endless(begun: threading.Event) -> Callable[[Any], Any]:
    def make(connection: Any) -> Any:
        begun.set()
        return connection.execute(ENDLESS).fetchall()

    return make


def test_a_question_ends_when_its_reader_leaves(answers: Answers) -> None:
    begun = threading.Event()
    reader = Reader(answers, endless(begun))
    begun.wait()
    reader.visit.leave()
    reader.join(15)  # without it, the limit of 20 s would end the question
    assert isinstance(reader.answer, QueryError)


def test_a_question_goes_on_while_another_reader_waits(answers: Answers) -> None:
    begun, go = threading.Event(), threading.Event()

    def make(connection: Any) -> Any:
        begun.set()
        go.wait()
        return connection.execute("SELECT count(*) FROM messages").fetchall()

    first = Reader(answers, make)
    begun.wait()
    second = Reader(answers, make)
    while not any(work.readers == 2 for work in answers._running.values()):
        pass
    first.visit.leave()
    go.set()
    second.join()
    assert second.answer == (0, [(1,)])
    first.join()


def test_a_failure_is_of_the_reader_who_asked(answers: Answers) -> None:
    def fail(_: Any) -> Any:
        raise QueryError("no")

    reader = Reader(answers, fail)
    reader.join()
    assert isinstance(reader.answer, QueryError)
    assert answers.get(("key",), lambda _: 5) == (0, 5)
