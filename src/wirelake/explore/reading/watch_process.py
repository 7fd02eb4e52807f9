"""The process of a `Watcher`: reads a recording from its standard input, and answers with what is wrong in it.

It has no clock: the time comes between the bytes. It ends with its input, so that a peer that dies leaves no process behind.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterable
from multiprocessing.connection import Connection

from wirelake.explore.reading.records import Message, Record
from wirelake.explore.reading.watch import Begin, Failed, Order, Overdue, Read

__all__ = ["main"]


def main() -> None:
    """Answer with a list of records when ready, and for each frame; at the end of the input with one more, and then None."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a service manager may signal all processes: the peer still sends, then closes
        signal.signal(number, signal.SIG_IGN)
    requests, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # nothing that a library prints comes between answers
    try:
        order = requests.recv()
        _serve(order, requests, answers)
        answers.send(None)
    except BrokenPipeError:  # the peer is gone
        pass
    except Exception as reason:
        answers.send(Failed(f"its process failed: {reason!r}", "".join(traceback.format_exception(reason))))


def _serve(order: Order, requests: Connection, answers: Connection) -> None:
    from wirelake.explore.reading.engine import ReadOptions  # noqa: PLC0415 - takes a second: signals are ignored by then
    from wirelake.explore.reading.live_reading import LiveReading, warm_up  # noqa: PLC0415

    reading = LiveReading(order.options or ReadOptions())

    def answer(records: Iterable[Record]) -> None:
        answers.send([one for one in records if order.messages or not isinstance(one, Message)])

    warm_up()
    answer(())
    while True:
        try:
            frame = requests.recv()
        except EOFError:
            answer(reading.end())
            return
        if isinstance(frame, Begin):
            reading.begin(frame.preamble)
        elif isinstance(frame, Read):
            answer(reading.read(frame.data))
        elif isinstance(frame, Overdue):
            answer(reading.overdue(frame.now))
