"""Pairing, held to a slow, obvious twin, with reports of progress and with requests that are taken back."""

import random
from datetime import UTC, datetime, timedelta

from wirelake.lake.gold import exchanges
from wirelake.lake.gold.steps import relink_deliveries, request_pairs
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables import messages
from wirelake.lake.tables.catalog import table

START = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = {"request": True, "cancel": True, "response": False, "progress": False}


def random_rows(seed, count):
    chance = random.Random(seed)
    for number in range(count):
        requester = chance.choice(("client", "server"))
        kind = chance.choices(list(KINDS), weights=(6, 1, 5, 3))[0]
        yield {
            "session_id": chance.choice((b"a" * 16, b"b" * 16)),
            "message_id": bytes(8) + number.to_bytes(8, "big"),
            "ts": START + timedelta(microseconds=number // 2),
            "protocol": "emp",
            "direction": "to_server" if (requester == "client") == KINDS[kind] else "to_client",
            "kind": kind,
            "correlation_id": str(chance.randrange(1, 12)),
            "fault": chance.choice((None, None, None, None, "REQUEST_ID_ZERO")),
            "size": number,
            "source": "s",
            "offset": number,
            "length": 1,
        }


def slowly(rows):
    """One loop in order of time: (request or stray response) -> (place, answer, progress, cancelled)."""
    found, last, asked = {}, {}, {}
    for row in rows:
        if row["fault"] is not None:
            continue
        requester = "client" if KINDS[row["kind"]] == (row["direction"] == "to_server") else "server"
        key = (row["session_id"], requester, row["correlation_id"])
        is_open = last.get(key) == "request"
        match row["kind"]:
            case "request":
                asked[key] = row["message_id"]
                found[row["message_id"]] = ["repeats" if is_open else "opens", None, None, False, 0, False]
            case "response" if is_open:
                answered = found[asked[key]]
                answered[1:3] = row["message_id"], answered[4]
                answered[5] = True
            case "response":
                found[row["message_id"]] = ["unmatched", None, None, False, 0, False]
            case "progress" if is_open:
                found[asked[key]][4] += 1
            case "cancel" if is_open:
                found[asked[key]][3] = True
        if row["kind"] in ("request", "response"):
            last[key] = row["kind"]
    return {message_id: tuple(what[:4]) for message_id, what in found.items()}


def test_pairing_agrees_with_a_plain_loop(spark):
    rows = list(random_rows(seed=3, count=3000))
    said = spark.createDataFrame(
        [tuple(row.get(name) for name in messages.TABLE.schema.names) for row in rows], spark_schema(messages.TABLE)
    ).repartition(3)
    paired = request_pairs.build(said)
    found = {
        bytes(row.message_id): (row.place, row.answer and bytes(row.answer.message_id), row.progress, row.cancelled)
        for row in paired.collect()
    }
    expected = slowly(rows)
    assert found == expected
    assert {what[0] for what in expected.values()} == {"opens", "repeats", "unmatched"}
    assert {what[3] for what in expected.values()} == {True, False}
    nothing = relink_deliveries.build(spark.createDataFrame([], spark_schema(table("relink"))))
    told = exchanges.build(paired, nothing)
    assert told.count() == len(expected)
    assert told.where("status = 'unasked'").count() == sum(what[0] == "unmatched" for what in expected.values())
