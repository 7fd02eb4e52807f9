"""What the code knows of a fault: its severity, the answer of a live peer, and how the lake reports it."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from wirelake import protocols
from wirelake.protocols.faults import Faults, Rule

__all__ = ["FaultFacts", "facts"]

_REFUSED: Final = "refused before anything is sent"
"""How the reason begins that a lake cannot find a fault of the calling code."""


class FaultFacts(msgspec.Struct, frozen=True):
    """One fault, as the rule book shows it."""

    name: str
    clause: str
    text: str
    origin: str
    strength: str
    """How strongly the specification itself speaks about it: `must`, `should` or `may`."""
    severity: str
    live_peer: str
    """What a live peer does that finds it."""
    answer: str
    """What the sender gets."""
    lake: str
    """The table that reports it, or why none does."""


@cache
def facts(protocol: str) -> tuple[FaultFacts, ...]:
    """Everything about all faults of a protocol, in their order."""
    descriptor = protocols.get(protocol)
    return tuple(_facts(fault, descriptor.on_fault) for fault in descriptor.faults)


def _facts(fault: Faults, on_fault: str) -> FaultFacts:
    severity, unseen = fault.severity.label, fault.rule.unseen
    if unseen is not None and unseen.startswith(_REFUSED):
        live_peer, answer = "raises an error in the calling code", "nothing"
    else:
        live_peer, answer = "counts it and reads on" if fault.is_tolerated else fault.rule.live_peer or on_fault, _answer(fault.rule)
    table = "`security`" if fault.rule.by_keys else f"`violations`, {severity}"
    lake = table if unseen is None else f"not reported: {unseen}"
    return FaultFacts(fault.name, fault.clause, fault.text, fault.origin, fault.strength, severity, live_peer, answer, lake)


def _answer(rule: Rule) -> str:
    """What a broken rule is answered with: an error, a result or a close, where the protocol has those; or nothing."""
    if rule.error_code is not None:
        return f"error {int(rule.error_code)}"
    if rule.result_code is not None:
        return f"result {int(rule.result_code)}"
    return "nothing" if rule.close_reason is None else f"system.close `{rule.close_reason}`"
