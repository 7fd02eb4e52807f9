"""One side of an EMP session: bytes and time in; bytes, events and a deadline out.

After every call: drain `output()`, drain `events()`, read `deadline` again. `receive` never raises for an error of the peer. Sending may
raise LocalProtocolError or SessionClosed, for an error of the caller. `now` is any steadily growing number of seconds.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import LocalProtocolError, SessionClosed
from wirelake.protocols.dialects import AUTO
from wirelake.protocols.emp.dialect import Following, hint
from wirelake.protocols.emp.error_reply import answer, salvage
from wirelake.protocols.emp.events import (
    DataReceived,
    Ended,
    Ending,
    Noticed,
    Opened,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
    SessionEvent,
)
from wirelake.protocols.emp.extensions import BodyRejected, load, unload, unregistered
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.messages import (
    APPLICATION_FIRST,
    TYPES,
    VERSION,
    Application,
    Bye,
    Data,
    Error,
    ErrorCode,
    Extension,
    Hello,
    Message,
    MessageType,
    OtherExtension,
    Ping,
    Pong,
    RequestResponse,
    name_of,
)
from wirelake.protocols.emp.options import DEFAULT_OPTIONS, Codec, Options, Refused
from wirelake.protocols.emp.requests import LAST_ID, IncomingRequests, Match, OutgoingRequests
from wirelake.protocols.emp.scanner import (
    BODY,
    BODY_LENGTH,
    ODD_BITS,
    ODD_BODY,
    ODDITIES,
    REQUEST,
    REQUEST_ID,
)
from wirelake.protocols.emp.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.emp.wire import blocks, buffer, data, encode, exchange
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, PARTS, START
from wirelake.protocols.reply_timer import ReplyClock
from wirelake.protocols.stream_session import StreamSession

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["INITIAL", "TRANSITIONS", "Codec", "Options", "Refused", "Session", "Speaker", "State", "refusal"]


class Session(StreamSession[SessionEvent]):
    """One side of an EMP session."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS) -> None:
        self.speaker = speaker
        self.peer = speaker.other
        self.options = options
        self.state = INITIAL
        self.ended: Ended | None = None
        self._buffer = buffer(options.limits)
        self._output: list[bytes] = []
        self._events: list[SessionEvent] = []
        self._requests: OutgoingRequests = OutgoingRequests(options.max_abandoned)
        self._expiries = self._requests.expiries
        self._peer_requests: IncomingRequests = IncomingRequests(options.in_order)
        self._handshake_deadline: float | None = None
        self._hello_due: float | None = None
        """EMP-1: when to say hello if the peer has not shown its dialect by then."""
        self._next_ping: float | None = None
        self._pong = ReplyClock(options.pong_timeout, options.min_rate)
        self.asked = 0
        """See Drivable: pings."""

    # Output.

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next, whatever else happens."""
        first, ping = self._expiries.first, self._next_ping
        if ping is not None and (first is None or ping < first):
            first = ping
        if self.state is _OPEN and not self._pong.waits:  # by far the commonest
            return first
        for timer in (self._handshake_deadline, self._hello_due, self._pong.deadline):
            if timer is not None and (first is None or timer < first):
                first = timer
        return first

    @property
    def is_proven(self) -> bool:
        """See Drivable: the peer sent its hello."""
        return self.state is State.OPEN

    # Commands of the owner.

    def start(self, now: float) -> None:
        """Handshake: send a hello, and wait for the peer's.

        The order is reversed where its hello decides how ours is written (EMP-1).
        """
        if self.options.limits.sizes_exclude_themselves == AUTO:
            self._hello_due = now + self.options.dialect_wait
        else:
            self._say(Hello(VERSION))
        if self.state is not State.OPEN and self.options.handshake_timeout is not None:
            self._handshake_deadline = now + self.options.handshake_timeout

    def send(
        self, body: bytes, *, compress: bool = False, type_id: int = MessageType.DATA, extensions: tuple[OtherExtension, ...] = ()
    ) -> None:
        """Data: send a body, packed if asked, as data or as an application's own type."""
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        if type_id == _DATA and not extensions and not compress:
            self._output.append(data(body, self.options))  # the state allows it, and stays
        else:
            self._say(self._carry(body, extensions, compress, type_id))

    def request(
        self,
        body: bytes,
        now: float,
        *,
        timeout: float | None = None,
        compress: bool = False,
        type_id: int = MessageType.DATA,
        extensions: tuple[OtherExtension, ...] = (),
    ) -> int:
        """Request-response: ask, and return the identifier that the response will carry."""
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        request_id = self._requests.next_id
        if type_id == _DATA and not extensions and not compress:
            self._output.append(exchange(True, request_id, body, self.options))
        else:
            self._say(self._carry(body, (RequestResponse(True, request_id), *extensions), compress, type_id))
        timeout = self.options.request_timeout if timeout is None else timeout
        self._requests.ask(request_id, None if timeout is None else now + timeout)
        return request_id

    def respond(
        self,
        request_id: int,
        body: bytes,
        *,
        compress: bool = False,
        type_id: int = MessageType.DATA,
        extensions: tuple[OtherExtension, ...] = (),
    ) -> None:
        """Request-response: answer a request of the peer."""
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        if type_id == _DATA and not extensions and not compress:
            response = exchange(False, request_id, body, self.options)
        else:
            carried = self._carry(body, (RequestResponse(False, request_id), *extensions), compress, type_id)
            response = encode(carried, self.options.limits)
        self._output += self._peer_requests.answer(request_id, response)

    def abandon(self, request_id: int) -> None:
        """EMP-16: give a request up; one late answer to it will be swallowed."""
        self._requests.abandon(request_id)

    def ping(self, now: float) -> None:
        """Ping-pong: ask for a pong; never before the last one came (EMP-31)."""
        self._require_open()
        if self._pong.waits:
            raise LocalProtocolError(Fault.PING_OVERLAPPING)
        self._say(Ping())
        self._next_ping = None
        self._pong.ask(now)
        self.asked += 1

    def bye(self, detail: str = "") -> None:
        """Termination: say bye; the session is over here."""
        if self.ended is None:
            self._say(Bye())
            self._end(Ended(Ending.BYE, self.speaker, True, detail=detail))

    def fail(
        self,
        fault: Fault,
        detail: str = "",
        *,
        extension_id: int | None = None,
        error_code: int | None = None,
        extension_error_code: int | None = None,
    ) -> None:
        """Termination: answer this fault with its error message, if any (EMP-22), and end the session."""
        if self.ended is not None:
            return
        error = None
        if (self.state, self.speaker, Error) in TRANSITIONS:
            error = answer(fault, detail, self.options.limits, extension_id, error_code, extension_error_code)
        if error is not None:
            self._say(error)
        self._end(Ended(Ending.ERROR if error else Ending.CLOSED, self.speaker, True, fault, detail, error))

    # Input: bytes of the peer, and time.

    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the peer. Whatever they are, this does not raise."""
        if self._hello_due is None and (seen := self._buffer.glance(data)) is not None:
            if self.ended is None:
                if self.state is _OPEN:
                    self._take_data(data, *seen)  # `_take` without checks that cannot fail here
                else:
                    self._take(data, *seen, now)
            return
        enough = self._inflated + self.inflated_a_turn
        batches = iter(self._buffer.feed(data))
        for taken, rows, parts in batches:
            if self._hello_due is not None:
                self._greet()
            left = iter(rows)
            for row in left:
                if self.ended is not None:
                    return
                self._take_row(taken, row, parts, now)
                if self._inflated > enough:
                    self._pause_above(enough)
                    self._defer(taken, left, parts, batches)
        if self._buffer.size:  # EMP-32
            self._pong.moved(len(data), now)
        if self.state is not _OPEN and self.ended is None and (other := hint(self._buffer.rest, self.options.limits)):
            self.fail(Fault.HELLO_SIZE, other)  # it would wait for bytes that never come

    def receive_eof(self, now: float) -> None:  # noqa: ARG002 - every input of a session carries the time
        """EMP-43: the peer closed the connection."""
        if self.ended is None:
            fault = Fault.CLOSED_INSIDE_MESSAGE if self._buffer.rest else Fault.CLOSED_WITHOUT_PARTING
            self._end(Ended(Ending.CLOSED, self.peer, False, fault))

    def tick(self, now: float) -> None:
        """Time passed: timers that are due fire."""
        if self._handshake_deadline is not None and now >= self._handshake_deadline:  # EMP-29
            self.fail(Fault.HANDSHAKE_TIMEOUT)
        if self._pong.is_over(now):  # EMP-32
            self.fail(Fault.PONG_TIMEOUT)
        if self.ended is None:
            self._events += [RequestExpired(request_id) for request_id in self._requests.expire(now)]
        if self._hello_due is not None and now >= self._hello_due:
            self._greet()
        if self._next_ping is not None and now >= self._next_ping:
            self.ping(now)

    def pause(self) -> None:
        """The owner stops reading for a while: a pong that waits unread is not a silent peer."""
        self._pong.pause()

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._pong.resume(now)

    def drained(self, count: int, now: float) -> None:
        """EMP-32: bytes that were sent before the last ping have left."""
        self._pong.drained(count, now)

    # Internals.

    def _greet(self) -> None:
        """EMP-1: send the hello that waited for the peer's dialect.

        If that is not known yet, follow the text of the specification.
        """
        self._hello_due = None
        if isinstance(self._buffer, Following):
            self.options = msgspec.structs.replace(self.options, sizes_exclude_themselves=self._buffer.settled().sizes_exclude_themselves)
        self._say(Hello(VERSION))

    def _advance(self, speaker: Speaker, message: type[Message]) -> bool:
        """The only place where the state changes."""
        after = TRANSITIONS.get((self.state, speaker, message))
        if after is None:
            return False
        self.state = after
        return True

    def _say(self, message: Message) -> None:
        data = encode(message, self.options.limits)
        if not self._advance(self.speaker, type(message)):
            raise LocalProtocolError(refusal(self.state, self.speaker, type(message)))
        self._output.append(data)

    def _require_open(self) -> None:
        if self.ended is not None:
            raise SessionClosed(str(self.ended.reason()))
        if self.state is not _OPEN:
            raise LocalProtocolError(Fault.SPOKE_TOO_SOON)

    def _end(self, ended: Ended) -> None:
        self.ended = ended
        self._handshake_deadline = self._hello_due = self._next_ping = None
        self._pong.stop()
        self._requests.clear()
        self._peer_requests.clear()
        self._events.append(ended)

    def _carry(self, body: bytes, extensions: tuple[Extension, ...], compress: bool, type_id: int) -> Data | Application:
        return load(body, extensions, compress=compress, type_id=type_id, options=self.options)

    def _take_row(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        if row[KIND] == _DATA and self.state is _OPEN and not row[FAULT] and not row[ODDITIES]:
            self._take_data(data, row, parts)  # `_take` without checks that cannot fail here
        else:
            self._take(data, row, parts, now)

    def _take(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        """Take one message of the peer. Checks, in order: readable, allowed in this state, allowed at all."""
        kind, fault = row[KIND], row[FAULT]
        message_type = _MESSAGES.get(kind, Application)
        if message_type is Error:
            self._take_error(data, row, parts)
        elif fault and fault in UNREADABLE:
            other = hint(data[row[START] :], self.options.limits) if self.state is not State.OPEN else ""
            self.fail(Fault(fault), other or f"byte {row[FAULT_AT] - row[START]} of a message")
        elif not self._advance(self.peer, message_type):
            self.fail(refusal(self.state, self.peer, message_type), name_of(message_type))
        elif fault:
            self.fail(Fault(fault), extension_id=data[row[FAULT_AT] + 4] if fault == Fault.EXTENSION_UNKNOWN else None)
        elif kind < MessageType.DATA and row[PARTS] and (unknown := unregistered(blocks(data, row, parts), self.options)) is not None:
            self.fail(Fault.EXTENSION_UNKNOWN, f"extension {unknown}", extension_id=unknown)
        else:
            if row[ODDITIES] & ODD_BITS:
                self._events.append(Noticed(Fault.UNUSED_BITS_SET))
            if row[ODDITIES] & ODD_BODY:
                self._events.append(Noticed(Fault.BODY_IGNORED))
            if kind >= MessageType.DATA:
                self._take_data(data, row, parts)
            elif message_type is Hello:
                self._take_hello(data[row[BODY]], now)
            elif message_type is Ping:
                self._say(Pong())  # EMP-31: every one is answered
            elif message_type is Pong:
                self._take_pong(now)
            else:  # EMP-33: a bye is not answered
                self._end(Ended(Ending.BYE, self.peer, False))

    def _take_run(self, data: bytes, start: int, payloads: list[tuple[bytes, ...]]) -> bool:  # noqa: ARG002 - as in every protocol
        """Take data without extensions, one message after the other."""
        if self.ended is not None or self.state is not _OPEN:
            return False
        self._events += starmap(DataReceived, payloads)
        return True

    def _take_bulk(self, data: bytes, rows: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> bool:
        """Take data without extensions, without a look at each message."""
        if self.ended is not None or self.state is not _OPEN or len(parts):
            return self.ended is not None
        if not (rows[:, KIND] == _DATA).all() or rows[:, (FAULT, ODDITIES)].any():
            return False
        starts, ends = rows[:, BODY].tolist(), rows[:, (BODY, BODY_LENGTH)].sum(axis=1).tolist()
        self._events += [DataReceived(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        return True

    def _take_hello(self, version: int, now: float) -> None:
        if version != VERSION:  # EMP-27
            self.fail(
                Fault.VERSION_UNSUPPORTED,
                f"version {version}",
                error_code=ErrorCode.PROTOCOL if self.options.answers_other_versions else None,
            )
            return
        self._handshake_deadline = None
        self._plan_ping(now)
        self._events.append(Opened(version))
        self._buffer.bulk = self._take_bulk
        self._buffer.take_run = self._take_run

    def _take_pong(self, now: float) -> None:
        if not self._pong.waits:  # EMP-30
            self._events.append(Noticed(Fault.PONG_UNSOLICITED))
            return
        self._pong.stop()
        self._plan_ping(now)

    def _plan_ping(self, now: float) -> None:
        self._next_ping = None if self.options.ping_interval is None else now + self.options.ping_interval

    def _take_error(self, data: bytes, row: list[int], parts: list[int]) -> None:
        """EMP-22: an error is never answered, however it looks; what can be read of it is kept."""
        self._advance(self.peer, Error)
        error, fault = salvage(data, row, parts)
        self._end(Ended(Ending.ERROR, self.peer, False, fault, error=error))

    def _take_data(self, data: bytes, row: list[int], parts: list[int]) -> None:
        type_id, at, request = row[KIND], row[BODY], row[REQUEST]
        if type_id == _DATA and row[PARTS] == (request >= 0):  # nothing but perhaps a request or response: by far the commonest
            body = data[at : at + row[BODY_LENGTH]]
            if request < 0:
                self._events.append(DataReceived(body))
            elif request:
                self._take_request(RequestReceived(row[REQUEST_ID] & LAST_ID, body))
            else:
                self._take_response(ResponseReceived(row[REQUEST_ID] & LAST_ID, body))
            return
        if type_id >= APPLICATION_FIRST and type_id not in self.options.application_types:  # EMP-24
            self.fail(Fault.TYPE_UNREGISTERED, f"type {type_id}")
            return
        body = data[at : at + row[BODY_LENGTH]]
        others: tuple[OtherExtension, ...] = ()
        if row[PARTS] > (row[REQUEST] >= 0):
            extensions = blocks(data, row, parts)
            others = tuple(one for one in extensions if isinstance(one, OtherExtension))
            try:
                body, inflated = unload(extensions, body, self.options)
            except BodyRejected as rejected:
                self.fail(rejected.fault, rejected.detail, extension_id=rejected.extension_id, extension_error_code=rejected.code)
                return
            self._inflated += inflated
        request_id = row[REQUEST_ID] & LAST_ID
        if row[REQUEST] < 0:
            self._events.append(DataReceived(body, type_id, others))
        elif row[REQUEST]:
            self._take_request(RequestReceived(request_id, body, type_id, others))
        else:
            self._take_response(ResponseReceived(request_id, body, type_id, others))

    def _take_request(self, request: RequestReceived) -> None:
        if not self.options.answers_requests:  # EMP-19
            self.fail(Fault.REQUEST_UNHANDLED, f"request {request.request_id}")
        elif self._peer_requests.take(request.request_id):
            self._events.append(request)
        else:  # EMP-18
            self.fail(Fault.REQUEST_ID_IN_FLIGHT, f"request {request.request_id}")

    def _take_response(self, response: ResponseReceived) -> None:
        match = self._requests.match(response.request_id)
        if match is _PENDING:
            self._events.append(response)
        elif match is Match.LATE:
            self._events.append(Noticed(Fault.RESPONSE_LATE))
        else:  # EMP-16
            self.fail(Fault.RESPONSE_UNMATCHED, f"request {response.request_id}")


_MESSAGES: Final[dict[int, type[Message]]] = {number: one for one, number in TYPES.items()}
# Members of enums that every message reads.
_DATA: Final = int(MessageType.DATA)
_OPEN: Final = State.OPEN
_PENDING: Final = Match.PENDING
