"""Per protocol, what `violations` and `sessions` need: the state machine, the faults, and the guards over history.

State machine, faults and kind of session come from the protocol's descriptor. A protocol without an entry here, as one of another
package, is judged by those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from wirelake import protocols
from wirelake.lake.gold.rules import emp as emp_rules
from wirelake.lake.gold.rules import engine
from wirelake.lake.gold.rules import event_mesh as event_mesh_rules
from wirelake.lake.gold.rules import relink as relink_rules
from wirelake.lake.gold.rules import wolpertinger as wolpertinger_rules
from wirelake.lake.gold.rules import yamp as yamp_rules
from wirelake.lake.tables.rules import Judged
from wirelake.lake.tables.security import Threat
from wirelake.protocols.protocol import SessionKind, StateMachine

__all__ = ["LINK", "NODE", "ROOMS", "SESSION_IS", "SILENCE", "WITHOUT_HANDSHAKE", "Room", "threats"]


class Room(NamedTuple):
    """One protocol as the lake judges it."""

    conversation: StateMachine
    """Which message each side may send in which state."""
    faults: Iterable[Judged]
    """Every rule, with `clause`, `text`, `severity` and `origin`."""
    by_fields: Callable[[DataFrame], DataFrame]
    """The room's table -> findings that one message's fields are enough for."""
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    """messages, paired, facts -> findings that depend on what was not said before."""
    greetings: Callable[[DataFrame], DataFrame]
    """The room's table -> per session `client_version`, `server_version`, `accepted`, `error_code`."""
    session: SessionKind = SessionKind.CONNECTION
    """What a session is."""
    silence: float | None = None
    """Seconds without a word after which a session counts as silent; None where only a connection's end tells."""
    by_history: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]] | None = None
    """The room's table, paired, facts -> findings as `guards` has them, that take the room's own columns."""
    threats: Mapping[Any, Threat] = MappingProxyType({})
    """Fault -> what breaking it means to whoever guards a network; those that mean nothing are left out."""
    unseen: Mapping[Any, str] = MappingProxyType({})
    """Fault -> why the lake does not tell of it; all others are told, in `violations` or, where keys say so, in `security`."""
    by_keys: Collection[Any] = ()
    """Faults that `security` tells of, once it has keys, and `violations` does not."""
    has_handshake: bool = True
    """Whether sessions begin with a greeting and end with an error; else an error is a message like others, and life goes on."""


NODE: Final = SessionKind.NODE
LINK: Final = SessionKind.LINK


class _Rules(NamedTuple):
    """What the SQL rules of a protocol add to its descriptor; see `Room`."""

    by_fields: Callable[[DataFrame], DataFrame]
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    greetings: Callable[[DataFrame], DataFrame]
    silence: float | None = None
    by_history: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]] | None = None
    threats: Mapping[Any, Threat] = MappingProxyType({})
    unseen: Mapping[Any, str] = MappingProxyType({})
    by_keys: Collection[Any] = ()


def _no_guards(_messages: DataFrame, _paired: DataFrame, _facts: DataFrame) -> list[DataFrame]:
    return []


def _room(name: str) -> Room:
    protocol = protocols.get(name)
    rules = _RULES.get(name) or _Rules(engine.no_findings, _no_guards, engine.no_greetings)
    return Room(
        protocol.state_machine, protocol.faults, session=protocol.session_kind, has_handshake=protocol.has_handshake, **rules._asdict()
    )


_RULES: Final = {
    "emp": _Rules(
        emp_rules.by_fields,
        emp_rules.guards,
        emp_rules.greetings,
        threats=emp_rules.THREATS,
        unseen=emp_rules.UNSEEN,
    ),
    "event_mesh": _Rules(
        event_mesh_rules.by_fields,
        event_mesh_rules.guards,
        event_mesh_rules.greetings,
        event_mesh_rules.SILENCE_SECONDS,
        threats=event_mesh_rules.THREATS,
        unseen=event_mesh_rules.UNSEEN,
        by_keys=event_mesh_rules.BY_KEYS,
    ),
    "relink": _Rules(
        relink_rules.by_fields,
        relink_rules.guards,
        relink_rules.greetings,
        by_history=relink_rules.by_history,
        threats=relink_rules.THREATS,
        unseen=relink_rules.UNSEEN,
    ),
    "yamp": _Rules(
        yamp_rules.by_fields,
        yamp_rules.guards,
        yamp_rules.greetings,
        by_history=yamp_rules.by_history,
        threats=yamp_rules.THREATS,
        unseen=yamp_rules.UNSEEN,
    ),
    "wolpertinger": _Rules(
        wolpertinger_rules.by_fields,
        wolpertinger_rules.guards,
        wolpertinger_rules.greetings,
        by_history=wolpertinger_rules.by_history,
        threats=wolpertinger_rules.THREATS,
        unseen=wolpertinger_rules.UNSEEN,
    ),
}
"""Protocol -> its SQL rules."""

ROOMS: Final = {name: _room(name) for name in protocols.names()}
"""Protocol, which is also the name of its table -> how the lake judges it."""

SESSION_IS: Final = {name: room.session for name, room in ROOMS.items()}
"""Protocol -> what its sessions are."""

WITHOUT_HANDSHAKE: Final = tuple(name for name, room in ROOMS.items() if not room.has_handshake)
"""Protocols whose sessions neither greet nor part."""

SILENCE: Final = {name: room.silence for name, room in ROOMS.items() if room.silence is not None}
"""Protocol -> seconds without a word after which a session of it is silent."""


def threats() -> dict[str, str]:
    """`protocol/rule` -> what breaking it may mean, for every rule that may mean something."""
    return {f"{protocol}/{fault.name}": threat.value for protocol, room in ROOMS.items() for fault, threat in room.threats.items()}
