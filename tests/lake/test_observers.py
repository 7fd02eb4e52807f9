"""Several observers of one link: each has a session of its own, one of them counts, and sums do not depend on the others."""

from __future__ import annotations

import itertools
import tarfile
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.capture.build import Talk, pcap
from tests.explore.served import served
from tests.lake import in_process
from tests.lake.in_process import without_spark  # noqa: F401 - a fixture
from tests.lake.relink_sessions import START_NS, STORY

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.read_split import read_split, read_tasks
from wirelake.capture.files.growing import Follower, Limits, Offset
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.cli.main import run
from wirelake.explore.model import observers, sessions
from wirelake.explore.model.database import Database
from wirelake.explore.query import every_view, opened, query
from wirelake.lake.decode import pipeline
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.index_rows import INPUTS
from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.incremental import index
from wirelake.lake.sources import intake, plan
from wirelake.lake.store import commit, delta, journal, snapshot
from wirelake.lake.store.progress import positions
from wirelake.lake.store.removal import Removal
from wirelake.lake.tables.catalog import GOLD, TABLES, table
from wirelake.lake.tables.index import INDEX_TABLES

HERE, THERE = 31_000, 7000
SUMS = ("messages", "bytes", "errors", "requests", "answered", "late", "violations", "quarantined")
OFTEN = CheckpointRules()


def told(path, role, *, story=STORY, observer=None, clock=0, first_port=HERE):
    """A recording of a link by one of its peers, whose clock is so many microseconds ahead."""
    now = [START_NS]
    with Recorder(path, protocol="relink", clock=lambda: now[0], observer=observer) as recorder:
        port, talk = first_port, None
        for seconds, who, _, data in story:
            now[0] = START_NS + int(seconds * 1e9) + clock * 1000
            if talk is None:
                ends = (("127.0.0.1", port), ("127.0.0.1", THERE))
                local, remote = ends if role == "client" else ends[::-1]
                talk = recorder.connection(role=role, local=local, remote=remote)
                port += 1
            if who in ("client", "server"):
                (talk.sent if who == role else talk.received)(data)
            else:
                talk.closed("eof")
                talk = None
        if talk is not None:
            talk.closed("eof")
    return path


def packets_of(story=STORY, clock=0):
    """The packets of the same link: (time, IP packet)."""
    port, talk, begun = HERE, None, []
    for seconds, who, _, data in story:
        at = START_NS // 1000 + int(seconds * 1e6) + clock
        if talk is None:
            talk = Talk(("127.0.0.1", port), ("127.0.0.1", THERE)).open()
            port += 1
        if who in ("client", "server"):
            talk.say(0 if who == "client" else 1, data)
        else:
            talk.close()
        begun += [(at, packet) for _, packet in talk.packets]
        talk.packets.clear()
        if who not in ("client", "server"):
            talk = None
    return begun


def captured(path, packets=None, *, clock=0):
    """A capture of the same link."""
    path.write_bytes(pcap(packets or packets_of(clock=clock), link=101))
    return path


def decoded(path, observer=""):
    known = {"ports": protocols.ports() | {THERE: "relink"}, "sniff": protocols.sniff, "dialect": protocols.dialect}
    found = {name: [] for name in TABLES}
    decoder = Decoder(DecodeOptions())
    source = msgspec.structs.replace(identify(str(path)), observer=observer)
    for batches in [*(decoder.feed(block) for block in read(source, **known)), decoder.finish()]:
        for name, made in batches.items():
            found[name] += [pa.Table.from_batches([batch]).cast(TABLES[name].schema) for batch in made]
    return {name: pa.concat_tables(parts) if parts else TABLES[name].schema.empty_table() for name, parts in found.items()}


def built(lake: Path, batches):
    """A lake of these batches, refreshed after each."""
    in_process.create(lake)
    for tables in batches:
        in_process.add(lake, tables)
        in_process.refreshed(lake, OFTEN)
    snapshot.publish(lake)
    return lake


def indexed(lake):
    """Compute the index of a lake, as tasks do."""
    newest = delta.batch(lake, table("ledger"))
    names = sorted({file.path for each in INPUTS for file in delta.entries(lake, each)})
    written = index._write(lake, 1, newest, names)
    for each in INDEX_TABLES:
        delta.append(lake, each, [written[each.name]], newest)


def rows(lake, name):
    return delta.dataset(lake, table(name)).to_table().to_pylist()


