"""The auditor: replays a room's table of who may say what when over history, and finds every message that the table does not have.

Few messages move a conversation on: those that change the state in some row of the table. Only they are folded, connection by
connection, into intervals of known state; all other messages are then held against the interval they fall into, by a join. A forbidden
message leaves the state as it is, as it does for a live session.

It refuses to know any protocol: a room's `conversation` module is the argument.
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
    "Conversation",
    "breaches",
    "conversation",
    "forbidden",
    "intervals",
    "is_milestone",
    "no_findings",
    "no_greetings",
    "odd",
    "together",
]

DIRECTIONS: Final = {"CLIENT": ("to_server",), "SERVER": ("to_client",), "NODE": ("to_server", "to_client")}
"""Speaker -> the directions of what they say; a node speaks on connections it opened, and on those of others."""

FINDING: Final = ("session_id", "message_id", "ts", "protocol", "direction", "rule", "source", "offset", "length")
"""What every finding says; clause, text and gravity of a rule are looked up later, for all of them at once."""


class Conversation(msgspec.Struct, frozen=True):
    """A room's table as plain data. An utterance is a direction and the name of a message."""

    initial: int
    moves: dict[tuple[int, str, str], int]
    """(state, direction, name) -> another state."""
    refusals: dict[tuple[int, str, str], str]
    """(state, direction, name) that is forbidden, or untimely -> the name of the rule it breaks."""

    @property
    def milestones(self) -> list[tuple[str, str]]:
        """Utterances that change the state somewhere in the table; none, if nothing is ever forbidden."""
        return sorted({(direction, name) for _, direction, name in self.moves}) if self.refusals else []


def conversation(machine: StateMachine) -> Conversation:
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
    return Conversation(int(machine.initial), moves, refusals)


def _lookup(entries: Mapping[str, Mapping[tuple[int, str, str], int | str]], kind: str, *key: Column) -> Column:
    """Small tables as one constant, so that a plan with it stays small: the entry for protocol, state, direction and name, or null."""
    flat = {"/".join((protocol, *map(str, at))): value for protocol, table in entries.items() for at, value in table.items()}
    text = msgspec.json.encode(flat).decode()
    return sql.try_element_at(sql.from_json(sql.lit(text), f"map<string,{kind}>"), sql.concat_ws("/", *key))


def is_milestone(talk: Conversation) -> str:
    """The condition, over columns `direction` and `name`, that a message is one of the few that are folded."""
    return " OR ".join(f"(direction = '{direction}' AND name = '{name}')" for direction, name in talk.milestones) or "false"


def _is_refused(talks: Mapping[str, Conversation]) -> str:
    """The condition that the tables lack a message: one comparison of states and one of directions decides most of it."""
    names: dict[tuple[str, int, str], list[str]] = {}
    for protocol, talk in talks.items():
        for state, direction, name in talk.refusals:
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


def intervals(courses: DataFrame, talks: Mapping[str, Conversation]) -> DataFrame:
    """One row per connection and stretch of time in which its state did not change: (`after`, `until`], null where there is no bound.

    `courses` has a `connection_id`, its `protocol` and its `milestones`: an array of (ts, message_id, direction, name), in any order.
    """
    place = "struct<ts:timestamp,message_id:binary>"
    nowhere = sql.lit(None).cast(place)
    initial = sql.from_json(sql.lit(msgspec.json.encode({name: talk.initial for name, talk in talks.items()}).decode()), "map<string,int>")
    moves = {name: talk.moves for name, talk in talks.items()}
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
    walked = courses.select("connection_id", "protocol", walk.alias("intervals"))
    return walked.select("connection_id", "protocol", sql.inline("intervals"))


def odd(faults: Iterable[FaultLike]) -> dict[FaultLike, Column]:
    """What the bits of the column `oddities` mean, the lowest first: fault -> the condition that its bit is set."""
    return {fault: sql.col("oddities").bitwiseAND(1 << bit) != 0 for bit, fault in enumerate(faults)}


def breaches(own: DataFrame, protocol: str, conditions: Mapping[FaultLike, Column]) -> DataFrame:
    """Rows of a room's table that break a rule by their fields: one finding for each condition that holds."""
    broken = sql.array(*(sql.when(condition, fault.name) for fault, condition in conditions.items()))
    suspects = own.where(reduce(lambda one, other: one | other, conditions.values()))
    return suspects.withColumn("rule", sql.explode(sql.array_compact(broken))).withColumn("protocol", sql.lit(protocol)).select(*FINDING)


def no_findings(own: DataFrame) -> DataFrame:
    """The `by_fields` of a protocol without SQL rules. What its scanner finds is in `messages.fault`."""

    nothing = sql.lit(None).cast("string")
    return own.where("false").withColumn("rule", nothing).withColumn("protocol", nothing).select(*FINDING)


def no_greetings(own: DataFrame) -> DataFrame:
    """The `greetings` of a protocol without SQL rules."""

    kinds = {"client_version": "smallint", "server_version": "smallint", "accepted": "boolean", "error_code": "smallint"}
    return own.where("false").select("session_id", *(sql.lit(None).cast(kind).alias(name) for name, kind in kinds.items()))


def together(findings: Sequence[DataFrame]) -> DataFrame:
    """All of them, in one frame. As a tree, not as a chain: Spark looks at the whole plan again for every step."""
    if len(findings) == 1:
        return findings[0]
    middle = len(findings) // 2
    return together(findings[:middle]).unionByName(together(findings[middle:]))


def forbidden(messages: DataFrame, courses: DataFrame, talks: Mapping[str, Conversation]) -> DataFrame:
    """Every message of these connections (see `intervals`) that its protocol's table does not have, with the rule it breaks.

    A message that breaks a rule by itself moves the conversation on like any other, but is not reported a second time.
    """
    said, known = messages.where("fault IS NULL").alias("said"), intervals(courses, talks).alias("known")
    refusals = {name: talk.refusals for name, talk in talks.items()}
    rule = _lookup(refusals, "string", *(sql.col(name) for name in ("known.protocol", "known.state", "said.direction", "said.name")))
    return (
        said.join(known, sql.expr(f"said.connection_id = known.connection_id AND {_WITHIN} AND ({_is_refused(talks)})"))
        .select("said.*", rule.alias("rule"))
        .select(*FINDING)
    )
