"""Sources that leave a lake, or are read again: the lake is what it would be if it had only ever been so."""

import numpy as np
import pytest
from tests.capture.build import Talk, pcap
from tests.cases import each
from tests.lake.conftest import CASES, record
from tests.lake.empty_lake import fresh_lake
from tests.lake.hashing import hashes
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.test_ingest import TALK, blocks
from tests.lake.wolpertinger_sessions import record as record_wolpertinger

from wirelake import protocols
from wirelake.capture.blocks.block import Source
from wirelake.capture.files.growing import Offset, Position
from wirelake.capture.files.identity import identify
from wirelake.errors import LakeError
from wirelake.lake.decode.accounting import Waiting
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.jobs.forget import forget
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.sources import intake
from wirelake.lake.store import commit, delta, journal, snapshot, state_file
from wirelake.lake.store.check_lake import CHECKS, check_lake
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.store.journal import Following
from wirelake.lake.store.removal import Inventory, Removal, remainder
from wirelake.lake.tables.catalog import SILVER, table
from wirelake.protocols.emp.messages import Data
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.relink.handshake import HandshakeReader

BATCH = frozenset({"batch"})
"""What says when something was read: again is later."""


def sources(lake, name="messages"):
    return {row["source"].rsplit("/", 1)[-1] for row in delta.dataset(lake, table(name)).to_table(["source"]).to_pylist()}


@pytest.fixture
def two(tmp_path):
    """A lake whose first batch has a.pcapng and b.pcapng in one file of each table, and whose second has c.pcapng; without Spark."""
    lake = fresh_lake(tmp_path / "lake")
    snapshot.begin(lake)
    for number, names in enumerate((("a", "b"), ("c",)), 1):
        paths = [record(tmp_path / f"{name}.pcapng", TALK, 20_000 + 100 * ord(name)) for name in names]
        journal.begin(lake, number, [identify(path) for path in paths])
        task = TableWriter(lake, number, DecodeOptions())
        task.commit([task.write(batch for path in paths for batch in blocks(path))])
        journal.done(lake)
    snapshot.publish(lake)
    return lake


def test_only_files_with_rows_of_the_source_are_replaced_and_keep_their_batch(two, tmp_path):
    path = str(tmp_path / "a.pcapng")
    left = remainder(two, Removal(frozenset(Inventory(two).at(path)), frozenset({path})))
    for one in (table("messages"), table("emp"), table("connections"), table("ledger")):
        (old,), (new,) = left.removed[one.name], left.kept[one.name]
        assert delta.batches_of(two, one, old)[0] == delta.batches_of(two, one, new)[0] == 1
        rows = delta.dataset(two, one, [delta.folder(two, one) / new.path]).to_table()
        assert set(rows["source"].to_pylist()) == {str(tmp_path / "b.pcapng")}
        assert rows.num_rows == new.rows
    assert left.removed.keys() == left.kept.keys() == {"messages", "emp", "connections", "ledger"}


@each("spelling", ["path", "name", "id", "ID"])
def test_a_source_is_named_by_path_name_or_id(two, tmp_path, spelling):
    path = tmp_path / "b.pcapng"
    known = identify(path).id
    name = {"path": str(path), "name": "b.pcapng", "id": known.hex(), "ID": known.hex().upper()}[spelling]
    assert Inventory(two).named(name) == {known}


@each("name", ["nothing.pcap", "", "b", "00" * 8])
def test_a_source_that_is_not_there_is_told_with_one_that_is(two, name):
    with pytest.raises(LakeError, match=rf"has no source {name}: name one as column source .*a\.pcapng"):
        intake.forget(two, [name])


@pytest.mark.slow
def test_what_removes_rows_dies_and_is_finished_by_the_next_who_comes(two, tmp_path, monkeypatch):
    before = hashes(two)
    plan = intake.forget(two, ["a.pcapng", "c.pcapng"])
    append, done = delta.append, []

    def dying(*args):
        if len(done) == 2:
            raise LakeError("the plug was pulled")
        done.append(append(*args))

    left = remainder(two, plan.removal)
    journal.begin(two, 3, [], removed=left.removed, kept=left.kept)
    with monkeypatch.context() as patch:
        patch.setattr(delta, "append", dying)
        with pytest.raises(LakeError, match="the plug was pulled"):
            commit.publish(two, journal.prepare(two, {}))
    assert hashes(two) == before, "readers see the lake as it was"
    assert commit.recover(two) is True
    assert commit.recover(two) is False
    assert {name for each in ("messages", "connections", "ledger") for name in sources(two, each)} == {"b.pcapng"}
    assert hashes(two) == before
    snapshot.publish(two)
    assert check_ledger(two).problems == ()
    assert [known.source.path for known in intake.positions(two).all] == [str(tmp_path / "b.pcapng")]


@pytest.mark.slow
def test_what_was_only_begun_is_undone(two):
    before, plan = hashes(two), intake.forget(two, ["a.pcapng"])
    left = remainder(two, plan.removal)
    journal.begin(two, 3, [], removed=left.removed, kept=left.kept)
    assert commit.recover(two) is False
    assert hashes(two) == before
    assert all(path in delta.files(two, each) for each in SILVER for path in delta.folder(two, each).glob("*.parquet"))