def totals(lake):
    """All that sums of a lake say."""
    metrics = delta.dataset(lake, table("metrics")).to_table()
    with opened(lake) as connection:
        counted = {
            name: connection.execute(f"select count(*) from {name}").fetchone()[0]
            for name in ("messages", "exchanges", "violations", "sessions", "quarantine")
        }
    pairs = [{key: value for key, value in row.items() if not key.endswith("_seen")} for row in rows(lake, "topology")]
    return {name: pc.sum(metrics[name]).as_py() for name in SUMS}, counted, pairs


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """Name -> the rows of one observer of the same link."""
    folder = tmp_path_factory.mktemp("views")
    return {
        "client": decoded(told(folder / "client.pcapng", "client")),
        "server": decoded(told(folder / "server.pcapng", "server", clock=700)),
        "old client": decoded(told(folder / "old.pcapng", "client", observer="", clock=-300)),
        "wire": decoded(captured(folder / "wire.pcap", clock=200)),
        "other wire": decoded(captured(folder / "other.pcap", clock=400), "the router"),
    }


def test_any_set_of_views_gives_the_totals_of_one(views, tmp_path, without_spark):  # noqa: F811
    wanted = totals(built(tmp_path / "one", [views["client"]]))
    assert wanted[0]["requests"] == 6
    for count in (1, 2, 3, 5):
        for number, chosen in enumerate(itertools.islice(itertools.combinations(views, count), 0, None, 1 if count == 1 else 3)):
            lake = built(tmp_path / f"{count}-{number}", [views[name] for name in chosen])
            assert totals(lake) == wanted, chosen
            sessions = rows(lake, "sessions")
            assert len(sessions) == len({row["session_id"] for row in sessions}) == count, chosen
            assert [row["is_primary"] for row in sessions].count(True) == 1
            assert len({row["link"] for row in sessions}) == 1


def test_gold_does_not_depend_on_the_order_of_observers(views, tmp_path, without_spark):  # noqa: F811
    some = [views[name] for name in ("client", "server", "wire")]
    orders = [built(tmp_path / str(number), order) for number, order in enumerate(itertools.permutations(some))]
    whole = {name: pa.concat_tables([one[name] for one in some]) for name in TABLES}
    found = [in_process.gold(lake) for lake in [*orders, built(tmp_path / "once", [whole])]]
    assert all(one == found[0] for one in found)


def test_nobody_is_accused_because_two_peers_recorded(views, tmp_path, without_spark):  # noqa: F811
    lake = built(tmp_path / "lake", [views["client"], views["server"]])
    alone = built(tmp_path / "alone", [views["client"]])
    for name in ("exchanges", "violations"):
        kept = [row["correlation_id" if name == "exchanges" else "rule"] for row in rows(lake, name) if row["is_primary"]]
        assert sorted(kept) == sorted(row["correlation_id" if name == "exchanges" else "rule"] for row in rows(alone, name))
    assert {row["observer_kind"]: row["requests"] for row in rows(lake, "sessions")} == {"client": 6, "server": 6}


def test_the_most_complete_view_is_primary(tmp_path, without_spark):  # noqa: F811
    whole = told(tmp_path / "client.pcapng", "client", observer="alice")
    part = told(tmp_path / "server.pcapng", "server", story=STORY[:-4], observer="bob")
    lake = built(tmp_path / "lake", [decoded(part), decoded(whole)])
    assert {row["observer"]: row["is_primary"] for row in rows(lake, "sessions")} == {"alice": True, "bob": False}


def test_clocks_ten_years_apart_change_no_total(views, tmp_path, without_spark):  # noqa: F811
    years = 10 * 365 * 86_400 * 10**6
    late = decoded(told(tmp_path / "late.pcapng", "server", clock=years))
    assert totals(built(tmp_path / "lake", [views["client"], late])) == totals(built(tmp_path / "one", [views["client"]]))


def test_files_of_a_rotated_recording_have_one_observer(tmp_path):
    now = [START_NS]
    with Recorder(tmp_path / "a.pcapng", protocol="emp", clock=lambda: now[0], max_bytes=400) as recorder:
        for port in range(1, 6):
            recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", 5040)).closed("bye")
    assert len(recorder.paths) > 1
    found = [decoded(path)["connections"]["observer"].to_pylist() for path in recorder.paths]
    assert {name for names in found for name in names} == {recorder.observer}


def test_two_recorders_have_two_names(tmp_path):
    names = {Recorder(tmp_path / f"{number}.pcapng").observer for number in range(9)}
    assert len(names) == 9


def test_messages_of_other_views_are_found_and_left_out(views, tmp_path, without_spark):  # noqa: F811
    lake = built(tmp_path / "lake", [views["client"], views["server"]])
    every, counted = (query(lake, f"select count(*) n from {name}")["n"][0].as_py() for name in ("every_messages", "messages"))
    assert every == 2 * counted == 50
    with opened(lake) as connection:
        assert connection.execute("select count(*) from messages").fetchone()[0] == counted
        assert connection.execute(every_view("select count(*) FROM messages")).fetchone()[0] == every


