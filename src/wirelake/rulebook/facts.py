"""What the code knows of a fault: its severity, the answer of a live peer, and how the lake reports it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Final

import msgspec

from wirelake import protocols
from wirelake.protocols.entry_points import OURS
from wirelake.protocols.faults import Faults

__all__ = ["FaultFacts", "facts"]

_REFUSED: Final = "refused before anything is sent"
"""How the reason begins that a lake cannot find a fault of the calling code."""


class FaultFacts(msgspec.Struct, frozen=True):
    """One fault, as the rule book shows it."""

    name: str
    clause: str
    text: str
    origin: str
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
    on_fault = protocols.get(protocol).on_fault
    unseen, by_keys = _noted(protocol)
    return tuple(_facts(fault, on_fault, unseen.get(fault), fault in by_keys) for fault in protocols.get(protocol).faults)


def _noted(protocol: str) -> tuple[Mapping[Faults, str], Collection[Faults]]:
    """The faults that the lake cannot find, and those that it finds with keys; of one protocol, so that the others are not imported."""
    if protocol not in OURS:
        return {}, ()
    rules = import_module(f"wirelake.lake.gold.rules.{protocol}")
    return rules.UNSEEN, getattr(rules, "BY_KEYS", ())


def _facts(fault: Faults, on_fault: str, unseen: str | None, by_keys: bool) -> FaultFacts:
    severity = fault.severity.name.lower()
    if unseen is not None and unseen.startswith(_REFUSED):
        live_peer, answer = "raises an error in the calling code", "nothing"
    else:
        live_peer, answer = "counts it and reads on" if fault.is_tolerated else on_fault, _answer(fault)
    table = "`security`" if by_keys else f"`violations`, {severity}"
    lake = table if unseen is None else f"not reported: {unseen}"
    return FaultFacts(fault.name, fault.clause, fault.text, fault.origin, severity, live_peer, answer, lake)


def _answer(fault: Faults) -> str:
    """What a broken rule is answered with: an error, a result or a close, where the protocol has those; or nothing."""
    if fault.error_code is not None:
        return f"error {int(fault.error_code)}"
    if fault.result_code is not None:
        return f"result {int(fault.result_code)}"
    return "nothing" if fault.close_reason is None else f"system.close `{fault.close_reason}`"
