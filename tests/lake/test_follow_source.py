"""The stream of a folder as Spark sees it, without Spark: offsets that are JSON, limits, and what lies between two offsets."""

from __future__ import annotations

import json

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles
from tests.lake.following import PORTS, files, story

from wirelake.capture.blocks.transfer import from_batch
from wirelake.capture.files.growing import Offset
from wirelake.lake.sources.follow import Begin, EveryBucket, FollowReader, FollowSource


@pytest.fixture(autouse=True)
def _fast(_same_kernels):
    pass


def reader(tmp_path, **more) -> FollowReader:
    (tmp_path / "in").mkdir(exist_ok=True)
    begin = tmp_path / "begin.json"
    begin.write_bytes(msgspec.json.encode(Begin(Offset(), [])))
    told = {"folder": str(tmp_path / "in"), "begin": str(begin), "complete_after": "-inf", "buckets": "2"}
    options = told | {"ports": msgspec.json.encode(PORTS).decode()} | {name: str(value) for name, value in more.items()}
    made = FollowSource(options).streamReader(FollowSource(options).schema())
    assert isinstance(made, FollowReader)
    return made


def through_spark(offset: dict) -> dict:
    """What comes back of an offset."""
    return json.loads(json.dumps(offset))


def test_offsets_come_back_as_they_went_and_stay_while_nothing_is_new(tmp_path):
    stream = reader(tmp_path)
    start = through_spark(stream.initialOffset())
    assert through_spark(stream.latestOffset(start, ReadAllAvailable())) == start
    assert list(stream.partitions(start, start)) == []
    for number, part in enumerate(files(story(1, 1), 2)):
        (tmp_path / "in" / f"{number}.pcap").write_bytes(part)
    end = through_spark(stream.latestOffset(start, stream.getDefaultReadLimit()))
    assert [one["path"].rsplit("/", 1)[-1] for one in end["files"]] == ["0.pcap", "1.pcap"]
    assert json.dumps(stream.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    share, settling = stream.partitions(start, end)
    assert isinstance(settling, EveryBucket)
    assert [len(list(from_batch(batch))) for batch in stream.read(settling)] == [1, 1]
    sizes = {item.source.path: item.source.size for batch in stream.read(share) for item in from_batch(batch)}
    assert sum(sizes.values()) == sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    assert list(stream.partitions(end, end)) == []


def test_a_limit_that_spark_gives_is_honoured(tmp_path):
    stream = reader(tmp_path, max_files=1)
    for number, part in enumerate(files(story(1, 1), 3)):
        (tmp_path / "in" / f"{number}.pcap").write_bytes(part)
    start = stream.initialOffset()

    def read(limit) -> list[int]:
        return [one.get("at", 0) for one in stream.latestOffset(start, limit)["files"]]

    assert stream.getDefaultReadLimit() == ReadMaxFiles(1)
    assert [at > 0 for at in read(stream.getDefaultReadLimit())] == [True, False, False]
    assert [at > 0 for at in read(ReadMaxFiles(2))] == [True, True, False]
    assert all(read(ReadAllAvailable()))
    assert 0 < sum(read(ReadMaxBytes(3000))) < 3000 + 70_000
    assert reader(tmp_path, max_bytes=5).getDefaultReadLimit() == ReadMaxBytes(5)
    assert reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