def test_sources_that_share_a_connection_go_together_and_are_read_again(tmp_path):
    long = {"long": [*TALK["one"][:2], (6, "client", "data"), (12, "client", "bye"), (13, "closed", "bye")]}
    record(tmp_path / "x.pcapng", long, max_seconds=5)
    record(tmp_path / "y.pcapng", TALK, 30_000)
    paths = sorted(tmp_path.glob("*.pcapng"))
    assert [path.name for path in paths] == ["x-0001.pcapng", "x-0002.pcapng", "x.pcapng", "y.pcapng"]
    lake = fresh_lake(tmp_path / "lake")
    journal.begin(lake, 1, [identify(path) for path in paths])
    task = TableWriter(lake, 1, DecodeOptions())
    task.commit([task.write(batch for path in paths for batch in blocks(path))])
    journal.done(lake)
    plan = intake.forget(lake, ["x-0001.pcapng"])
    assert {path.rsplit("/", 1)[-1] for path in plan.removal.paths} == {"x.pcapng", "x-0001.pcapng", "x-0002.pcapng"}
    assert sorted(plan.reread) == sorted(source.path for source in plan.fresh) == [str(paths[1]), str(paths[2])]
    assert intake.forget(lake, ["x.pcapng", "x-0001.pcapng", "x-0002.pcapng"]).fresh == []
    assert sorted(source.path for source in intake.again(lake, [str(paths[1])]).fresh) == [str(path) for path in paths[:3]]
    paths[1].unlink()
    with pytest.raises(LakeError, match=r"x-0002\.pcapng cannot be read again .*: name it, too"):
        intake.forget(lake, ["x-0001.pcapng"])


def test_a_file_with_other_contents_takes_the_place_of_what_had_its_name(two, tmp_path):
    path = tmp_path / "c.pcapng"
    old = identify(path).id
    path.unlink()
    record(path, {"other": CASES["plain"]}, 50_000)
    assert intake.new(two, [str(path)]).changed == [str(path)]
    plan = intake.again(two, [str(path)])
    assert (plan.removal.ids, [source.path for source in plan.fresh], plan.changed) == ({old}, [str(path)], [])
    assert plan.fresh == [identify(path)]


def test_reading_again_what_was_never_read_is_reading_it(two, tmp_path):
    path = record(tmp_path / "new.pcapng", TALK, 60_000)
    plan = intake.again(two, [str(path)])
    assert (plan.removal, plan.fresh) == (None, [identify(path)])


def followed(lake, path, *, is_open=False, waiting=()):
    """The lake goes on with a folder in which this file is."""
    decoder_state, source = DecoderState(), identify(path)
    gone = delta.dataset(lake, table("connections")).to_table().to_pylist()
    mine, others = ({row["connection_id"] for row in gone if (row["source"] == str(path)) is own} for own in (True, False))
    for one in mine | others:
        decoder_state.handshakes[one], decoder_state.agreed[one, 1] = HandshakeReader(), "known"
        decoder_state.seen.add(np.frombuffer(one + source.id, np.uint8)[None])
    name = state_file.write(lake, "00000001-0", b"assembly", decoder_state.take())
    position = Position(str(path), source.id, 0, at=source.size, size=source.size, is_over=True)
    stays = Position("/elsewhere", b"12345678", 0)
    journal.remember(lake, Following(Offset((position, stays), 1, is_open), 1, {"0": name}, list(waiting)))
    return mine, others, stays


def test_following_forgets_positions_and_connections_of_what_goes(two, tmp_path):
    mine, others, stays = followed(two, tmp_path / "a.pcapng")
    now = intake.forget(two, ["a.pcapng"]).following
    assert now.offset.files == (stays,)
    assembly, taken = state_file.read(two, now.memories["0"])
    decoder_state = DecoderState.put(taken)
    assert assembly == b"assembly"
    assert mine
    assert others
    for kept in (set(decoder_state.handshakes), {key[0] for key in decoder_state.agreed}, {session for session, _ in decoder_state.seen}):
        assert kept == others
    assert journal.following(two).offset.files[1:] == (stays,), "nothing changes before the batch is published"


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"is_open": True}, {"waiting": [Waiting(Source("x", b"12345678", 9), 0, 9, 9)]}])
def test_nothing_is_removed_while_a_followed_folder_waits_for_more(two, tmp_path, how):
    followed(two, tmp_path / "a.pcapng", **how)
    with pytest.raises(LakeError, match=r"waits for more .*--follow FOLDER --once"):
        intake.forget(two, ["a.pcapng"])


