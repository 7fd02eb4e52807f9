"""The rules engine: runs a state machine over history, and finds forbidden messages.

Few messages change the state. Only they are folded, connection by connection, into intervals of known state. All other messages are then
joined to the interval they fall into. A forbidden message leaves the state as it is, as in a live session.

It does not depend on a protocol: a protocol's `state_machine` module is the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.errors import FaultLike
from wirelake.protocols.protocol import StateMachine

__all__ = [
    "DIRECTIONS",
    "FINDING",
    "StateMachineTable",
    "breaches",
    "default_greetings",
    "forbidden",
    "intervals",
    "is_milestone",
    "no_findings",
    "odd",
    "state_machine_table",
    "together",
]

DIRECTIONS: Final = {"CLIENT": ("to_server",), "SERVER": ("to_client",), "NODE": ("to_server", "to_client")}
"""Speaker -> directions of its messages.

A node sends on connections it opened, and on those of others.
"""

FINDING: Final = ("session_id", "message_id", "ts", "protocol", "direction", "rule", "source", "offset", "length")
"""Columns of a finding.

Clause, text and severity of its rule are looked up later, for all findings at once.
"""


class StateMachineTable(msgspec.Struct, frozen=True):
    """A protocol's state machine as plain data."""

    initial: int
    moves: dict[tuple[int, str, str], int]
    """(state, direction, message name) -> next state, where it differs."""
    refusals: dict[tuple[int, str, str], str]
    """(state, direction, message name) that is forbidden, or untimely -> name of the rule it breaks."""

    @property
    def milestones(self) -> list[tuple[str, str]]:
        """(direction, message name) that change some state; empty if nothing is ever forbidden."""
        return sorted({(direction, name) for _, direction, name in self.moves}) if self.refusals else []


def state_machine_table(machine: StateMachine) -> StateMachineTable:
    """A protocol's state machine as plain data."""
    moves, refusals = {}, {}
    for state, speaker, message in product(machine.states, machine.speakers, machine.messages):
        after = machine.transitions.get((state, speaker, message))
        for direction in DIRECTIONS[speaker.name]:
            at = (int(state), direction, str(message.__struct_config__.tag))
            if after is None:
                refusals[at] = machine.refusal(state, speaker, message).name
                continue
            if after != state:
                moves[at] = int(after)
            if (state, speaker, message) in machine.untimely:
                refusals[at] = machine.untimely[state, speaker, message].name
    return StateMachineTable(int(machine.initial), moves, refusals)


def _lookup(entries: Mapping[str, Mapping[tuple[int, str, str], int | str]], kind: str, *key: Column) -> Column:
    """The entry for protocol, state, direction and name, or null.

    Small tables become one constant, so that the plan stays small.
    """
    flat = {"/".join((protocol, *map(str, at))): value for protocol, table in entries.items() for at, value in table.items()}
    text = msgspec.json.encode(flat).decode()
    return sql.try_element_at(sql.from_json(sql.lit(text), f"map<string,{kind}>"), sql.concat_ws("/", *key))


def is_milestone(machine: StateMachineTable) -> str:
    """Return the SQL condition, over `direction` and `name`, that a message changes some state."""
    return " OR ".join(f"(direction = '{direction}' AND name = '{name}')" for direction, name in machine.milestones) or "false"


def _is_refused(machines: Mapping[str, StateMachineTable]) -> str:
    """Return the SQL join condition that a message is forbidden in its state."""
    names: dict[tuple[str, int, str], list[str]] = {}
    for protocol, machine in machines.items():
        for state, direction, name in machine.refusals:
            names.setdefault((protocol, state, direction), []).append(f"'{name}'")
    return (
        " OR ".join(
            f"(known.state = {state} AND known.protocol = '{protocol}' AND said.direction = '{direction}'"
            f" AND said.name IN ({', '.join(forbidden_names)}))"
            for (protocol, state, direction), forbidden_names in names.items()
        )
        or "false"
    )


_AFTER: Final = "(said.ts > known.after.ts OR (said.ts = known.after.ts AND said.message_id > known.after.message_id))"
_UNTIL: Final = "(said.ts < known.until.ts OR (said.ts = known.until.ts AND said.message_id <= known.until.message_id))"
_WITHIN: Final = f"(known.after IS NULL OR {_AFTER}) AND (known.until IS NULL OR {_UNTIL})"


