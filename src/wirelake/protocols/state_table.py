"""A protocol's state machine as a table of names and numbers, for those who watch both sides.

A live session asks its state machine with message types. An observer has names of messages, and a direction instead of a speaker.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import msgspec

from wirelake.protocols.protocol import StateMachine

__all__ = ["StateTable", "state_table"]

_TO_SERVER: Final = {"CLIENT": (True,), "SERVER": (False,), "NODE": (True, False)}
"""Speaker -> the directions of its messages. A node sends on connections it opened, and on those of others."""


class StateTable(msgspec.Struct, frozen=True):
    """Which message, by direction and name, changes the state, and which is forbidden."""

    initial: int
    moves: dict[tuple[int, bool, str], int]
    """(state, to the server, message name) -> next state, where it differs."""
    refusals: dict[tuple[int, bool, str], str]
    """(state, to the server, message name) that is forbidden, or untimely -> name of the rule it breaks."""
    quiet: frozenset[tuple[int, bool, str]]
    """What neither changes the state nor is forbidden: nearly all messages."""


def state_table(machine: StateMachine) -> StateTable:
    """The table of a state machine."""
    moves, refusals, quiet = {}, {}, set()
    for state, speaker, message in product(machine.states, machine.speakers, machine.messages):
        after = machine.transitions.get((state, speaker, message))
        for to_server in _TO_SERVER[speaker.name]:
            at = (int(state), to_server, str(message.__struct_config__.tag))
            if after is None:
                refusals[at] = machine.refusal(state, speaker, message).name
                continue
            if after != state:
                moves[at] = int(after)
            if (state, speaker, message) in machine.untimely:
                refusals[at] = machine.untimely[state, speaker, message].name
            elif after == state:
                quiet.add(at)
    return StateTable(int(machine.initial), moves, refusals, frozenset(quiet))
