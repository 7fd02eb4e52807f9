"""Settings fixed when a lake is created.

Immutable, because table contents must not depend on which ingest wrote them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from wirelake.errors import LakeError, UsageError
from wirelake.lake.store import journal
from wirelake.lake.tables.exchanges import LATE_SECONDS

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["NOTHING_WANTED", "Settings", "Wanted", "hold", "of"]

_NAME: Final = "settings.json"


class Settings(msgspec.Struct, frozen=True):
    """The settings of a lake."""

    late_seconds: float = LATE_SECONDS
    """Seconds after which an answer counts as late."""
    trust: Literal["store", "in-band", "first-use"] = "store"
    """Event Mesh: which public keys in packets are trusted (EMM-17)."""
    freshness: bool = True
    """Event Mesh: whether proven packets must be of about the time at which they were seen (EMM-24)."""

    def keys(self, given: TrustStore | None) -> TrustStore | None:
        """The keys that packets are judged by, if these are given; None: they are not judged."""
        if self.trust == "store":
            return given
        from wirelake.protocols.event_mesh.security.trust import Trust, TrustStore  # noqa: PLC0415 - for lakes that trust such keys

        store = TrustStore() if given is None else given
        return store.trusting(Trust(self.trust), is_partial=given is None or given.only_opens)


class Wanted(NamedTuple):
    """Settings for a new lake; None: the default, or what the lake has."""

    late_seconds: float | None = None
    trust: str | None = None
    freshness: bool | None = None


NOTHING_WANTED: Final = Wanted()


def of(lake: Path) -> Settings:
    """Return the settings of a lake; the defaults if it has none yet."""
    content = journal.read(lake, _NAME)
    if content is None:
        return Settings()
    try:
        return msgspec.json.decode(content, type=Settings)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_NAME} cannot be read: {error}") from error


def hold(lake: Path, wanted: Wanted = NOTHING_WANTED) -> Settings:
    """Store the settings of a new lake.

    Raises LakeError if the lake has another value; None accepts what it has.
    """
    late_seconds, trust, freshness = wanted
    try:
        chosen = msgspec.convert({name: value for name, value in wanted._asdict().items() if value is not None}, Settings)
    except msgspec.ValidationError as reason:
        raise UsageError(f"settings of a lake: {reason}") from None
    if journal.read(lake, _NAME) is None:
        journal.write(lake, _NAME, msgspec.json.encode(chosen))
    stored, fixed = of(lake), "that was fixed when it was created"
    if late_seconds is not None and stored.late_seconds != chosen.late_seconds:
        raise LakeError(f"{lake} counts answers as late after {stored.late_seconds:g} s, not {late_seconds:g} s: {fixed}")
    if trust is not None and stored.trust != trust:
        raise LakeError(f"{lake} trusts public keys in packets as --trust {stored.trust} says, not as {trust}: {fixed}")
    if freshness is not None and stored.freshness != freshness:
        now, other = ("--freshness", "--no-freshness") if stored.freshness else ("--no-freshness", "--freshness")
        raise LakeError(f"{lake} was created with {now}, not {other}: {fixed}")
    return stored
