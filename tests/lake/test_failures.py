"""Files whose decoding fails, without Spark: they go to quarantine whole and are named, and all others are published."""

from __future__ import annotations

import gzip
import traceback
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from tests.capture.build import Talk, pcap
from tests.lake.test_micro_batches import BUCKETS, Transfers, lake_at

from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.errors import ErrorCode, LakeError
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.jobs import ingest
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.session.errors import coded, translated
from wirelake.lake.sources import failures
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.blocks import BlockReader, group_tasks
from wirelake.lake.sources.failures import Failure
from wirelake.lake.sources.intake import Plan
from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.store.commit import recover
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.emp.messages import Data
from wirelake.protocols.emp.wire import encode

PORTS = {5040: "emp"}
POISON = b"poison in a message"


@pytest.fixture(autouse=True)
def _fast(_same_kernels, monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


@pytest.fixture(params=["decoder", "reader", "end"])
def _poisonous(request, monkeypatch):
    """A bug that some bytes bring about: where they are decoded, where they are read, or when no more come."""
    feed, ship, finish = Decoder.feed, BlockReader._items, Decoder.finish

    def failing(self, block):
        if any(POISON in bytes(block.data[start:stop]) for start, stop, *_ in block.segments.tolist()):
            raise ZeroDivisionError("a bug")
        return feed(self, block)

    def unreadable(self, work):
        is_bad = POISON in Path(work.source.path).read_bytes() and not work.spoilt
        for item in ship(self, work):
            yield item
            if is_bad:
                raise ZeroDivisionError("a bug")

    def never_ending(self):
        if any(POISON in bytes(one.data) for one in self.decoder_state.directions.values()):
            raise ZeroDivisionError("a bug")
        return finish(self)

    if request.param == "decoder":
        monkeypatch.setattr(Decoder, "feed", failing)
    elif request.param == "reader":
        monkeypatch.setattr(BlockReader, "_items", unreadable)
    else:
        monkeypatch.setattr(Decoder, "finish", never_ending)


def capture(path, port: int, *texts: bytes):
    talk = Talk(("10.0.0.1", port)).open()
    for text in texts:
        talk.say(0, encode(Data(text)))
    talk.say(0, encode(Data(texts[-1] + b"!"))[:-1])  # it waits for more
    path.write_bytes(pcap(talk.frames()))
    return path


def ingested(lake, paths, *, strict=False) -> dict[str, str]:
    """What an ingest does with files, each attempt as Spark would."""
    todo = Plan(fresh=[identify(path) for path in paths])

    def attempt(name, quarantined, *, shuffle_all):
        journal.begin(lake, 1, todo.fresh, {}, name)
        notes = failures.folder(lake, name)
        plan = sources_plan.plan(todo.fresh, lambda cuts: [], 1, shuffle_all=shuffle_all, quarantined=quarantined)
        writer = TableWriter(lake, 1, DecodeOptions(), None, PORTS, name)
        written = []
        try:
            for read_tasks, buckets in ((plan.direct, 0), (plan.partitioned, BUCKETS)):
                reader = BlockReader(read_tasks, PORTS, buckets, notes)
                shipped = Transfers(batch for one in group_tasks(read_tasks) for batch in reader.read(one)).sortWithinPartitions(
                    "rank", "place"
                )
                for bucket in range(max(buckets, 1)):
                    written.append(writer.write(row for row in shipped.rows if row.column("bucket")[0].as_py() == bucket))
            writer.commit(written)
        except BaseException:
            writer.abort(written)
            recover(lake)
            raise

    failed = ingest._retry(lake, todo, attempt, strict=strict)
    journal.done(lake)
    return failed


def test_an_abort_removes_files_of_tasks_and_none_that_are_committed(tmp_path):
    """The driver may fail after a commit: what readers see stays."""
    lake = lake_at(tmp_path / "lake")
    source = identify(capture(tmp_path / "a.pcap", 1, b"one", b"two"))
    plan = sources_plan.plan([source], lambda cuts: [], 1)
    reader = BlockReader(plan.partitioned, PORTS, 1)
    rows = [row for one in group_tasks(plan.partitioned) for row in Transfers(reader.read(one)).rows]

    def written(writer):
        return [writer.write(iter(rows))]

    journal.begin(lake, 1, [source], {}, "first")
    first = TableWriter(lake, 1, DecodeOptions(), None, PORTS, "first")
    lost, kept = written(first), written(first)
    first.commit(kept)
    journal.done(lake)
    first.abort([*lost, *kept])
    messages = delta.folder(lake, TABLES["messages"])
    assert not (messages / lost[0].files["messages"].path).exists()
    assert (messages / kept[0].files["messages"].path).exists()
    assert delta.dataset(lake, TABLES["messages"]).count_rows() == 2


@pytest.mark.slow
@pytest.mark.usefixtures("_poisonous")
def test_a_file_that_cannot_be_decoded_goes_to_quarantine_and_the_others_are_published(tmp_path):
    good = [capture(tmp_path / f"{name}.pcap", 40_000 + ord(name), b"one", b"two") for name in "ac"]
    bad = capture(tmp_path / "b.pcap", 50_000, b"one", POISON)
    lake = lake_at(tmp_path / "lake")
    snapshot.begin(lake)
    with pytest.raises(LakeError, match=r"b\.pcap: decoder failed: ZeroDivisionError: a bug; nothing was published"):
        ingested(lake, [*good, bad], strict=True)
    assert delta.batch(lake, TABLES["ledger"]) is None
    assert ingested(lake, [*good, bad]) == {str(bad): "decoder failed: ZeroDivisionError"}
    rows = delta.dataset(lake, TABLES["quarantine"]).to_table().to_pylist()
    spoilt = [row for row in rows if row["source"] == str(bad)]
    assert b"".join(row["raw"] for row in spoilt) == bad.read_bytes()
    assert {(row["layer"], row["reason"]) for row in spoilt} == {("decoder", "decoder failed: ZeroDivisionError")}
    messages = delta.dataset(lake, TABLES["messages"]).to_table().to_pylist()
    assert sorted(row["source"] for row in messages) == sorted(map(str, good * 2))
    snapshot.publish(lake)
    assert check_ledger(lake).problems == ()
    assert not (lake / journal.FOLDER / "failures").exists()


def test_a_packed_file_that_cannot_be_decoded_is_accounted_for_as_it_lies(tmp_path, monkeypatch):
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(capture(tmp_path / "a.pcap", 40_000, b"one").read_bytes()))
    lake = lake_at(tmp_path / "lake")
    feed = Decoder.feed

    def failing(self, block):
        if len(block.segments):
            raise MemoryError
        return feed(self, block)

    monkeypatch.setattr(Decoder, "feed", failing)
    assert ingested(lake, [path]) == {str(path): "decoder failed: MemoryError"}
    (row,) = delta.dataset(lake, TABLES["quarantine"]).to_table().to_pylist()
    assert row["raw"] == path.read_bytes()


