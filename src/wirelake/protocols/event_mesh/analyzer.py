"""Event Mesh as an observer sees it: how nodes greet, how long they are silent, and which packets should not have been sent.

§1 promises neither delivery nor order: every message is allowed at any time, nothing is answered, and no rule depends on earlier messages.
Keys, clocks and repetition need more than one node's packets (EMM-18 to EMM-25): they are not judged here.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wirelake.errors import FaultLike
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, SeenMessage, SessionAnalyzer
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import VERSION
from wirelake.protocols.event_mesh.options import DEFAULT_OPTIONS

__all__ = ["Analyzer", "Seen"]

_SILENCE_MICROS: Final = float("inf") if DEFAULT_OPTIONS.silence_after is None else DEFAULT_OPTIONS.silence_after * 1_000_000
"""§3.2: a longer pause is a silence."""


class Seen(SeenMessage, gc=False):
    """An Event Mesh packet."""

    type_name: str
    oddities: int


class Analyzer(SessionAnalyzer):
    """Watches one node; or the packets of one connection that name no node."""

    MESSAGE: ClassVar[type[SeenMessage]] = Seen
    IS_NODE: ClassVar[bool] = True
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = (
        Fault.FIELDS_OUT_OF_ORDER,
        Fault.VALUE_UNTERMINATED,
        Fault.KEY_WITHOUT_SIGNATURE,
        Fault.JSON_INVALID,
        Fault.DECRYPTION_FAILED,
        Fault.SECURITY_FIELD_SEALED,
        Fault.INFLATED_OVER_LIMIT,
    )
    """EMM-5, EMM-10, EMM-33, EMM-11: what is accepted on receipt but should not have been sent; EMM-13, EMM-14: what is hidden wrongly."""
    SILENCE_SECONDS: ClassVar[float | None] = DEFAULT_OPTIONS.silence_after
    """§3.2: a node that sent nothing for so long is silent, as for a live node with default options."""

    silences: int = 0
    has_hello: bool = False
    """§3.1: whether the node sent a hello that breaks no rule."""

    def event(self, event: ConnectionEvent) -> None:
        """See `SessionAnalyzer`. A node neither begins nor ends with a connection: only the transport counts."""
        self.transport = self.transport or event.transport

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        ts, fault = message.ts, message.fault
        if self.first_said == NO_TIME:
            self.first_said = ts
        elif ts - self.last_said > _SILENCE_MICROS:
            self.silences += 1
        self.last_said = self.last_word = ts
        if message.type_name == "hello":
            self._greeted(message)
            if fault is None:
                self.has_hello = True
        if fault is not None:
            self._found(fault, message, needs_whole=False)
        if message.oddities:
            self._odd(message.oddities, message)

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        # EMM-2: a packet of another version cannot be read, so that there is no hello of one.
        return VERSION if self.has_hello else None, None, self.has_hello, None

    def _silences(self) -> int | None:
        return None if self.SILENCE_SECONDS is None else self.silences
