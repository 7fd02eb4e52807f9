"""Long sessions go on from checkpoints: the rows are those of a lake that was built at once, however history came in.

Random histories that break rules come in batches, some of them late. Every session gets a checkpoint at every refresh.
"""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.lake import in_process
from tests.lake.test_histories import WRITERS, decoded
from tests.protocols.emp import speech

from wirelake.capture.record.recorder import Recorder
from wirelake.lake.gold.fold.checkpoints import Checkpoint, CheckpointRules
from wirelake.lake.gold.incremental import refresh, sum_minutes
from wirelake.lake.store import delta
from wirelake.lake.store.gold_names import session_of
from wirelake.lake.tables import exchanges, violations
from wirelake.lake.tables.checkpoints import CHECKPOINTS

SEEDS = range(100, 102)
OFTEN = CheckpointRules(messages=1, slack_seconds=0.5, files=3)
NEVER = CheckpointRules(messages=1 << 60)

pytestmark = pytest.mark.slow  # hundreds of commits
without_spark = in_process.without_spark


@pytest.fixture(scope="module", params=WRITERS)
def history(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    paths = sorted(path for seed in SEEDS for path in WRITERS[request.param](folder, seed))
    return request.param, decoded(paths, request.param)


def cut(tables, protocol, dice, parts, late):
    """The rows in this many batches by time; a share of them comes one batch later."""
    names = ("messages", protocol, "connections", "quarantine")
    times = pa.concat_arrays([tables[name]["ts"].combine_chunks().cast(pa.int64()) for name in names]).drop_null().to_pylist()
    edges = sorted(dice.choice(times) for _ in range(parts - 1))
    seed = dice.random()
    batches = [{} for _ in range(parts + 1)]
    for name in names:
        rows = tables[name]
        keys = rows["message_id" if "message_id" in rows.column_names else "ts"].to_pylist()
        of_row = []
        for key, ts in zip(keys, rows["ts"].cast(pa.int64()).fill_null(-1).to_pylist(), strict=True):
            is_late = random.Random(f"{seed} {key}").random() < late
            of_row.append(sum(ts > edge for edge in edges) + is_late)
        for number, batch in enumerate(batches):
            batch[name] = rows.filter(pc.equal(pa.array(of_row), number))
    return batches


def built(lake, batches, rules):
    in_process.create(lake)
    for batch in batches:
        in_process.add(lake, batch)
        in_process.refreshed(lake, rules)
    return in_process.gold(lake)


def together(batches):
    return {name: pa.concat_tables([one[name] for one in batches]) for name in batches[0]}


# Rows that come late come in between others in time: what is true of both is true of these.
@pytest.mark.parametrize("late", [pytest.param(0.0, marks=pytest.mark.long), 0.005])
def test_rows_do_not_depend_on_checkpoints(history, tmp_path, without_spark, late):
    protocol, tables = history
    batches = cut(tables, protocol, random.Random(f"{protocol} {late}"), 5, late)
    assert built(tmp_path / "often", batches, OFTEN) == built(tmp_path / "once", [together(batches)], NEVER)
    assert delta.entries(tmp_path / "often", CHECKPOINTS), "no session got a checkpoint"


# Minutes are added up alike for every protocol; packets of Event Mesh have no exchanges.
@pytest.mark.parametrize(
    "history", [name if name in ("emp", "event_mesh") else pytest.param(name, marks=pytest.mark.long) for name in WRITERS], indirect=True
)
def test_rows_do_not_depend_on_where_minutes_are_added_up(history, tmp_path, monkeypatch, without_spark):
    """Tables of many rows are added up in tasks."""
    protocol, tables = history
    batches = cut(tables, protocol, random.Random(protocol), 3, 0.005)
    small = built(tmp_path / "small", batches, NEVER)
    monkeypatch.setattr(refresh, "TASK_ROWS", 0)
    sums = []
    monkeypatch.setattr(refresh, "sums_in_tasks", lambda *given: sums.append(sum_minutes.sums_in_tasks(*given)) or sums[-1])
    assert built(tmp_path / "summed", batches, NEVER) == small
    assert sums, "nothing was added up in tasks"


@pytest.fixture
def long_session(tmp_path):
    """One open session of 200 requests and their answers, in 10 batches; some requests are answered in the next batch."""
    now, path = 1_700_000_000 * 10**9, tmp_path / "long.pcapng"
    with Recorder(path, protocol="emp", clock=lambda: now) as recorder:
        one = recorder.connection(role="client", transport="tcp", local=("127.0.0.1", 20_000), remote=("127.0.0.1", 5040))
        one.sent(speech.hello())
        one.received(speech.hello())
        for number in range(1, 201):
            now += 10_000_000
            one.sent(speech.request(number, b"why"))
            now += 1_000_000
            one.received(speech.response(number, b"so"))
    tables = decoded([path], "emp")
    times = sorted(tables["emp"]["ts"].to_pylist())
    edges = [times[at] for at in range(40, len(times), 41)]

    def of(rows):
        return pa.array([sum(ts > edge for edge in edges) for ts in rows["ts"].to_pylist()], pa.int64())

    names = ("messages", "emp", "connections", "quarantine")
    return [{name: tables[name].filter(pc.equal(of(tables[name]), number)) for name in names} for number in range(len(edges) + 1)]


RULES = CheckpointRules(messages=60, slack_seconds=0.02, files=4)


def test_a_long_session_is_not_read_again(long_session, tmp_path, without_spark):
    lake = tmp_path / "lake"
    built(lake, long_session, RULES)
    total = sum(batch["emp"].num_rows for batch in long_session)
    assert total > 400
    assert max(without_spark.messages) < 160, f"a refresh read {max(without_spark.messages)} messages of a session of {total}"
    assert sum(without_spark.messages) > total


def test_files_of_a_long_session_are_merged(long_session, tmp_path, without_spark):
    lake = tmp_path / "lake"
    rows = built(lake, long_session, RULES)
    settled = [file for file in delta.entries(lake, exchanges.TABLE) if session_of(file.path) is not None]
    assert 0 < len(settled) <= RULES.files + 1
    assert sum(file.rows for file in settled) > 100
    assert len(rows["exchanges"]) == 200
    assert len(delta.entries(lake, CHECKPOINTS)) == 1


def test_a_late_message_makes_the_session_be_read_again(long_session, tmp_path, without_spark):
    lake, late = tmp_path / "lake", long_session.pop(2)
    built(lake, long_session, RULES)
    before = len(without_spark.messages)
    in_process.add(lake, late)
    in_process.refreshed(lake, RULES)
    total = sum(batch["emp"].num_rows for batch in [*long_session, late])
    assert without_spark.messages[before:] == [total]
    assert in_process.gold(lake) == built(tmp_path / "once", [together([*long_session, late])], NEVER)


def test_a_checkpoint_of_another_version_is_not_used(long_session, tmp_path, without_spark):
    lake = tmp_path / "lake"
    built(lake, long_session[:-1], RULES)
    (file,) = delta.files(lake, CHECKPOINTS)
    rows = delta.dataset(lake, CHECKPOINTS).to_table()
    one = msgspec.msgpack.decode(rows["checkpoint"][0].as_py(), type=Checkpoint)
    other = msgspec.msgpack.encode(msgspec.structs.replace(one, code="0/0"))
    in_process.overwrite(file, rows.set_column(rows.schema.get_field_index("checkpoint"), "checkpoint", pa.array([other], pa.binary())))
    in_process.add(lake, long_session[-1])
    in_process.refreshed(lake, RULES)
    assert without_spark.messages[-1] == sum(batch["emp"].num_rows for batch in long_session)
    assert in_process.gold(lake) == built(tmp_path / "once", [together(long_session)], NEVER)


def test_all_rows_are_rebuilt_without_checkpoints(long_session, tmp_path, without_spark):
    """A new version of the rules reads every session again, and removes what older ones had settled."""
    lake = tmp_path / "lake"
    expected = built(lake, long_session, RULES)
    in_process.forget_rules(lake)
    in_process.refreshed(lake, NEVER)
    assert in_process.gold(lake) == expected
    for table in (exchanges.TABLE, violations.TABLE, CHECKPOINTS):
        assert not [file for file in delta.entries(lake, table) if session_of(file.path) is not None]
