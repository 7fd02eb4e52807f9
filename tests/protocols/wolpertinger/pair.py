"""Two sessions connected by lines, and messages for them. Time stands still unless a test moves it."""

from __future__ import annotations

import hashlib
from typing import Any

from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.options import Method, Options
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState
from wirelake.protocols.wolpertinger.wire import Keys, decode, encode, opened, sealed

KEYS = Keys(bytes(range(32)), bytes(range(16)))
TRUSTED = TrustState(4, 4, KEYS)
CALL_ID = "f5afec97-5839-4666-b8d3-8c108b241720"
COMPONENTS = {
    "Sample": {
        "Echo": Method(("string",), trust=0),
        "Void": Method((), returns=False, trust=0),
        "Secret": Method((), trust=3),
        "Undeclared": Method(()),
    }
}


def dice(seed: str):
    """Random bytes that are the same in every run, and never twice the same."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{seed} {drawn}".encode()).digest(size)

    return draw


def session(speaker: Speaker = Speaker.SERVER, trust_state: TrustState = STRANGER, **options: Any) -> Session:
    return Session(speaker, Options(**{"components": COMPONENTS, **options}), draw=dice(speaker.name), trust_state=trust_state)


def text_of(payload: bytes, message_id: int = 1, keys: Keys | None = None, *, compress: bool = False) -> bytes:
    what = sealed(payload, keys, compress=compress)
    return encode(Envelope(message_id, what.text, what.gzip, what.encryption))


def say(
    one: Session, message: Call | Response | Error | bytes, message_id: int = 1, keys: Keys | None = None, now: float = 0.0
) -> list[bytes]:
    """What a session sends back when it hears this message, or this document."""
    document = message if isinstance(message, bytes) else documents.encode(message)
    one.receive_text(text_of(document, message_id, keys), now)
    return one.messages()


def read(texts: list[bytes], keys: Keys | None = None) -> list[Call | Response | Error]:
    """The documents among texts; results are left out."""
    envelopes = [one for one in map(decode, texts) if isinstance(one, Envelope)]
    found = [documents.decode(opened(one.payload, one.gzip, one.encryption, keys if one.encryption else None)) for one in envelopes]
    assert all(isinstance(one, Call | Response | Error) for one in found)
    return found


def codes(texts: list[bytes], keys: Keys | None = None) -> list[int]:
    """The codes of RemoteErrors, and nothing else was said."""
    return [one.code for one in read(texts, keys)]


class Pair:
    """A client and a server, and everything that happened to them."""

    def __init__(
        self, client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, trust_state: TrustState = STRANGER
    ) -> None:
        self.client = session(Speaker.CLIENT, trust_state, **(client or {}))
        self.server = session(Speaker.SERVER, trust_state, **(server or {}))
        self.heard: dict[Speaker, list[Any]] = {Speaker.CLIENT: [], Speaker.SERVER: []}
        self.said: list[tuple[Speaker, bytes]] = []
        self.now = 0.0

    def talk(self) -> Pair:
        """Until nobody has anything to say."""
        while True:
            silent = True
            for one, other in ((self.client, self.server), (self.server, self.client)):
                if data := one.output():
                    silent = False
                    self.said += [(one.speaker, line) for line in data.splitlines()]
                    other.receive(data, self.now)
            for one in (self.client, self.server):
                self.heard[one.speaker] += one.events()
            if silent:
                return self

    def wait(self, seconds: float) -> Pair:
        """Time passes, timer by timer."""
        until = self.now + seconds
        while True:
            due = [one.deadline for one in (self.client, self.server) if one.deadline is not None and one.deadline <= until]
            self.now = min(due, default=until)
            for one in (self.client, self.server):
                if one.deadline is not None and one.deadline <= self.now:
                    one.tick(self.now)
            self.talk()
            if not due:
                return self

    def events(self, speaker: Speaker, *kinds: type) -> list[Any]:
        """What one side was told, of these kinds; it is forgotten."""
        events, self.heard[speaker] = self.heard[speaker], []
        return [event for event in events if isinstance(event, kinds or object)]