def test_a_lake_of_format_2_is_read_and_its_gold_tables_are_rebuilt(tmp_path, without_spark, caplog):  # noqa: F811
    """Both ends of one link were recorded: format 2 had one history of them."""
    with tarfile.open(Path(__file__).parent / "lakes" / "format-2.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    lake = tmp_path / "lake"
    assert journal.format_of(lake) == 2
    before = query(lake, "select count(*) n, any_value(observer) o from messages").to_pylist()
    assert before == [{"n": 50, "o": None}]
    assert query(lake, "select count(*) n from sessions").to_pylist() == [{"n": 1}]
    with caplog.at_level("WARNING", "wirelake.lake"):
        commit.prepare(lake)
    assert [record.getMessage().partition(" is ")[2] for record in caplog.records] == [
        "of lake format 2: its tables get the columns of format 3, and its gold tables are rebuilt"
    ]
    assert journal.format_of(lake) == journal.FORMAT
    indexed(lake)
    in_process.refreshed(lake, OFTEN)
    snapshot.publish(lake)
    assert query(lake, "select count(*) n from every_messages").to_pylist() == [{"n": 50}]
    assert query(lake, "select count(*) n from messages").to_pylist() == [{"n": 25}]
    found = query(lake, "select observer, is_primary, requests from every_sessions order by 1").to_pylist()
    assert found == [
        {"observer": "client", "is_primary": False, "requests": 6},
        {"observer": "server", "is_primary": True, "requests": 6},
    ]
    assert query(lake, "select count(*) n from exchanges").to_pylist() == [{"n": 6}]
    assert query(lake, "select sum(messages) n from metrics").to_pylist() == [{"n": 25}]
    commit.prepare(lake)
    assert all(delta.batch(lake, each) == 2 for each in GOLD)


def compared(lake):
    with Database(lake) as database, database.connection() as connection:
        (primary,) = sessions.search(connection)
        return observers.compared(connection, primary)


def delayed(story, *, to_server, to_client):
    """The story as the server has it: so many microseconds later, or before the client hears it."""
    ahead = {"client": to_server / 1e6, "server": -to_client / 1e6}
    return sorted((seconds + ahead.get(who, 0), who, name, data) for seconds, who, name, data in story)


def test_what_two_observers_saw_is_shown_side_by_side(tmp_path, without_spark):  # noqa: F811
    """The clock of the server is a minute ahead; a message takes 3 ms to it, and 1 ms back."""
    story = delayed(STORY, to_server=3_000, to_client=1_000)
    near, far = (
        told(tmp_path / "client.pcapng", "client", observer="near"),
        told(tmp_path / "server.pcapng", "server", story=story[:-3], observer="far", clock=60_000_000),
    )
    first, second = compared(built(tmp_path / "lake", [decoded(near), decoded(far)]))
    assert (first.observer, first.is_primary, second.observer, second.is_primary) == ("near", True, "far", False)
    lost = sum(1 for *_, data in story[-3:] if data)
    assert (second.common, second.missing, second.more) == (first.messages - lost, lost, 0)
    assert second.problem is None
    assert second.offset_us == pytest.approx(60_000_000, abs=1_500)
    assert second.to_server_us + second.to_client_us == pytest.approx(4_000, abs=10)


def test_clocks_that_no_offset_explains_are_named(tmp_path, without_spark):  # noqa: F811
    """What the client sent arrived before it was sent, and so did the answers."""
    story = delayed(STORY, to_server=-3_000, to_client=-1_000)
    near, far = told(tmp_path / "a.pcapng", "client", observer="near"), told(tmp_path / "b.pcapng", "server", story=story, observer="far")
    *_, other = compared(built(tmp_path / "lake", [decoded(near), decoded(far)]))
    assert other.problem == "the clocks contradict each other by 4.000 ms: no offset explains them, so no delay is shown"
    assert (other.missing, other.more, other.to_server_us) == (0, 0, None)


def test_clocks_ten_years_apart_are_named_in_one_line(views, tmp_path, without_spark):  # noqa: F811
    years = 10 * 365 * 86_400 * 10**6
    late = decoded(told(tmp_path / "late.pcapng", "server", clock=years))
    *_, other = compared(built(tmp_path / "lake", [views["client"], late]))
    assert (other.missing, other.more) == (0, 0)
    assert other.problem == "the clocks are 3,650.0 days apart: set them, or read times of one observer only"


def together(paths, *, cuts=1):
    """The rows of captures of one ingest, or of one that follows them while they grow, so many micro-batches long."""
    looks = sorted((plan.beginning(identify(str(path))) for path in paths), key=lambda look: (look.begins, look.source.path))
    sources = [msgspec.structs.replace(look.source, begins=look.begins) for look in looks]
    ports = protocols.ports() | {THERE: "relink"}
    found = {name: [] for name in TABLES}
    assembly, decoder = Assembly(ports, protocols.sniff, protocols.dialect), Decoder(DecodeOptions())
    steps = [list(read_split(*read_tasks(source, [], rank), ports=ports, window=1 << 10)) for rank, source in enumerate(sources)]
    for cut in range(cuts):
        items = [item for some in steps for item in some[len(some) * cut // cuts : len(some) * (cut + 1) // cuts]]
        is_end = cut + 1 == cuts
        for rows_of in pipeline.decode(items, decoder, assembly, is_end=is_end):
            for name, made in rows_of.rows.items():
                found[name] += [pa.Table.from_batches([batch]).cast(TABLES[name].schema) for batch in made]
        if not is_end:
            assembly = Assembly.put(assembly.take(), ports, protocols.sniff, protocols.dialect)
    return {name: pa.concat_tables(parts) if parts else TABLES[name].schema.empty_table() for name, parts in found.items()}


@pytest.mark.parametrize("cuts", [1, 3])
def test_captures_that_overlap_are_of_two_observers_even_in_one_folder(views, tmp_path, without_spark, cuts):  # noqa: F811
    paths = [captured(tmp_path / "a.pcap"), captured(tmp_path / "b.pcap", clock=400), captured(tmp_path / "c.pcap", clock=900)]
    lake = built(tmp_path / "lake", [together(paths, cuts=cuts)])
    assert totals(lake) == totals(built(tmp_path / "one", [views["client"]]))
    sessions = rows(lake, "sessions")
    assert [row["messages_to_server"] for row in sessions] == [12, 12, 12]
    assert len({row["observer"] for row in sessions}) == 3
    assert [row["is_primary"] for row in sessions].count(True) == 1


@pytest.mark.parametrize("cuts", [1, 3])
def test_files_of_a_rotated_capture_are_one_observer(views, tmp_path, without_spark, cuts):  # noqa: F811
    """The second file begins in the middle of a connection, and the third in the next one."""
    packets = packets_of()
    edges = [0, 12, 27, len(packets)]
    paths = [captured(tmp_path / f"{first}.pcap", packets[first:end]) for first, end in itertools.pairwise(edges)]
    assert {name for path in paths[1:] for name in decoded(path)["quarantine"]["reason"].to_pylist()} == {"ID_SIZES_UNKNOWN"}
    lake = built(tmp_path / "lake", [together(paths, cuts=cuts)])
    assert totals(lake) == totals(built(tmp_path / "one", [views["client"]]))
    (session,) = rows(lake, "sessions")
    assert (session["messages_to_server"], session["connections"], session["link"]) == (12, 2, None)


def test_the_page_and_the_command_of_each_session_compare_its_observers(tmp_path, without_spark, capsys):  # noqa: F811
    ends = [decoded(told(tmp_path / f"{role}.pcapng", role, observer=f"the {role}")) for role in ("client", "server")]
    lake = built(tmp_path / "lake", ends)
    ids = [row["session_id"].hex() for row in rows(lake, "sessions")]
    assert len(ids) == 2
    with served(lake) as address:
        for session_id in ids:
            assert run(["session", str(lake), session_id]) == 0
            shown = capsys.readouterr().out
            page = urlopen(f"{address}/sessions/{session_id}?view=transcript").read().decode()  # noqa: S310 - our own server
            for text in (shown, page):
                assert "the client" in text
                assert "the server" in text
            assert "seen by the client (client): 25 messages; 0 missing, 0 more" in shown
            assert page.count("/messages/") >= 25


def test_a_name_that_was_given_is_kept_with_the_source(tmp_path, without_spark):  # noqa: F811
    """The rest of a file keeps it, whatever a later ingest says. A file that is read again gets the new one."""
    known, fresh = (identify(str(told(tmp_path / f"{name}.pcapng", name))) for name in ("client", "server"))
    lake = built(tmp_path / "lake", [decoded(known.path, "bob")])
    for name in ("ledger", "messages", "relink", "connections", "exchanges", "sessions"):
        assert {row["observer"] for row in rows(lake, name)} == {"bob"}, name
    rest = intake.named(lake, intake.Plan(fresh=[known, fresh], read={known.id: 9}), "alice")
    assert [source.observer for source in rest.fresh] == ["bob", "alice"]
    removal = Removal(frozenset([known.id]), frozenset([known.path]))
    for given, wanted in (("alice", ["alice", "alice"]), ("", ["bob", ""])):
        again = intake.named(lake, intake.Plan(fresh=[known, fresh], removal=removal), given)
        assert [source.observer for source in again.fresh] == wanted
    (position,) = positions(lake).all
    assert Follower([position], observer="alice").latest(Offset(), [known.path], Limits()).files[0].observer == "bob"
    assert Follower(observer="alice").latest(Offset(), [known.path], Limits()).files[0].observer == "alice"
