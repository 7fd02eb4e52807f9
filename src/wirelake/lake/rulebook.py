"""Per protocol, all that `violations` and `sessions` need of its room: the conversation, the faults, and the guards over history.

A new protocol is one line in `ROOMS`. It refuses to know what the rules are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from wirelake.errors import FaultLike
from wirelake.lake.rules import emp as emp_rules
from wirelake.protocols.emp import conversation as emp_conversation
from wirelake.protocols.emp.faults import Fault as EmpFault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ROOMS", "Room", "rules"]


class Judged(FaultLike, Protocol):
    """What the lake needs of a room's fault."""

    @property
    def severity(self) -> IntEnum: ...


class Room(NamedTuple):
    """One protocol as the lake judges it."""

    conversation: ModuleType
    """`INITIAL`, `TRANSITIONS`, `refusal`, …: who may say what when."""
    faults: Iterable[Judged]
    """Every rule, with `clause`, `text` and `severity`."""
    by_fields: Callable[[DataFrame], DataFrame]
    """The room's table -> findings that one message's fields are enough for."""
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    """messages, paired, facts -> findings that depend on what was not said before."""
    greetings: Callable[[DataFrame], DataFrame]
    """The room's table -> per session `client_version`, `server_version`, `accepted`, `error_code`."""


ROOMS: Final = {
    "emp": Room(emp_conversation, EmpFault, emp_rules.by_fields, emp_rules.guards, emp_rules.greetings),
}
"""Protocol, which is also the name of its table -> its room."""


def rules() -> dict[str, dict[str, str]]:
    """`protocol/rule` -> its clause, severity and text, for every rule of every room."""
    return {
        f"{protocol}/{fault.name}": {"clause": fault.clause, "severity": fault.severity.name.lower(), "text": fault.text}
        for protocol, room in ROOMS.items()
        for fault in room.faults
    }
