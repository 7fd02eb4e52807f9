"""Which components and methods there are, and whether a call of them is right (WOLP-20). It refuses to know who answers it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, type_of
from wirelake.protocols.wolpertinger.options import Method
from wirelake.protocols.wolpertinger.state_machine import AUTHENTICATION, CORE
from wirelake.protocols.wolpertinger.trust.authentication import METHODS

__all__ = ["Directory", "Found"]

_BUILT_IN: Final[dict[str, dict[str, Method]]] = {
    CORE: {"Heartbeat": Method((), returns=False, trust=0), "SendResetNotice": Method((), returns=False, trust=0)},
    AUTHENTICATION: METHODS,
}


class Found(msgspec.Struct, frozen=True):
    """A method that may be called; component and method are spelled as they were declared."""

    component: str
    method: str
    declared: Method
    built_in: bool


class Directory:
    """The components of one side: those that everybody has, and the application's."""

    def __init__(self, components: Mapping[str, Mapping[str, Method]]) -> None:
        self._found: dict[str, dict[str, Found]] = {}
        for built_in, all_of_them in ((False, components), (True, _BUILT_IN)):
            for component, methods in all_of_them.items():
                known = self._found.setdefault(component.lower(), {})
                known.update({name: Found(component, name, method, built_in) for name, method in methods.items()})

    def look_up(self, call: Call, trust: int) -> Found | Fault:
        """WOLP-20: component, method, trust, parameters, in this order: the method, or the first of them that is wrong."""
        methods = self._found.get(call.component.lower())
        if methods is None:
            return Fault.COMPONENT_UNKNOWN
        found = methods.get(call.method)
        if found is None:
            return Fault.METHOD_UNKNOWN
        if trust < found.declared.trust:
            return Fault.TRUST_TOO_LOW
        wanted = found.declared.parameters
        if wanted is not None and tuple(map(type_of, call.parameters)) != wanted:
            return Fault.PARAMETERS_WRONG
        return found
