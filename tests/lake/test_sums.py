"""`metrics` and `topology`, by hand."""

from datetime import UTC, datetime, timedelta

from wirelake.lake.gold import metrics, topology
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables import exchanges, violations
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def frame(spark, table, rows):
    strange = {name for row in rows for name in row} - set(table.schema.names)
    assert not strange
    return spark.createDataFrame([tuple(row.get(name) for name in table.schema.names) for row in rows], spark_schema(table))


def test_a_minute_adds_up_batches_and_has_exact_percentiles(spark):
    said = [
        {"batch": 1, "minute": NOON, "protocol": "yamp", "subject": "sum", "messages": 40, "bytes": 400, "errors": 1, "quarantined": 0},
        {"batch": 2, "minute": NOON, "protocol": "yamp", "subject": "sum", "messages": 20, "bytes": 100, "errors": 2, "quarantined": 0},
        {"batch": 2, "minute": NOON, "protocol": "yamp", "messages": 3, "bytes": 30, "errors": 0, "quarantined": 0},
        {"batch": 2, "minute": NOON, "protocol": "yamp", "messages": 0, "bytes": 0, "errors": 0, "quarantined": 5},
        {"batch": 3, "minute": at(60), "protocol": "yamp", "subject": "sum", "messages": 1, "bytes": 9, "errors": 0, "quarantined": 0},
    ]
    asked = [
        {"protocol": "yamp", "subject": "sum", "requested": at(number / 2), "latency_us": number, "late": number > 98, "cancelled": False}
        for number in range(1, 101)
    ]
    asked.append({"protocol": "yamp", "subject": "sum", "requested": at(59.999999), "late": False, "cancelled": True})
    broken = [{"protocol": "yamp", "ts": at(seconds)} for seconds in (0, 59, 61)]
    built = metrics.build(frame(spark, MINUTE_INDEX, said), frame(spark, exchanges.TABLE, asked), frame(spark, violations.TABLE, broken))
    rows = {(row["minute"].replace(tzinfo=UTC), row["subject"]): row.asDict() for row in built.collect()}
    assert set(rows) == {(NOON, "sum"), (NOON, None), (at(60), "sum"), (at(60), None)}
    busy = rows[NOON, "sum"]
    assert (busy["messages"], busy["bytes"], busy["errors"], busy["rate"]) == (60, 500, 3, 1.0)
    assert (busy["requests"], busy["answered"], busy["late"], busy["cancelled"]) == (101, 100, 2, 1)
    assert (busy["latency_p50_us"], busy["latency_p95_us"], busy["latency_p99_us"]) == (50, 95, 99)
    rest = rows[NOON, None]
    assert (rest["messages"], rest["quarantined"], rest["violations"], rest["latency_p50_us"]) == (3, 5, 2, None)
    assert (rows[at(60), None]["violations"], rows[at(60), None]["messages"]) == (1, 0)


def test_a_pair_is_an_address_and_a_listener_or_a_node_and_whom_it_speaks_to(spark):
    def ends(connection, client, server, protocol="emp"):
        named = {"client_address": client[0], "client_port": client[1], "server_address": server[0], "server_port": server[1]}
        return (
            {"batch": 1, "protocol": protocol, "session_id": connection, "connection_id": connection}
            | named
            | {"first_seen": at(0), "last_seen": at(0)}
        )

    def said(session, connection, direction, messages, seconds, protocol="emp", errors=0):
        named = {"batch": 1, "protocol": protocol, "session_id": session, "connection_id": connection, "direction": direction}
        return named | {"messages": messages, "bytes": 10 * messages, "errors": errors, "first_seen": at(1), "last_seen": at(seconds)}

    rows = [
        # Two connections of one client, one of them in two batches.
        ends(b"a", ("10.0.0.1", 50_001), ("10.0.0.9", 5040)),
        ends(b"b", ("10.0.0.1", 50_002), ("10.0.0.9", 5040)),
        said(b"a", b"a", "to_server", 2, 10),
        said(b"a", b"a", "to_server", 1, 20, errors=1) | {"batch": 2},
        said(b"a", b"a", "to_client", 5, 11),
        said(b"b", b"b", "to_server", 1, 12),
        # A link over what was a session of its own at first.
        ends(b"c", ("10.0.0.1", 50_003), ("10.0.0.9", 7000), "relink"),
        said(b"c", b"c", "to_server", 1, 1, "relink"),
        said(b"link", b"c", "to_client", 1, 2, "relink"),
        # A node that is heard on a connection of its own and through one that was opened by who listens.
        ends(b"m", ("10.0.0.2", 7001), ("10.0.0.3", 7002), "event_mesh"),
        said(b"\x01\x02", b"m", "to_server", 3, 30, "event_mesh"),
        said(b"\x01\x02", b"m", "to_client", 4, 31, "event_mesh"),
    ]
    built = topology.build(topology.pairs(*[frame(spark, CONNECTION_INDEX, rows)] * 2))
    found = {(row["client"], row["server"]): row.asDict() for row in built.collect()}
    assert set(found) == {
        ("10.0.0.1", "10.0.0.9:5040"),
        ("10.0.0.1", "10.0.0.9:7000"),
        ("0102", "10.0.0.3:7002"),
        ("0102", "10.0.0.2:7001"),
    }
    pair = found["10.0.0.1", "10.0.0.9:5040"]
    assert (pair["protocol"], pair["sessions"], pair["connections"], pair["errors"]) == ("emp", 2, 2, 1)
    assert (pair["messages_to_server"], pair["messages_to_client"], pair["bytes_to_server"], pair["bytes_to_client"]) == (4, 5, 40, 50)
    assert (pair["first_seen"].replace(tzinfo=UTC), pair["last_seen"].replace(tzinfo=UTC)) == (at(0), at(20))
    assert (found["10.0.0.1", "10.0.0.9:7000"]["sessions"], found["10.0.0.1", "10.0.0.9:7000"]["connections"]) == (1, 1)
    assert (found["0102", "10.0.0.2:7001"]["messages_to_server"], found["0102", "10.0.0.2:7001"]["messages_to_client"]) == (4, 0)
