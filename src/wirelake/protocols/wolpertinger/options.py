"""Options of a wolpertinger session, and the declaration of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from wirelake.protocols.rates import Buckets
from wirelake.protocols.reply_timer import MIN_RATE
from wirelake.protocols.wolpertinger.layer2.xml_tree import DocumentLimits
from wirelake.protocols.wolpertinger.scanner import Limits

__all__ = ["DEFAULT_OPTIONS", "HIGHEST_TRUST", "Limits", "Method", "Options"]

HIGHEST_TRUST: Final = 4
"""Trust levels are 0 to 4."""
DEFAULT_DOCUMENT_LIMITS: Final = DocumentLimits()


class Method(msgspec.Struct, frozen=True):
    """WOLP-20: what is declared of a method of a component."""

    parameters: tuple[str, ...] | None = None
    """The data types of its parameters; None: they are checked elsewhere."""
    returns: bool = True
    """Whether it answers with a value; a void method does not (WOLP-19)."""
    trust: int = HIGHEST_TRUST
    """The trust a caller needs."""


class Options(Limits, frozen=True, kw_only=True):
    """Options of a session, its limits included. Times are seconds."""

    documents: DocumentLimits = DEFAULT_DOCUMENT_LIMITS
    """WOLP-17: what a document may cost."""
    compress: bool = False
    """Compression: whether payloads are sent as gzip."""
    dotnet: bool = False
    """WOLP-18: whether infinite doubles are sent as `Infinity` instead of `INF`.

    C# peers read only `Infinity`.
    """
    fragment_size: int = 30_500
    """WOLP-9: characters of base64 in a text; more are split."""
    confirm_timeout: float = 20.0
    """WOLP-10: how long to wait for a result, for each fragment."""
    retries: int = 2
    """WOLP-10: how often a message is sent again before its receiver counts as unavailable."""
    min_rate: float = MIN_RATE
    """WOLP-10: bytes a second below which a connection counts as silent.

    While a text arrives or output drains faster, no timer expires.
    """
    remember_time: float = 300.0
    """WOLP-10: how long a delivered message is recognised as a duplicate."""
    max_remembered: int = 65_536
    """WOLP-10: delivered messages recognised as duplicates; the oldest is forgotten first."""
    fragment_timeout: float = 20.0
    """WOLP-9: how long to wait for the pieces of a message, for each of them."""
    max_incomplete: int = 256
    """WOLP-9: messages that wait for pieces."""
    max_unconfirmed: int = 4096
    """WOLP-10: messages of ours without a result.

    Above that, messages of the peer are not accepted, and not confirmed.
    """
    call_timeout: float = 30.0
    """WOLP-21: how long a confirmed call waits for its response, or for the next sign of life."""
    heartbeat_interval: float = 25.0
    """WOLP-21: how often a heartbeat is sent while a call of the peer is at work."""
    max_calls: int = 1024
    """WOLP-29: calls in flight, of either side."""
    components: Mapping[str, Mapping[str, Method]] = {}
    """WOLP-20: the components of the application and their methods; a live peer sets it from its classes."""
    admit: bool = True
    """WOLP-23: the answer to EstablishConnection."""
    cluster_key: bytes | None = None
    """WOLP-25: the key that members of our cluster share; without it no peer can prove membership."""
    password_of: Callable[[str], str | None] | None = None
    """WOLP-25: the password of a user, whose name comes in lower case; None: there is no such user."""
    token_life: float = 60.0
    """WOLP-25: how long a token can be used, once."""
    attempts: Buckets | None = None
    """WOLP-25: how often proofs are checked, over all connections of one peer.

    A server makes one of its own.
    """
    source: str = ""
    """The address of the peer in `attempts`; a live peer sets it."""

    def __repr__(self) -> str:
        """Without keys: options may be logged."""
        return "Options(…)"

    def life(self, pieces: int) -> float:
        """WOLP-10: how long a message of so many pieces is remembered.

        One of many pieces is sent again so late that `remember_time` is not enough.
        """
        return max(self.remember_time, self.confirm_timeout * pieces * (self.retries + 1))

    @property
    def limits(self) -> Limits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
