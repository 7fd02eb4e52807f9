"""EMP as an observer sees it: requests with responses, pings with pongs, greetings and partings of both sides.

The state machine, the faults and the timeouts are those of the live session. What a live session does not see is the other side's clock:
whether a pong was late is told when it comes, or at the end (EMP-32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from wirelake.errors import FaultLike
from wirelake.protocols.analyzer import NO_TIME, SeenMessage, Timeouts, delay
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import VERSION
from wirelake.protocols.emp.options import DEFAULT_OPTIONS
from wirelake.protocols.emp.state_machine import MACHINE
from wirelake.protocols.reply_timer import MIN_RATE
from wirelake.protocols.request_pairs import ANSWER, OTHER, REQUEST, Correlated, PairColumns, PairingAnalyzer
from wirelake.protocols.state_table import StateTable, state_table
from wirelake.protocols.used_ids import UsedNumbers

if TYPE_CHECKING:
    from wirelake.protocols.bulk_pairs import Stretch

__all__ = ["Analyzer", "Seen"]

_PONG_MICROS: Final = round((DEFAULT_OPTIONS.pong_timeout or 0) * 1_000_000)
"""EMP-32: how long a pong may take; 0: any time."""
_MICROS_A_BYTE: Final = round(1_000_000 / MIN_RATE)
"""EMP-32: how much a byte of a large message postpones a pong."""
_LARGE: Final = round(MIN_RATE)
"""Shorter messages postpone nothing."""
_STATES: Final = state_table(MACHINE)
_PARTING: Final = frozenset(("bye", "error"))


class Seen(SeenMessage, gc=False):
    """An EMP message."""

    type_name: str
    version: int | None
    error_code: int | None
    request: bool | None
    request_id: str | None
    oddities: int


class Ping(msgspec.Struct, gc=False, array_like=True):
    """A ping that waits for its pong."""

    message: Seen
    carried: int
    """Bytes of large messages before it."""


class Analyzer(PairingAnalyzer):
    """Watches one EMP connection."""

    MESSAGE: ClassVar[type[SeenMessage]] = Seen
    STATES: ClassVar[StateTable | None] = _STATES
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = (Fault.UNUSED_BITS_SET, Fault.BODY_IGNORED)
    TIMEOUTS: ClassVar[Timeouts | None] = Timeouts(
        Fault.CLOSED_INSIDE_MESSAGE,
        Fault.CLOSED_WITHOUT_PARTING,
        Fault.HANDSHAKE_TIMEOUT,
        DEFAULT_OPTIONS.handshake_timeout,
        # EMP-22: an unreadable error is answered by closing without a message, which counts as parting.
        (Fault.ERROR_TOO_SHORT, Fault.ERROR_TRAILING_BYTES, Fault.ERROR_NOT_UTF8),
    )
    """EMP-29, EMP-43: say hello in time, end with bye or error, and never inside a message."""
    PAIRS: ClassVar[PairColumns | None] = PairColumns("request_id")

    client_version: int | None = None
    server_version: int | None = None
    error_code: int | None = None
    carried: int = 0
    """EMP-32: bytes of large messages, both ways.

    An observer does not see what still drained: all of it counts as before the answer, at the slowest line that sessions accept.
    """
    has_error: bool = False
    client_ping: Ping | None = None
    """The ping of the client that waits for a pong."""
    server_ping: Ping | None = None
    client_waits: int = 0
    """Pings of the client without a pong: more than one if they overlap."""
    server_waits: int = 0
    client_ids: UsedNumbers = msgspec.field(default_factory=UsedNumbers)
    """EMP-13: ids of requests of the client."""
    server_ids: UsedNumbers = msgspec.field(default_factory=UsedNumbers)

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        name, fault = message.type_name, message.fault
        if self.first_said == NO_TIME:
            self.first_said = message.ts
        self.last_said = message.ts
        if self.unanswered_pings:
            self._heard(message, Fault.PONG_MISSING.name)
        if name in _PARTING:
            self._parts(message)
        else:
            self.last_word = message.ts
        if (self.states.get(message.connection_id), message.to_server, name) not in _STATES.quiet:
            self._step(message, name)
        if message.oddities:
            self._odd(message.oddities, message)
        if fault is not None:
            self._found(fault, message, needs_whole=False)
            if name == "hello":
                self._greets(message)
            return
        if message.length >= _LARGE:
            self.carried += message.length
        if message.request is not None:
            if message.request:
                self._asks(message)
            else:
                self._answers(message)
        elif name == "hello":
            self._greets(message)
        elif name == "ping":
            self._pings(message)
        elif name == "pong":
            self._pongs(message)

    def end(self) -> None:
        """See `SessionAnalyzer`."""
        for ping in (self.client_ping, self.server_ping):
            if ping is not None:
                self._judge_pong(ping, None)
        PairingAnalyzer.end(self)

    @property
    def may_pair(self) -> bool:
        """See `PairingAnalyzer`. While a side never answered a ping, each of its messages counts (EMP-32)."""
        return not self.unanswered_pings

    def correlated(self, stretch: Stretch) -> Correlated:
        """See `PairingAnalyzer`."""
        is_request = stretch.flags("request")
        is_plain = (stretch.numbers("oddities") == 0) & (stretch.numbers("length") < _LARGE)
        is_about = ~stretch.is_null("request") & ~stretch.is_null("request_id") & stretch.is_null("fault")
        kind = is_about * (is_plain * (is_request * REQUEST + ~is_request * ANSWER) + ~is_plain * OTHER)
        ids = stretch.ids("request_id")
        names, words = stretch.codes("type_name")
        pings = names == words.index("ping") if "ping" in words and len(self.pong_judged) < 2 else None
        numbers = ids.numbers()
        return Correlated(
            kind,
            stretch.flags("to_server") == is_request,
            ids.codes,
            ids.find,
            pings,
            is_about & is_request,
            lambda places: numbers[ids.codes[places]],
            self._ids_of,
        )

    def names_of(self, stretch: Stretch) -> tuple[Any, list[str]]:
        """See `PairingAnalyzer`."""
        return stretch.codes("type_name")

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        is_accepted = self.client_version == VERSION and self.server_version == VERSION
        return self.client_version, self.server_version, is_accepted, self.error_code

    def _greets(self, message: Seen) -> None:
        if message.to_server and self.client_greeted == NO_TIME:
            self.client_version = message.version
        elif not message.to_server and self.server_greeted == NO_TIME:
            self.server_version = message.version
        self._greeted(message)
        if message.fault is None and message.version != VERSION:
            self._found(Fault.VERSION_UNSUPPORTED.name, message, needs_whole=False)  # EMP-27

    def _parts(self, message: Seen) -> None:
        if message.type_name == "error" and not self.has_error:
            self.has_error = True
            self.error_code = message.error_code
        self._parted(message, "error" if message.type_name == "error" else "bye")

    def _asks(self, message: Seen) -> None:
        """EMP-18, EMP-13: a request needs an id that is not in flight, and was not before."""
        request_id = message.request_id or "0"
        is_used = self.is_used
        if is_used is None:
            is_used = self._ids_of(message.to_server).take(int(request_id))
        if self._ask(message, request_id, None):
            self._found(Fault.REQUEST_ID_IN_FLIGHT.name, message, needs_whole=True)
        elif is_used:
            self._found(Fault.REQUEST_ID_REUSED.name, message, needs_whole=True)

    def _ids_of(self, client: bool) -> UsedNumbers:
        return self.client_ids if client else self.server_ids

    def _answers(self, message: Seen) -> None:
        """EMP-16: a response needs a waiting request."""
        if not self._answer(message, message.request_id or "", None):
            self._found(Fault.RESPONSE_UNMATCHED.name, message, needs_whole=True)

    def _pings(self, message: Seen) -> None:
        """EMP-31: no ping before the pong to the last."""
        self._pinged(message)
        waits = self.client_waits if message.to_server else self.server_waits
        if waits:
            self._found(Fault.PING_OVERLAPPING.name, message, needs_whole=True)
        elif message.to_server:
            self.client_ping = Ping(message, self.carried)
        else:
            self.server_ping = Ping(message, self.carried)
        self._wait(of_client=message.to_server, more=1)

    def _pongs(self, message: Seen) -> None:
        """EMP-30: no pong without a ping."""
        self._ponged(message)
        waits = self.server_waits if message.to_server else self.client_waits
        if not waits:
            self._found(Fault.PONG_UNSOLICITED.name, message, needs_whole=True)
            return
        ping = self.server_ping if message.to_server else self.client_ping
        if ping is not None:
            self._judge_pong(ping, message.ts)
        if message.to_server:
            self.server_ping = None
        else:
            self.client_ping = None
        self._wait(of_client=not message.to_server, more=-1)

    def _wait(self, *, of_client: bool, more: int) -> None:
        if of_client:
            self.client_waits += more
        else:
            self.server_waits += more

    def _judge_pong(self, ping: Ping, ponged: int | None) -> None:
        """EMP-32: the pong is due in time, later by what was carried since the ping."""
        due = ping.message.ts + _PONG_MICROS + (self.carried - ping.carried) * _MICROS_A_BYTE
        if _PONG_MICROS and self._went_by(due, ponged):
            self._missed(Fault.PONG_TIMEOUT.name, ping.message, due, detail=delay(ping.message.ts, ponged))