@pytest.mark.slow
@pytest.mark.parametrize("waits", [(), ("a",)])
def test_reading_all_followed_files_again_needs_no_state(two, tmp_path, waits):
    """The way out when a state cannot be read, even while bytes wait."""
    source = identify(tmp_path / "a.pcapng")
    journal.memories(two).mkdir()
    (journal.memories(two) / "00000001-0-x").write_bytes(b"\x80\x05older")
    position = Position(source.path, source.id, 0, at=source.size, size=source.size)
    waiting = [Waiting(identify(tmp_path / f"{name}.pcapng"), 0, 9, 9) for name in waits]
    journal.remember(two, Following(Offset((position,), 4, is_open=True), 3, {"0": "00000001-0-x"}, waiting))
    assert intake.again(two, [source.path]).following == Following(Offset(settled=4), 3)
    with pytest.raises(LakeError, match="waits for more"):
        intake.again(two, [str(tmp_path / "c.pcapng")])
    settled = Following(Offset((position,), 4), 3, {"0": "00000001-0-x"})
    journal.remember(two, settled)
    with pytest.raises(LakeError, match=r"_wirelake/memory/00000001-0-x was written by an older wirelake, as code: .*FOLDER --again`"):
        intake.again(two, [str(tmp_path / "c.pcapng")])


@pytest.fixture(scope="module")
def scene(spark, tmp_path_factory):
    """x: conversations, a mesh with threats, noise; y: others, one of which began in x. Lakes with both, and with y alone."""
    folder = tmp_path_factory.mktemp("forget")
    some = {name: CASES[name] for name in ("plain", "unanswered", "spoke after bye", "cut")}
    long = {"long": [*TALK["one"][:2], (6, "client", "request 1"), (7, "server", "response 1"), (8, "closed", "bye")]}
    x = [record(folder / "x.pcapng", some), record_mesh(folder / "mesh.pcapng", STORY), folder / "noise.pcap"]
    x[2].write_bytes(b"not a capture at all" * 10)
    y = [record(folder / "y.pcapng", some, 30_000), record_wolpertinger(folder / "wolpertinger.pcapng")]
    x.append(record(folder / "long.pcapng", long, 40_000, max_seconds=5))
    y.append(folder / "long-0001.pcapng")
    ingest(spark, folder / "both", [*x, *y])
    ingest(spark, folder / "alone", y)
    return folder, x, y


@pytest.mark.timeout(900)
def test_a_lake_that_forgets_is_one_that_never_knew_though_it_dies_on_the_way(spark, scene, monkeypatch):
    folder, x, y = scene
    lake = folder / "both"
    before, yardstick = hashes(lake), hashes(folder / "alone", apart_from=BATCH)

    def dying(*_):
        raise LakeError("the plug was pulled")

    with monkeypatch.context() as patch:
        patch.setattr("wirelake.lake.gold.incremental.refresh.refresh", dying)
        with pytest.raises(LakeError, match="the plug was pulled"):
            forget(spark, lake, map(str, x))
    assert hashes(lake) == before, "readers see the lake as it was until gold tables are built"
    assert ingest(spark, lake, y).skipped == tuple(map(str, y))
    assert hashes(lake, apart_from=BATCH) == yardstick
    assert check_ledger(lake).problems == ()
    batches = {row["source"]: row["batch"] for row in delta.dataset(lake, table("ledger")).to_table().to_pylist()}
    assert batches == dict(zip(map(str, y), (1, 1, 2), strict=True)), "only what shares a connection is read again"

    gone = forget(spark, lake, [path.name for path in y])
    assert (gone.files, sorted(gone.removed), gone.reread) == (0, sorted(map(str, y)), ())
    seen = snapshot.current(lake)
    assert {name: seen.dataset(name).count_rows() for name in hashes(lake)} == dict.fromkeys(hashes(lake), 0)
    kinds = seen.dataset("runs").to_table(["run", "kind"]).sort_by("run")["kind"].to_pylist()
    assert kinds == ["ingest", "forget", "ingest", "forget"]
    assert [part.problems for part in check_lake(lake)] == [[]] * len(CHECKS)


@pytest.mark.timeout(900)
def test_what_is_read_again_is_as_if_it_were_read_for_the_first_time(spark, tmp_path):
    """With a port a connection becomes known that was not: it begins in the middle, and goes on in a second file."""
    talk = Talk(("10.0.0.1", 20_001), ("10.0.0.2", 6000)).open()
    for number in range(12):
        talk.say(0, encode(Data(b"%d" % number)))
    frames = talk.close().frames()
    paths = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    paths[0].write_bytes(pcap(frames[4:9]))
    paths[1].write_bytes(pcap(frames[9:]))
    other = record(tmp_path / "other.pcapng", TALK)
    lake, yardstick = tmp_path / "lake", tmp_path / "yardstick"
    ports = protocols.ports() | {6000: "emp"}
    ingest(spark, lake, [*paths, other], gold=False)
    ingest(spark, yardstick, [*paths, other], ports=ports)
    assert sources(lake) != sources(yardstick)
    result = ingest(spark, lake, paths, ports=ports, again=True)
    assert (result.files, sorted(result.removed), result.skipped) == (2, sorted(map(str, paths)), ())
    assert hashes(lake, apart_from=BATCH) == hashes(yardstick, apart_from=BATCH)