@pytest.mark.slow
def test_a_full_disk_is_nobody_s_fault(tmp_path, monkeypatch):
    path = capture(tmp_path / "a.pcap", 40_000, b"one")
    lake = lake_at(tmp_path / "lake")
    snapshot.begin(lake)

    def full(_self, _block):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Decoder, "feed", full)
    with pytest.raises(OSError, match="No space left"):
        ingested(lake, [path])
    assert delta.batch(lake, TABLES["ledger"]) is None


@pytest.mark.slow
@pytest.mark.parametrize("wording", ["as it is", "another"])
def test_a_recording_that_needs_a_shuffle_after_all_is_read_with_one(tmp_path, monkeypatch, wording):
    """Planning sees EMP in the first bytes; YAMP comes later. The code leads to the retry, the wording is free."""
    path = stateless_then_stateful(tmp_path / "a.pcapng")
    if wording == "another":
        reworded(monkeypatch)
    attempts = []
    real = sources_plan.plan

    def plan(*given, **more):
        attempts.append(more["shuffle_all"])
        return real(*given, **more)

    monkeypatch.setattr(sources_plan, "plan", plan)
    lake = lake_at(tmp_path / "lake")
    snapshot.begin(lake)
    assert ingested(lake, [path]) == {}
    assert attempts == [False, True]
    protocols = {row["protocol"] for row in delta.dataset(lake, TABLES["connections"]).to_table().to_pylist()}
    assert protocols == {"emp", "yamp"}
    snapshot.publish(lake)
    assert check_ledger(lake).problems == ()


def reworded(monkeypatch) -> None:
    """Give every failure of a task other words."""
    real = failures.fail

    def fail(notes, failure, detail=""):
        error = real(notes, Failure(failure.code, failure.sources, "other words"), "")
        assert error.code is failure.code
        return error

    monkeypatch.setattr(failures, "fail", fail)


def stateless_then_stateful(path: Path) -> Path:
    ticks = iter(range(10**18, 2 * 10**18, 10**6))
    with Recorder(path, clock=ticks.__next__) as recorder:
        first = recorder.connection(protocol="emp", role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        for _ in range(sources_plan.LOOK_BYTES // 1000 + 10):
            first.sent(encode(Data(bytes(1000))))
        recorder.connection(protocol="yamp", role="client", local=("127.0.0.1", 3), remote=("127.0.0.1", 4))
    return path


@pytest.mark.parametrize(
    "text", ["a sentence", "a sentence\nof two lines", "[WL-OTHER] a sentence", "wirelake.errors.LakeError: a sentence"]
)
@pytest.mark.parametrize("code", ErrorCode)
def test_a_code_survives_the_text_that_spark_makes_of_an_error(tmp_path, text, code):
    """Spark gives the driver a traceback as text; the driver takes code and sentence from it, and shows the sentence only."""
    error = LakeError(text)
    error.code = code
    with pytest.raises(LakeError) as caught, coded(), coded():
        raise error
    assert (str(caught.value), len(caught.value.__notes__)) == (text, 1)
    wrapped = f"Job aborted due to stage failure: Task 0 failed\n{''.join(traceback.format_exception(caught.value))}\n\tat org.apache.spark"
    with pytest.raises(LakeError) as translation, translated(tmp_path):
        raise PySparkException(wrapped)
    assert (str(translation.value), translation.value.code) == (" ".join(text.splitlines()), code)


def test_an_error_without_a_code_is_shown_in_one_line(tmp_path):
    text = "Job aborted\nTraceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device\n\n\tat org.apache"
    with (
        pytest.raises(LakeError, match=r"the Spark job failed: OSError: \[Errno 28\] No space left on device$") as translation,
        translated(tmp_path),
    ):
        raise PySparkException(text)
    assert translation.value.code is ErrorCode.OTHER
