"""Messages that were recorded and had not left when their connection broke are no traffic, whenever the lake gets to know it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.lake import in_process
from tests.lake.relink_sessions import EPOCH, LINK, SEQUENCE_ACK, START_NS
from tests.lake.test_checkpoints import NEVER, OFTEN, built, together
from tests.lake.test_histories import decoded
from tests.protocols.emp import speech
from tests.protocols.relink.speech import GENERAL, control, message, reply, request

from wirelake.capture.record.recorder import Recorder
from wirelake.lake.gold.fold.seen import analyzer_of, connection_events, seen_messages
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.protocols.emp.messages import Data
from wirelake.protocols.emp.wire import encode

without_spark = in_process.without_spark

LEFT, CUT, WAITS = speech.request(1, b"left"), speech.request(2, b"left in part"), speech.request(3, b"never left")
TOLD = encode(Data(b"asks nothing"))
MESSAGES = [message((b"aa",), (one,)) for one in (b"one", b"two", b"three")]


class Clock:
    """Moves on with every look at it."""

    def __init__(self, step: int) -> None:
        self.now, self.step = START_NS, step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def recorded(path, *, step=70 * 10**9):
    """A client whose third request never left, and whose second left in part."""
    with Recorder(path, protocol="emp", clock=Clock(step)) as recorder:
        one = recorder.connection(role="client", local=("127.0.0.1", 20_000), remote=("127.0.0.1", 5040), connection_id=b"12345678")
        one.sent(speech.hello())
        one.received(speech.hello())
        one.sent(LEFT)
        one.received(speech.response(1, b"so"))
        one.sent(CUT + WAITS)
        one.sent(TOLD)
        one.closed("closed", "server", is_reset=True, unconfirmed=len(TOLD + WAITS) + 5)
    return path


def rows(lake, name):
    return delta.dataset(lake, table(name)).to_table().to_pylist()


def parted(tables):
    """What was read before the end of the connection, and its end."""
    happened = tables["connections"]
    is_end = pc.is_in(happened["what"], value_set=pa.array(["unconfirmed", "reset"]))
    first = {**tables, "connections": happened.filter(pc.invert(is_end))}
    last = {name: one.slice(0, 0) for name, one in tables.items()} | {"connections": happened.filter(is_end)}
    return [first, last]


def observed(tables, observer):
    """The same rows, of an observer of this name."""
    places = {name: one.schema.get_field_index("observer") for name, one in tables.items()}
    names = {name: pa.array([observer] * one.num_rows, pa.string()) for name, one in tables.items()}
    return {name: one if places[name] < 0 else one.set_column(places[name], "observer", names[name]) for name, one in tables.items()}


def test_what_never_left_is_counted_nowhere(tmp_path, without_spark):
    tables = decoded([recorded(tmp_path / "talk.pcapng")], "emp")
    built(tmp_path / "lake", [tables], NEVER)
    assert tables["messages"].num_rows == 7
    (session,) = rows(tmp_path / "lake", "sessions")
    assert (session["messages_to_server"], session["messages_to_client"], session["unconfirmed"]) == (2, 2, 3)
    assert session["bytes_to_server"] == len(speech.hello() + LEFT)
    assert (session["ended_how"], session["ended_by"]) == ("reset", "server")
    assert [(one["correlation_id"], one["status"]) for one in rows(tmp_path / "lake", "exchanges")] == [("1", "late")]
    minutes = rows(tmp_path / "lake", "metrics")
    assert sum(one["messages"] for one in minutes) == 4
    assert sum(one["bytes"] for one in minutes) == session["bytes_to_server"] + session["bytes_to_client"]
    assert all(one["rate"] == one["messages"] / 60 for one in minutes)
    (pair,) = rows(tmp_path / "lake", "topology")
    assert (pair["messages_to_server"], pair["bytes_to_server"]) == (2, session["bytes_to_server"])
    assert (pair["sessions"], pair["connections"]) == (1, 1)


@pytest.mark.parametrize("rules", [OFTEN, NEVER])
def test_rows_do_not_depend_on_when_it_is_known(tmp_path, without_spark, rules):
    tables = decoded([recorded(tmp_path / "talk.pcapng")], "emp")
    batches = parted(tables)
    expected = built(tmp_path / "once", [together(batches)], NEVER)
    assert built(tmp_path / "later", batches, rules) == expected
    assert built(tmp_path / "before", batches[::-1], rules) == expected


@pytest.mark.parametrize("more", [0, 5])
def test_the_view_of_the_other_side_changes_no_total(tmp_path, without_spark, more):
    """Neither view subtracts what the other does not count; with more messages, that of the server is primary."""
    recorded(tmp_path / "client.pcapng", step=10**9)
    with Recorder(tmp_path / "server.pcapng", protocol="emp", clock=Clock(10**9)) as recorder:
        one = recorder.connection(role="server", local=("127.0.0.1", 5040), remote=("127.0.0.1", 20_000))
        one.received(speech.hello())
        one.sent(speech.hello())
        one.received(LEFT)
        one.sent(speech.response(1, b"so") + TOLD * more)
        one.closed("closed", "server")
    seen = {name: observed(decoded([tmp_path / f"{name}.pcapng"], "emp"), name) for name in ("client", "server")}
    for name, tables in seen.items():
        built(tmp_path / name, [tables], NEVER)
    built(tmp_path / "both", list(seen.values()), NEVER)
    for lake in ("client", "server", "both"):
        (pair,) = rows(tmp_path / lake, "topology")
        late = 0 if lake == "client" else more
        assert (pair["messages_to_server"], pair["messages_to_client"]) == (2, 2 + late), lake
        assert sum(one["messages"] for one in rows(tmp_path / lake, "metrics")) == 4 + late, lake


def test_a_delivery_that_never_left_is_no_attempt(tmp_path, without_spark):
    with Recorder(tmp_path / "link.pcapng", protocol="relink", clock=Clock(10**8)) as recorder:

        def connected(old):
            talk = recorder.connection(role="client", local=("127.0.0.1", 30_000), remote=("127.0.0.1", 7000))
            talk.sent(bytes(8))
            talk.received(bytes(8))
            talk.sent(request(b"demo", (2, 0), epoch=EPOCH if old else 0, link=LINK if old else 0))
            talk.received(reply(EPOCH, LINK))
            return talk

        talk = connected(old=False)
        for one in MESSAGES:
            talk.sent(one)
        talk.closed("closed", "server", is_reset=True, unconfirmed=sum(map(len, MESSAGES[1:])))
        talk = connected(old=True)
        talk.received(control(SEQUENCE_ACK, 0, (b"aa",), 0))
        talk.received(GENERAL["resume"])
        talk.sent(GENERAL["resume"])
        talk.sent(MESSAGES[1])
        talk.received(control(SEQUENCE_ACK, 1, (b"aa",), 1))
        talk.closed("bye", "client")
    tables = decoded([tmp_path / "link.pcapng"], "relink")
    built(tmp_path / "lake", [tables], NEVER)
    found = sorted((one["correlation_id"], one["attempts"], one["status"]) for one in rows(tmp_path / "lake", "exchanges"))
    assert found == [("6161/0", 1, "answered"), ("6161/1", 1, "answered")]
    (delivered,) = [one for one in rows(tmp_path / "lake", "exchanges") if one["correlation_id"] == "6161/1"]
    assert delivered["latency_us"] == 100_000, "counted from the attempt that left"
    (session,) = rows(tmp_path / "lake", "sessions")
    assert (session["unconfirmed"], session["violations"]) == (2, 0)


def test_a_long_run_is_counted_up_to_the_last_byte_that_left(tmp_path, without_spark):
    """So long that requests are paired by column, and that the recorder joins what it remembers."""
    asked = [speech.request(number, b"why") for number in range(1, 1201)]
    with Recorder(tmp_path / "talk.pcapng", protocol="emp", clock=Clock(10**6)) as recorder:
        one = recorder.connection(role="client", local=("127.0.0.1", 20_000), remote=("127.0.0.1", 5040))
        one.sent(speech.hello())
        one.received(speech.hello())
        for number, request_frame in enumerate(asked, 1):
            one.sent(request_frame)
            if number <= 300:
                one.received(speech.response(number, b"so"))
        one.closed("closed", "server", is_reset=True, unconfirmed=sum(map(len, asked[500:])))
    built(tmp_path / "lake", [decoded([tmp_path / "talk.pcapng"], "emp")], NEVER)
    (session,) = rows(tmp_path / "lake", "sessions")
    assert (session["unconfirmed"], session["requests"], session["answered"], session["messages_to_server"]) == (700, 500, 300, 501)
    assert sum(one["messages"] for one in rows(tmp_path / "lake", "metrics")) == 501 + 301


def test_a_reader_that_learns_it_late_leaves_no_request_waiting(tmp_path):
    with Recorder(tmp_path / "talk.pcapng", protocol="emp", clock=Clock(10**6)) as recorder:
        one = recorder.connection(role="client", local=("127.0.0.1", 20_000), remote=("127.0.0.1", 5040))
        for sent in (LEFT, CUT, WAITS):
            one.sent(sent)
        one.closed("closed", "server", is_reset=True, unconfirmed=len(CUT + WAITS))
    tables, analyzer = decoded([tmp_path / "talk.pcapng"], "emp"), analyzer_of("emp")()
    for message_seen in seen_messages(tables["emp"], analyzer.MESSAGE):
        analyzer.message(message_seen)
    for event in connection_events(tables["connections"]):
        analyzer.event(event)
    analyzer.end()
    assert [one.correlation_id for one in analyzer.exchanges] == ["1"]


@pytest.mark.slow
def test_spark_adds_up_the_same(spark, tmp_path, monkeypatch, without_spark):
    """However large a lake is, and from DataFrames of one's own."""
    from wirelake.lake import build_table, inputs_of, open_lake
    from wirelake.lake.gold.incremental import refresh
    from wirelake.lake.jobs.ingest import ingest

    path = recorded(tmp_path / "talk.pcapng")
    built(tmp_path / "small", [decoded([path], "emp")], NEVER)
    monkeypatch.setattr(refresh, "DRIVER_ROWS", -1)
    ingest(spark, tmp_path / "lake", [path])
    seen = open_lake(tmp_path / "lake")
    given = {one: seen.frame(spark, one) for name in ("metrics", "topology") for one in inputs_of(name)}
    for name in ("metrics", "topology"):
        expected = sorted(map(repr, rows(tmp_path / "small", name)))
        assert sorted(map(repr, rows(tmp_path / "lake", name))) == expected
        assert sorted(map(repr, build_table(spark, name, given).toArrow().to_pylist())) == expected
