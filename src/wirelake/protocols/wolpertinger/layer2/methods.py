"""The components and methods of one side, and the check of a call against them (WOLP-20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, type_of
from wirelake.protocols.wolpertinger.options import Method
from wirelake.protocols.wolpertinger.state_machine import AUTHENTICATION, CORE
from wirelake.protocols.wolpertinger.trust.authentication import METHODS

__all__ = ["Directory", "MethodEntry"]

_BUILT_IN: Final[dict[str, dict[str, Method]]] = {
    CORE: {"Heartbeat": Method((), returns=False, trust=0), "SendResetNotice": Method((), returns=False, trust=0)},
    AUTHENTICATION: METHODS,
}


class MethodEntry(msgspec.Struct, frozen=True):
    """A method that may be called; component and method are spelled as they were declared."""

    component: str
    method: str
    returns: bool
    trust: int
    parameters: tuple[str, ...] | None
    built_in: bool


def _entry(component: str, name: str, method: Method, built_in: bool) -> MethodEntry:
    return MethodEntry(component, name, method.returns, method.trust, method.parameters, built_in)


class Directory:
    """The components of one side: the built-in ones, and the application's."""

    def __init__(self, components: Mapping[str, Mapping[str, Method]]) -> None:
        self._entries: dict[str, dict[str, MethodEntry]] = {}
        for built_in, all_components in ((False, components), (True, _BUILT_IN)):
            for component, methods in all_components.items():
                entries = self._entries.setdefault(component.lower(), {})
                entries.update({name: _entry(component, name, method, built_in) for name, method in methods.items()})

    def look_up(self, call: Call, trust: int) -> MethodEntry | Fault:
        """WOLP-20: check component, method, trust, parameters, in this order.

        Return the method, or the first fault.
        """
        methods = self._entries.get(call.component.lower())
        if methods is None:
            return Fault.COMPONENT_UNKNOWN
        entry = methods.get(call.method)
        if entry is None:
            return Fault.METHOD_UNKNOWN
        if trust < entry.trust:
            return Fault.TRUST_TOO_LOW
        expected = entry.parameters
        if expected is not None and tuple(map(type_of, call.parameters)) != expected:
            return Fault.PARAMETERS_WRONG
        return entry
