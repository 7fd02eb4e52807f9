"""PIGEON/1: short notes, each acknowledged, over a reliable stream. A made-up protocol that shows how one plugs into wirelake."""

from __future__ import annotations

from typing import Final

from wirelake.protocols.protocol import ColumnBuilder, Notation, Protocol, StateMachine
from wirelake_pigeon.faults import Fault
from wirelake_pigeon.messages import DEFAULT_PORT, Message
from wirelake_pigeon.options import Options
from wirelake_pigeon.scanner import Limits, find, scan, sniff, walk
from wirelake_pigeon.session import Session
from wirelake_pigeon.state_machine import INITIAL, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake_pigeon.wire import buffer, decode, encode

__all__ = ["PROTOCOL"]


def _columns() -> ColumnBuilder[Limits]:
    from wirelake_pigeon import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _notation() -> Notation[Limits, Message]:
    from wirelake_pigeon import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse)


PROTOCOL: Final = Protocol[Limits, Message](
    name="pigeon",
    title="PIGEON/1",
    package=__name__,
    port=DEFAULT_PORT,
    default_port=DEFAULT_PORT,
    limits=Limits,
    options=Options,
    session=Session,
    faults=Fault,
    state_machine=StateMachine.of(
        initial=INITIAL,
        transitions=TRANSITIONS,
        messages=MESSAGES,
        states=State,
        speakers=Speaker,
        refusal=refusal,
    ),
    scan=scan,
    walk=walk,
    find=find,
    sniff=sniff,
    buffer=buffer,
    decode=decode,
    encode=encode,
    columns=_columns,
    notation=_notation,
)
