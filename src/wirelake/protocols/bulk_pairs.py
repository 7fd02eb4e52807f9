"""Pair many requests with their answers at once, for sessions with many messages.

In a long session, nearly all messages are requests and answers that break no rule. An analyzer remembers nothing of them but their
number. So a stretch of messages is looked at as arrays: requests whose answer follows are told as pairs. All other messages go to the
analyzer's `message`, in order: whatever could break a rule, what waits for an answer, and everything about a correlation id that is used
in any other way. The results are those of `message` for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wirelake.protocols.analyzer import NO_TIME, SeenMessage
from wirelake.protocols.bulk_ids import take_all
from wirelake.protocols.request_pairs import ANSWER, MAX_WAITING, OTHER, REQUEST, PairingAnalyzer

__all__ = ["MAX_STRETCH", "Ids", "Pairs", "Stretch", "pair_in_bulk"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_STRETCH: Final = MAX_WAITING
"""Messages that are looked at together: with as many more requests, none that waits is forgotten."""
SINGLE: Final = 64
"""Where fewer messages could be looked at together, so many go to `message` one by one."""


class Ids(Protocol):
    """Correlation ids of a stretch."""

    codes: Any
    """Equal ids as equal numbers from 0."""

    def find(self, ids: Iterable[Any]) -> Any:
        """The numbers of those of these ids that are there."""

    def numbers(self) -> Any:
        """The ids as numbers of 64 bits, by their code; for those that are numbers."""


class Stretch(Protocol):
    """Messages of one session in order, by column. Names are those of the fields of `SeenMessage`."""

    def __len__(self) -> int:
        """How many messages."""

    def numbers(self, name: str) -> Any:
        """The numbers of a column; 0 where there is none."""

    def flags(self, name: str) -> Any:
        """The truth values of a column; False where there is none."""

    def is_null(self, name: str) -> Any:
        """Whether there is no value."""

    def codes(self, name: str) -> tuple[Any, list[Any]]:
        """Equal values as equal numbers from 0, and the value of each number."""

    def ids(self, name: str, other: str | None = None, where: Any = None) -> Ids:
        """Correlation ids. Where `where` is true, they are those of the column `other`."""

    def keys(self, name: str) -> Any:
        """The values of a column with 16 bytes each; any where there is none."""

    def messages(self, places: Ints) -> Iterator[SeenMessage]:
        """The messages at these places."""


class Pairs(NamedTuple):
    """Places of requests, and of their answers."""

    requests: Ints
    answers: Ints


_NONE: Final = np.zeros(0, np.int64)


def pair_in_bulk(analyzer: PairingAnalyzer, stretch: Stretch) -> Pairs:
    """Feed all messages of a stretch to an analyzer; return the pairs that it counts, but does not tell as exchanges.

    The stretch has at most `MAX_STRETCH` messages.
    """
    return _Bulk(analyzer, stretch).run()


class _Bulk:
    """One stretch on its way through an analyzer."""

    def __init__(self, analyzer: PairingAnalyzer, stretch: Stretch) -> None:
        self._analyzer = analyzer
        self._stretch = stretch
        self._said = analyzer.correlated(stretch)
        self._ts: Ints = stretch.numbers("ts")
        self._connections, self._of_connection = stretch.codes("connection_id")
        names, words = analyzer.names_of(stretch)
        self._to_server: Flags = stretch.flags("to_server")
        self._looks: Ints = names * 2 + self._to_server
        self._of_look = [(to_server, word) for word in words for to_server in (False, True)]

    def run(self) -> Pairs:
        told = []
        at, end = 0, len(self._stretch)
        while at < end:
            stop = self._quiet_until(at)
            if stop - at >= SINGLE:
                told.append(self._pair(at, stop))
            else:
                stop = min(end, at + SINGLE)
                self._feed(np.arange(at, stop))
            at = stop
        return Pairs(*(np.concatenate(parts) for parts in zip(*told, strict=True))) if told else Pairs(_NONE, _NONE)

    def _quiet_until(self, at: int) -> int:
        """The place of the first message that may change a state or break its rules; `at` if nothing may be paired now."""
        analyzer, states = self._analyzer, self._analyzer.STATES
        waiting = len(analyzer.pairs.of_client) + len(analyzer.pairs.of_server)
        if states is None or waiting > MAX_WAITING or not analyzer.may_pair:
            return at
        connection = int(self._connections[at])
        state = analyzer.states.get(self._of_connection[connection], states.initial)
        is_loud = np.array([(state, *look) not in states.quiet for look in self._of_look], bool)[self._looks[at:]]
        is_loud |= self._connections[at:] != connection
        if self._said.alone is not None:
            is_loud |= self._said.alone[at:]
        return at + int(is_loud.argmax()) if is_loud.any() else len(self._stretch)

    def _pair(self, at: int, stop: int) -> Pairs:
        """Tell the pairs among quiet messages, and feed the others."""
        analyzer = self._analyzer
        used = self._use_ids(at, stop)
        pairs = self._regular(at, stop, used)
        if analyzer.first_said == NO_TIME:
            analyzer.first_said = int(self._ts[at])
        is_paired = np.zeros(stop - at, bool)
        is_paired[pairs.requests - at] = is_paired[pairs.answers - at] = True
        others = at + np.flatnonzero(~is_paired)
        last = int(pairs.answers[-1]) if len(pairs.answers) else at - 1
        self._feed(others[others < last], used)
        if last >= at:
            analyzer.last_said = analyzer.last_word = int(self._ts[last])
        self._feed(others[others > last], used)
        analyzer.requests += len(pairs.requests)
        analyzer.answered += len(pairs.answers)
        analyzer.paired(self._said.by_client[pairs.requests], self._ts[pairs.answers] - self._ts[pairs.requests])
        return pairs

    def _use_ids(self, at: int, stop: int) -> set[int]:
        """Use the identifiers of quiet messages, in order; the places of those that were used before."""
        has_own, own, used_by = self._said.has_own, self._said.own, self._said.used
        used: set[int] = set()
        if has_own is None or own is None or used_by is None:
            return used
        for of_client in (True, False):
            places = at + np.flatnonzero(has_own[at:stop] & (self._to_server[at:stop] == of_client))
            used.update(places[take_all(used_by(of_client), own(places))].tolist())
        return used

    def _regular(self, at: int, stop: int, used: set[int]) -> Pairs:
        """Requests and answers with a correlation id that only alternate, from a request on that finds the id free.

        None of them has an identifier that was used before.
        """
        kind = self._said.kind[at:stop]
        about = np.flatnonzero(kind)
        key = (self._said.ids[at:stop] * 2 + self._said.by_client[at:stop])[about]
        order = np.argsort(key, kind="stable")
        key, about = key[order], about[order]
        kind = kind[about]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        group = np.cumsum(np.diff(key, prepend=-1) != 0) - 1
        is_first = np.zeros(len(key), bool)
        is_first[starts] = True
        is_odd = (kind == OTHER) | (~is_first & (kind == np.roll(kind, 1)))
        is_odd |= is_first & (kind == REQUEST) & self._is_waiting(key)
        if used:
            is_odd |= np.isin(at + about, list(used))
        irregular = np.zeros(len(starts), bool)
        irregular[group[is_odd]] = True
        follows = np.flatnonzero((kind == ANSWER) & ~is_first & ~irregular[group])
        requests, answers = about[follows - 1], about[follows]
        in_order = np.argsort(answers, kind="stable")
        return Pairs(at + requests[in_order], at + answers[in_order])

    def _is_waiting(self, key: Ints) -> Flags:
        """Whether a request with this key waits already."""
        pairs, find = self._analyzer.pairs, self._said.find
        waiting = [2 * find(ids) + by_client for by_client, ids in ((0, pairs.of_server), (1, pairs.of_client)) if ids]
        return np.isin(key, np.concatenate(waiting)) if waiting else np.zeros(len(key), bool)

    def _feed(self, places: Ints, used: set[int] | None = None) -> None:
        """Feed messages one by one; with places of used identifiers, these are judged already."""
        analyzer = self._analyzer
        for place, message in zip(places.tolist(), self._stretch.messages(places), strict=True):
            analyzer.is_used = None if used is None else place in used
            analyzer.message(message)
        analyzer.is_used = None