def intervals(state_changes: DataFrame, machines: Mapping[str, StateMachineTable]) -> DataFrame:
    """One row per connection and interval in which its state did not change.

    An interval is (`after`, `until`], null where there is no bound. `state_changes` has a `connection_id`, its `protocol` and its
    `milestones`: an array of (ts, message_id, direction, name), in any order.
    """
    place = "struct<ts:timestamp,message_id:binary>"
    nowhere = sql.lit(None).cast(place)
    initial = sql.from_json(
        sql.lit(msgspec.json.encode({name: machine.initial for name, machine in machines.items()}).decode()), "map<string,int>"
    )
    moves = {name: machine.moves for name, machine in machines.items()}
    start = sql.struct(
        nowhere.alias("after"),
        sql.try_element_at(initial, "protocol").alias("state"),
        sql.array().cast(f"array<struct<after:{place},until:{place},state:int>>").alias("past"),
    )

    def step(walked: Column, milestone: Column) -> Column:
        here = sql.struct(milestone["ts"].alias("ts"), milestone["message_id"].alias("message_id"))
        ended = sql.struct(walked["after"].alias("after"), here.alias("until"), walked["state"].alias("state"))
        then = _lookup(moves, "int", sql.col("protocol"), walked["state"], milestone["direction"], milestone["name"])
        moved = sql.struct(here.alias("after"), then.alias("state"), sql.concat(walked["past"], sql.array(ended)).alias("past"))
        return sql.when(then.isNull(), walked).otherwise(moved)

    def finish(walked: Column) -> Column:
        last = sql.struct(walked["after"].alias("after"), nowhere.alias("until"), walked["state"].alias("state"))
        return sql.concat(walked["past"], sql.array(last))

    walk = sql.aggregate(sql.sort_array("milestones"), start, step, finish)
    walked = state_changes.select("connection_id", "protocol", walk.alias("intervals"))
    return walked.select("connection_id", "protocol", sql.inline("intervals"))


def odd(faults: Iterable[FaultLike]) -> dict[FaultLike, Column]:
    """Fault -> the condition that its bit of the column `oddities` is set, the lowest bit first."""
    return {fault: sql.col("oddities").bitwiseAND(1 << bit) != 0 for bit, fault in enumerate(faults)}


def breaches(own: DataFrame, protocol: str, conditions: Mapping[FaultLike, Column]) -> DataFrame:
    """Find rows of a protocol's table that break a rule by their fields.

    There is one finding per condition that holds.
    """
    broken = sql.array(*(sql.when(condition, fault.name) for fault, condition in conditions.items()))
    suspects = own.where(reduce(lambda one, other: one | other, conditions.values()))
    return suspects.withColumn("rule", sql.explode(sql.array_compact(broken))).withColumn("protocol", sql.lit(protocol)).select(*FINDING)


def no_findings(own: DataFrame) -> DataFrame:
    """The `by_fields` of a protocol without SQL rules. What its scanner finds is in `messages.fault`."""

    nothing = sql.lit(None).cast("string")
    return own.where("false").withColumn("rule", nothing).withColumn("protocol", nothing).select(*FINDING)


def default_greetings(own: DataFrame) -> DataFrame:
    """The `greetings` of a protocol without SQL rules.

    No versions are known, and a handshake of both sides is accepted.
    """

    unknown = [sql.lit(None).cast("smallint").alias(name) for name in ("client_version", "server_version", "error_code")]
    return own.select("session_id").distinct().select("session_id", *unknown, sql.lit(True).alias("accepted"))


def together(findings: Sequence[DataFrame]) -> DataFrame:
    """Union all findings, as a tree and not as a chain.

    In a chain, Spark analyses the whole plan again for every step.
    """
    if len(findings) == 1:
        return findings[0]
    middle = len(findings) // 2
    return together(findings[:middle]).unionByName(together(findings[middle:]))


def forbidden(messages: DataFrame, state_changes: DataFrame, machines: Mapping[str, StateMachineTable]) -> DataFrame:
    """Find every message of these connections (see `intervals`) that its state machine forbids.

    Findings have the rule it breaks. A message that breaks a rule by itself changes the state like any other, but is not reported a second
    time.
    """
    said, known = messages.where("fault IS NULL").alias("said"), intervals(state_changes, machines).alias("known")
    refusals = {name: machine.refusals for name, machine in machines.items()}
    rule = _lookup(refusals, "string", *(sql.col(name) for name in ("known.protocol", "known.state", "said.direction", "said.name")))
    return (
        said.join(known, sql.expr(f"said.connection_id = known.connection_id AND {_WITHIN} AND ({_is_refused(machines)})"))
        .select("said.*", rule.alias("rule"))
        .select(*FINDING)
    )
