"""The auditor, held to a slow, obvious twin: one Python loop over the room's own table."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from wirelake.lake.gold.rules.engine import DIRECTIONS, forbidden, state_machine_table
from wirelake.lake.tables import messages
from wirelake.protocols.emp import PROTOCOL
from wirelake.protocols.emp import state_machine as room

START = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = {word.__struct_config__.tag: word for word in room.MESSAGES}


def slowly(talk):
    """What the room says of a conversation, message by message."""
    state, found = room.INITIAL, []
    for number, (speaker, name, fault) in enumerate(talk):
        after = room.TRANSITIONS.get((state, speaker, WORDS[name]))
        if after is not None:
            state = after
        elif fault is None:
            found.append((number, room.refusal(state, speaker, WORDS[name]).name))
    return found


def random_talks(seed, count):
    chance = random.Random(seed)
    for _ in range(count):
        # Mostly well begun, so that every state is reached; then anything.
        talk = [(speaker, "hello", None) for speaker in chance.sample(list(room.Speaker), 2)][: chance.choice((0, 1, 2, 2, 2))]
        for _ in range(chance.randrange(25)):
            word = chance.choices(list(WORDS), weights=[1 if name in ("bye", "error") else 6 for name in WORDS])[0]
            talk.append((chance.choice(list(room.Speaker)), word, chance.choice((None, None, None, "EXTENSION_UNKNOWN"))))
        yield talk


def rows_of(talks, ticks):
    for session, talk in enumerate(talks):
        for number, (speaker, name, fault) in enumerate(talk):
            yield {
                "session_id": session.to_bytes(16, "big"),
                "connection_id": session.to_bytes(16, "big"),
                "message_id": bytes(8) + number.to_bytes(8, "big"),
                # Several messages share a moment: what decides then is where they lie in the source.
                "ts": START + timedelta(microseconds=number // ticks),
                "protocol": "emp",
                "direction": DIRECTIONS[speaker.name][0],
                "name": name,
                "fault": fault,
                "source": "a",
                "offset": number,
                "length": 8,
            }


def test_the_auditor_agrees_with_the_table_on_random_conversations(spark):
    from wirelake.lake.sources.tables import spark_schema

    talks = list(random_talks(seed=7, count=300))
    plan = state_machine_table(PROTOCOL.state_machine)
    for ticks in (1, 3):
        table = pa.Table.from_pylist(list(rows_of(talks, ticks)), schema=messages.TABLE.schema)
        said = spark.createDataFrame(table.to_pylist(), spark_schema(messages.TABLE)).repartition(3)
        milestones = {
            index.to_bytes(16, "big"): [
                (row["ts"], row["message_id"], row["direction"], row["name"])
                for row in reversed(list(rows_of([talk], ticks)))
                if (row["direction"], row["name"]) in plan.milestones
            ]
            for index, talk in enumerate(talks)
        }
        kinds = (
            "connection_id binary, protocol string, milestones array<struct<ts:timestamp,message_id:binary,direction:string,name:string>>"
        )
        courses = spark.createDataFrame([(who, "emp", what) for who, what in milestones.items()], kinds)
        found = {(bytes(row.session_id), row.offset, row.rule) for row in forbidden(said, courses, {"emp": plan}).collect()}
        expected = {(index.to_bytes(16, "big"), number, rule) for index, talk in enumerate(talks) for number, rule in slowly(talk)}
        assert found == expected
    assert {rule for _, _, rule in expected} == {"HELLO_EXPECTED", "HELLO_REPEATED", "SPOKE_TOO_SOON", "SPOKE_AFTER_PARTING"}


def test_the_plan_has_every_row_of_the_table():
    plan = state_machine_table(PROTOCOL.state_machine)
    every = {
        (int(state), DIRECTIONS[speaker.name][0], name)
        for state in room.State
        for speaker in room.Speaker
        for name, word in WORDS.items()
        if room.TRANSITIONS.get((state, speaker, word), state) != state or (state, speaker, word) not in room.TRANSITIONS
    }
    assert set(plan.moves) | set(plan.refusals) == every
    assert not set(plan.moves) & set(plan.refusals)
    assert {name for _, name in plan.milestones} == {"hello", "bye", "error"}
