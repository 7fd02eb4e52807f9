"""`topology` built with Arrow: the rows that Spark builds, on random tables and at the edges."""

import random

import pyarrow as pa
import pytest
from tests.lake.random_columns import at, one_of, rows_of, table

from wirelake.lake.gold import topology
from wirelake.lake.gold.arrow_topology import topology_of
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables.index import CONNECTION_INDEX

PROTOCOLS = ("emp", "event_mesh", "relink", "yamp", "of another package")
ADDRESSES = ("10.0.0.1", "10.0.0.10", "::1", "", "?")
PORTS = (0, 80, 5040, 65_535)


def random_index(seed, rows):
    chance = random.Random(seed)
    connections = [b"", *(bytes([number]) * 16 for number in range(1, max(3, rows // 8)))]
    sessions = [b"", b"\x00", b"\xff" * 16, *(bytes([number]) * 8 for number in range(20))]
    sessions += connections[::2]  # a session may have the id of another connection
    found = []
    for _ in range(rows):
        connection = one_of(chance, connections, 0.05)
        row = {
            "batch": chance.randrange(4),
            "protocol": one_of(chance, PROTOCOLS, 0.1),
            "connection_id": connection,
            "session_id": connection if chance.random() < 0.5 else one_of(chance, sessions),
            "direction": one_of(chance, ("to_server", "to_client"), 0.4),
            "first_seen": one_of(chance, [at(seconds) for seconds in range(100)]),
            "last_seen": one_of(chance, [at(seconds) for seconds in range(100)]),
        }
        row |= {name: one_of(chance, range(1000)) for name in ("messages", "bytes", "errors")}
        for side in ("client", "server"):
            row |= {f"{side}_address": one_of(chance, ADDRESSES), f"{side}_port": one_of(chance, PORTS)}
        found.append(row)
    return table(CONNECTION_INDEX, found)


def by_spark(spark, index):
    rows = spark.createDataFrame(index, spark_schema(CONNECTION_INDEX))
    return topology.build(topology.pairs(rows, rows)).toArrow()


@pytest.mark.parametrize(("seed", "rows"), [pytest.param(2, 80, marks=pytest.mark.long), (4, 2000)])
def test_random_indexes_give_the_rows_that_spark_gives(spark, seed, rows):
    index = random_index(seed, rows)
    built = topology_of(index)
    assert built.schema.equals(topology.TABLE.schema, check_metadata=True)
    assert built.num_rows
    assert rows_of(built) == rows_of(by_spark(spark, index))


def test_other_columns_of_the_index_change_nothing():
    index = random_index(5, 100)
    wider = index.append_column("file", pa.array([f"part-{number}" for number in range(index.num_rows)]))
    assert topology_of(wider).equals(topology_of(index))


def test_a_connection_without_events_counts_for_no_pair():
    said = {"protocol": "emp", "session_id": b"a", "connection_id": b"a", "direction": "to_server", "messages": 1, "last_seen": at(1)}
    unread = {"protocol": "emp", "session_id": b"a", "connection_id": b"a", "first_seen": at(1)}
    assert topology_of(table(CONNECTION_INDEX, [said, unread])).num_rows == 0


def test_messages_before_a_link_was_agreed_on_belong_to_it():
    event = {"protocol": "relink", "session_id": b"c", "connection_id": b"c", "last_seen": at(0), "client_address": "a"}
    early, later = (
        {"protocol": "relink", "session_id": session, "connection_id": b"c", "direction": "to_server"} for session in (b"c", b"x")
    )
    row = topology_of(table(CONNECTION_INDEX, [event, early, later])).to_pylist()[0]
    assert (row["client"], row["server"], row["sessions"], row["connections"]) == ("a", "?", 1, 1)


def test_a_node_sends_to_either_end():
    event = {"protocol": "event_mesh", "session_id": b"m", "connection_id": b"m", "last_seen": at(0)}
    event |= {"client_address": "10.0.0.2", "client_port": 7001, "server_address": "10.0.0.3", "server_port": 7002}
    there, back = (
        {"protocol": "event_mesh", "session_id": b"\x01\x02", "connection_id": b"m", "direction": direction, "messages": messages}
        for direction, messages in (("to_server", 3), ("to_client", 4))
    )
    built = topology_of(table(CONNECTION_INDEX, [event, there, back]))
    found = {(row["client"], row["server"]): (row["messages_to_server"], row["messages_to_client"]) for row in built.to_pylist()}
    assert found == {("0102", "10.0.0.3:7002"): (3, 0), ("0102", "10.0.0.2:7001"): (4, 0)}


def test_an_empty_index_gives_no_rows():
    built = topology_of(CONNECTION_INDEX.schema.empty_table())
    assert built.num_rows == 0
    assert built.schema.equals(topology.TABLE.schema, check_metadata=True)
