"""Per protocol, all that `violations` and `sessions` need of its room: the conversation, the faults, and the guards over history.

A new protocol is one line in `ROOMS`. It refuses to know what the rules are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from wirelake.lake.gold.rules import emp as emp_rules
from wirelake.lake.gold.rules import event_mesh as event_mesh_rules
from wirelake.lake.gold.rules import relink as relink_rules
from wirelake.lake.gold.rules import wolpertinger as wolpertinger_rules
from wirelake.lake.gold.rules import yamp as yamp_rules
from wirelake.lake.tables.rules import FAULTS, Judged
from wirelake.lake.tables.security import Threat
from wirelake.protocols.emp import state_machine as emp_conversation
from wirelake.protocols.event_mesh import state_machine as event_mesh_conversation
from wirelake.protocols.relink import state_machine as relink_conversation
from wirelake.protocols.wolpertinger import state_machine as wolpertinger_conversation
from wirelake.protocols.yamp import state_machine as yamp_conversation

__all__ = ["LINK", "NODE", "ROOMS", "SESSION_IS", "SILENCE", "WITHOUT_HANDSHAKE", "Room", "threats"]


class Room(NamedTuple):
    """One protocol as the lake judges it."""

    conversation: ModuleType
    """`INITIAL`, `TRANSITIONS`, `refusal`, …: who may say what when."""
    faults: Iterable[Judged]
    """Every rule, with `clause`, `text`, `severity` and `origin`."""
    by_fields: Callable[[DataFrame], DataFrame]
    """The room's table -> findings that one message's fields are enough for."""
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    """messages, paired, facts -> findings that depend on what was not said before."""
    greetings: Callable[[DataFrame], DataFrame]
    """The room's table -> per session `client_version`, `server_version`, `accepted`, `error_code`."""
    session: str | None = None
    """What a session is, if it is not a connection: NODE or LINK."""
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


NODE: Final = "node"
"""A session is somebody who speaks, on whatever connections."""
LINK: Final = "link"
"""A session is a conversation of two that outlives its connections."""

ROOMS: Final = {
    "emp": Room(
        emp_conversation,
        FAULTS["emp"],
        emp_rules.by_fields,
        emp_rules.guards,
        emp_rules.greetings,
        threats=emp_rules.THREATS,
        unseen=emp_rules.UNSEEN,
    ),
    "event_mesh": Room(
        event_mesh_conversation,
        FAULTS["event_mesh"],
        event_mesh_rules.by_fields,
        event_mesh_rules.guards,
        event_mesh_rules.greetings,
        NODE,
        event_mesh_rules.SILENCE_SECONDS,
        threats=event_mesh_rules.THREATS,
        unseen=event_mesh_rules.UNSEEN,
        by_keys=event_mesh_rules.BY_KEYS,
    ),
    "relink": Room(
        relink_conversation,
        FAULTS["relink"],
        relink_rules.by_fields,
        relink_rules.guards,
        relink_rules.greetings,
        LINK,
        by_history=relink_rules.by_history,
        threats=relink_rules.THREATS,
        unseen=relink_rules.UNSEEN,
    ),
    "yamp": Room(
        yamp_conversation,
        FAULTS["yamp"],
        yamp_rules.by_fields,
        yamp_rules.guards,
        yamp_rules.greetings,
        by_history=yamp_rules.by_history,
        threats=yamp_rules.THREATS,
        unseen=yamp_rules.UNSEEN,
    ),
    "wolpertinger": Room(
        wolpertinger_conversation,
        FAULTS["wolpertinger"],
        wolpertinger_rules.by_fields,
        wolpertinger_rules.guards,
        wolpertinger_rules.greetings,
        by_history=wolpertinger_rules.by_history,
        threats=wolpertinger_rules.THREATS,
        unseen=wolpertinger_rules.UNSEEN,
        has_handshake=False,
    ),
}
"""Protocol, which is also the name of its table -> its room."""

SESSION_IS: Final = {name: room.session for name, room in ROOMS.items()}
"""Protocol -> what its sessions are; None: connections."""

WITHOUT_HANDSHAKE: Final = tuple(name for name, room in ROOMS.items() if not room.has_handshake)
"""Protocols whose sessions neither greet nor part."""

SILENCE: Final = {name: room.silence for name, room in ROOMS.items() if room.silence is not None}
"""Protocol -> seconds without a word after which a session of it is silent."""


def threats() -> dict[str, str]:
    """`protocol/rule` -> what breaking it may mean, for every rule that may mean something."""
    return {f"{protocol}/{fault.name}": threat.value for protocol, room in ROOMS.items() for fault, threat in room.threats.items()}
