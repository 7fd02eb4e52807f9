"""One side of a YAMP session: bytes and time in; bytes, events and a deadline out.

After every call: drain `output()`, drain `events()`, read `deadline` again. `receive` never raises for an error of the peer. Sending may
raise LocalProtocolError or SessionClosed, for an error of the caller. `now` is any steadily growing number of seconds; random bytes come
from `draw`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from wirelake.errors import LocalProtocolError
from wirelake.protocols.yamp.base_session import BaseSession, Draw
from wirelake.protocols.yamp.events import (
    CancelReceived,
    Ended,
    EventReceived,
    ProgressReceived,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
    ResponseUnreadable,
)
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Cancel, Event, MessageType, Request, Response, ResponseType
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.yamp.requests import IncomingRequests, OutgoingRequests, Pending, Taken
from wirelake.protocols.yamp.serializers.bodies import BodyRejected, attempt, pack, pack_text
from wirelake.protocols.yamp.serializers.bounds import compile_walks
from wirelake.protocols.yamp.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.yamp.wire import user

__all__ = ["INITIAL", "TRANSITIONS", "Options", "Session", "Speaker", "State", "refusal"]

# Members of enums that every message reads.
_OPEN: Final = State.OPEN
_EVENT: Final = MessageType.EVENT
_REQUEST: Final = MessageType.REQUEST
_RESPONSE: Final = MessageType.RESPONSE
_DONE: Final = ResponseType.DONE
_TRUTHS: Final = {False: b"\x00", True: b"\x01"}
_PROGRESS: Final = int(ResponseType.PROGRESS)
_RESPONSES: Final = {kind: bytes((kind,)) for kind in ResponseType}


class Session(BaseSession):
    """One side of a YAMP session."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, *, draw: Draw) -> None:
        super().__init__(speaker, options, draw=draw)
        self._requests: OutgoingRequests = OutgoingRequests()
        self._expiries = self._requests.expiries
        self._peer_requests: IncomingRequests = IncomingRequests()
        self._takers |= {
            Event: self._take_event,
            Request: self._take_request,
            Cancel: self._take_cancel,
            Response: self._take_response,
        }

    # Output.

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next, whatever else happens."""
        asked, ping = self._expiries.first, self._next_ping
        if self.state is _OPEN and not self._pong.waits and self._next_handshake is None:  # by far the commonest
            return asked if ping is None or (asked is not None and asked < ping) else ping
        own = super().deadline
        return asked if own is None or (asked is not None and asked < own) else own

    def is_serving(self, request_uid: bytes) -> bool:
        """Whether a request of the peer still wants an outcome: a killed one does not."""
        return request_uid in self._peer_requests

    # Commands of the owner.

    def send(self, uri: str, body: Any = None) -> None:
        """0x05 event: send one; it has no answer."""
        self.send_packed(uri, self.pack(body))

    def pack(self, body: Any) -> bytes:
        """A body as this session's serializer writes it; raises LocalProtocolError if it refuses."""
        return pack(self._serializer, body)

    def send_packed(self, uri: str, body: bytes) -> None:
        """0x05 event, with a body that was packed before: for one event to many."""
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        self._put(Event, user(_EVENT, self._uids.next(), _checked(uri), b"", body, self.options))

    def request(self, uri: str, body: Any, now: float, *, timeout: float | None = None, progressive: bool = False) -> bytes:
        """0x06 request: ask, and return the uid that the answers will carry.

        Timeout: None is the connection's, infinity is none.
        """
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        uid = self._uids.next()
        body = pack(self._serializer, body)
        self._put(Request, user(_REQUEST, uid, _checked(uri), _TRUTHS[progressive], body, self.options))
        patience = self.options.request_timeout if timeout is None else timeout
        self._requests.ask(uid, Pending(uri, progressive, None if patience == math.inf else patience), now)
        return uid

    def cancel(self, request_uid: bytes, *, kill: bool = False) -> bool:
        """0x07 cancel: take a request back; killed, it gets no answer any more (YAMP-34).

        False if it is not pending (YAMP-32).
        """
        pending = self._requests.get(request_uid)
        if pending is None or self.ended is not None:
            return False
        self._say(Cancel(self._uids.next(), pending.uri, request_uid, kill))  # YAMP-27
        if kill:
            self._requests.drop(request_uid)
        return True

    def forget(self, request_uid: bytes) -> None:
        """YAMP-41: give a request up without a cancel; late responses are ignored (YAMP-37)."""
        self._requests.drop(request_uid)

    def respond(self, request_uid: bytes, body: Any = None) -> None:
        """0x08 response, done: the request succeeded."""
        self._answer(request_uid, _DONE, pack(self._serializer, body))

    def respond_error(self, request_uid: bytes, body: Any) -> None:
        """0x08 response, error: the request failed; the body says why (YAMP-40)."""
        self._answer(request_uid, ResponseType.ERROR, pack(self._serializer, body))

    def respond_failure(self, request_uid: bytes, text: str) -> None:
        """0x08 response, error, with a text that any serializer can carry in some way."""
        self._answer(request_uid, ResponseType.ERROR, pack_text(self._serializer, text))

    def respond_cancelled(self, request_uid: bytes) -> None:
        """0x08 response, cancelled: the peer took the request back, and nothing came of it.

        Without a body (YAMP-31).
        """
        self._answer(request_uid, ResponseType.CANCELLED, b"")

    def report(self, request_uid: bytes, body: Any) -> bool:
        """0x08 response, progress: a step on the way; False if the request did not ask for any (YAMP-29)."""
        self._require_open()
        taken = self._peer_requests.get(request_uid)
        if taken.progressive:
            self._say_response(taken.uri, request_uid, ResponseType.PROGRESS, pack(self._serializer, body))
        return taken.progressive

    # Input: bytes of the peer, and time.

    def tick(self, now: float) -> None:
        """Time passed: timers that are due fire."""
        super().tick(now)
        for uid, pending in self._requests.expire(now):
            self._events.append(RequestExpired(uid))
            if self.options.kill_on_timeout:  # YAMP-41
                self._say(Cancel(self._uids.next(), pending.uri, uid, True))

    def compile(self) -> None:
        """Compile the scanner, and the walks of bodies."""
        super().compile()
        compile_walks()

    # Internals.

    def _end(self, ended: Ended) -> None:
        self._requests.clear()
        self._peer_requests.clear()
        super()._end(ended)

    def _answer(self, request_uid: bytes, response_type: ResponseType, body: bytes) -> None:
        if self.state is not _OPEN or self.ended is not None:
            self._require_open()
        uri = self._peer_requests.get(request_uid).uri  # YAMP-27
        self._say_response(uri, request_uid, response_type, body)
        self._peer_requests.drop(request_uid)

    def _say_response(self, uri: str, request_uid: bytes, response_type: ResponseType, body: bytes) -> None:
        rest = request_uid + _RESPONSES[response_type]
        self._put(Response, user(_RESPONSE, self._uids.next(), uri, rest, body, self.options))

    def _take_event(self, event: Event, _: float) -> None:
        if len(event.body) > self._inline:
            self._parse_apart(event.body, partial(self._take_event_body, event))
        else:
            self._take_event_body(event, attempt(self._serializer, event.body))

    def _take_event_body(self, event: Event, body: Any) -> None:
        if isinstance(body, BodyRejected):  # YAMP-44
            self._notice(Fault.BODY_UNDECODABLE, f"event {event.uri!r}: {body}")
        else:
            self._events.append(EventReceived(event.uri, body, event.uid, len(event.body)))

    def _take_request(self, request: Request, _: float) -> None:
        if request.uid in self._peer_requests:
            if self.options.datagrams:  # YAMP-15
                self._notice(Fault.REQUEST_REPEATED)
            else:  # YAMP-25
                self.fail(Fault.REQUEST_UID_IN_FLIGHT, request.uid.hex())
            return
        self._peer_requests.take(request.uid, Taken(request.uri, request.progressive))
        if len(request.body) > self._inline:
            self._parse_apart(request.body, partial(self._take_request_body, request))
        else:
            self._take_request_body(request, attempt(self._serializer, request.body))

    def _take_request_body(self, request: Request, body: Any) -> None:
        if isinstance(body, BodyRejected):  # YAMP-44
            self._notice(Fault.BODY_UNDECODABLE, f"request {request.uri!r}: {body}")
            self.respond_failure(request.uid, f"the body cannot be read: {body}")
        else:
            self._events.append(RequestReceived(request.uid, request.uri, body, request.progressive, len(request.body)))

    def _take_cancel(self, cancel: Cancel, _: float) -> None:
        if cancel.request_uid not in self._peer_requests:  # YAMP-32, YAMP-35
            self._notice(Fault.CANCEL_UNMATCHED)
            return
        if cancel.kill:  # YAMP-34
            self._peer_requests.drop(cancel.request_uid)
        self._events.append(CancelReceived(cancel.request_uid, cancel.kill))

    def _take_response(self, response: Response, now: float) -> None:
        uid, pending = response.request_uid, self._requests.get(response.request_uid)
        if pending is None:  # YAMP-37
            self._notice(Fault.RESPONSE_UNMATCHED)
            return
        steps = response.response_type == _PROGRESS
        if steps and not pending.progressive:  # YAMP-29
            self._notice(Fault.PROGRESS_UNASKED)
            return
        if steps:
            self._requests.restart(uid, now)
        else:  # YAMP-30
            self._requests.drop(uid)
        if len(response.body) > self._inline:
            self._parse_apart(response.body, partial(self._take_response_body, response))
        else:
            self._take_response_body(response, attempt(self._serializer, response.body))

    def _take_response_body(self, response: Response, body: Any) -> None:
        uid, steps = response.request_uid, response.response_type == _PROGRESS
        if not isinstance(body, BodyRejected):
            self._events.append(
                ProgressReceived(uid, body, len(response.body)) if steps else ResponseReceived(uid, response.response_type, body)
            )
        elif steps:  # YAMP-44
            self._notice(Fault.BODY_UNDECODABLE, f"progress of {response.uri!r}: {body}")
        else:
            self._events.append(ResponseUnreadable(uid, response.response_type, response.body, str(body)))


def _checked(uri: str) -> str:
    """YAMP-26: check that a message to send has a uri."""
    if not uri:
        raise LocalProtocolError(Fault.URI_SIZE, "0 bytes")
    return uri
