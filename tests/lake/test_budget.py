"""The memory of a task: bombs of every protocol are decoded in batches of bounded size, and honest rows stay the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lake.wolpertinger_sessions import asked, line, pieces
from tests.protocols.relink import speech as relink
from tests.protocols.wolpertinger.pair import KEYS
from tests.protocols.yamp import speech as yamp

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.batches import SPOILT_ROWS, Overflow
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.emp.messages import Compression, Data, Hello
from wirelake.protocols.emp.wire import encode, pack
from wirelake.protocols.kernel import use_compiled
from wirelake.protocols.wolpertinger.trust.keyring import Keyring, log_line, read_log

MB = 1 << 20


@pytest.fixture(autouse=True)
def _fast(_same_kernels):
    use_compiled()


def recorded(path: Path, protocol: str, said: list[bytes], back: bytes = b"") -> Path:
    """A recording of what a client said, one record each; first of what it heard, if anything."""
    path.unlink(missing_ok=True)
    with Recorder(path) as recorder:
        connection = recorder.connection(protocol=protocol, role="client", local=("127.0.0.1", 40000), remote=("127.0.0.1", 5040))
        connection.sent(said[0])
        if back:
            connection.received(back)
        for data in said[1:]:
            connection.sent(data)
    return path


def decoded(
    path: Path, most: int = 1 << 40, keyring: Keyring | None = None, *, sink: bool = True
) -> tuple[dict[str, list[dict]], list[dict]]:
    """All rows by table; and of every step the rows and bytes of the tables it hands over."""
    rows: dict[str, list[dict]] = {name: [] for name in TABLES}
    steps: list[dict[str, tuple[int, int]]] = []

    def take(batches):
        steps.append({name: (sum(b.num_rows for b in made), sum(b.nbytes for b in made)) for name, made in batches.items()})
        for name, made in batches.items():
            for batch in made:
                rows[name] += pa.Table.from_batches([batch]).cast(TABLES[name].schema).to_pylist()

    decoder = Decoder(DecodeOptions(max_batch_bytes=most), keyring=keyring, sink=take if sink else None)
    source = identify(path)
    for block in read(source, ports=protocols.ports(), sniff=protocols.sniff):
        take(decoder.feed(block))
    take(decoder.finish())
    assert sum(row["bytes"] for row in rows["ledger"]) == source.size
    return rows, steps


def packed_lines(size: int, count: int) -> bytes:
    """Texts of wolpertinger whose payloads inflate to so many bytes."""
    one = line(bytes(size), 7, compress=True)
    assert one.count(b"message_id:7;") == 1
    return b"".join(one.replace(b"message_id:7;", b"message_id:%d;" % number) for number in range(count))


def emp_bombs(count: int, size: int) -> list[bytes]:
    return [encode(Hello()), encode(Data(pack(bytes(size)), (Compression(1),))) * count]


HONEST = {
    "emp": [encode(Hello()), *(encode(Data(pack(b'{"n": %d}' % n), (Compression(1),))) + encode(Data(b"x" * n)) for n in range(200))],
    "yamp": [yamp.handshake(1, b"json"), *(yamp.event(b"e", b'{"n": %d}' % n) for n in range(200))],
    "wolpertinger": [
        line(asked(1), 1),
        *(line(asked(n, "Echo", "tea " * n), n, compress=n % 2 == 0) for n in range(2, 60)),
        *(piece for n in range(60, 90) for piece in pieces(asked(n, "Echo", "tea " * 100), n, 200, KEYS, compress=True)),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", HONEST)
def test_honest_rows_are_the_same_however_small_the_batches_are(tmp_path, protocol):
    path = recorded(tmp_path / "talk.pcapng", protocol, HONEST[protocol])
    keyring = read_log(log_line(KEYS)) if protocol == "wolpertinger" else None
    whole, _ = decoded(path, keyring=keyring)
    parts, steps = decoded(path, 4000, keyring)
    assert parts == whole
    assert len(whole["messages"]) > 100
    assert {row["fault"] for row in whole["messages"]} == {None}
    assert sum("messages" in step for step in steps) > 3, "in several batches"
    assert decoded(path, 4000, keyring, sink=False)[0] == whole, "all at once, where there is no sink"


def test_bodies_that_inflate_to_more_than_a_batch_are_handed_over_in_several(tmp_path):
    """EMP-37 limits one message; 20 of them in a block were 1.1 GB."""
    rows, steps = decoded(recorded(tmp_path / "bombs.pcapng", "emp", emp_bombs(20, MB)), 4 * MB)
    assert [len(row["body"]) for row in rows["messages"][1:]] == [MB] * 20
    assert max(size for step in steps for _, size in step.values()) < 8 * MB


def test_payloads_that_inflate_to_more_than_a_batch_are_handed_over_in_several(tmp_path):
    rows, steps = decoded(recorded(tmp_path / "bombs.pcapng", "wolpertinger", [packed_lines(MB, 20)]), 4 * MB)
    assert [len(row["body"]) for row in rows["messages"]] == [MB] * 20
    assert max(size for step in steps for _, size in step.values()) < 8 * MB


def test_a_body_that_alone_inflates_to_more_than_the_budget_is_over_the_limit(tmp_path):
    """It stays a row with its fault and its bytes as on the wire; the messages around it are read."""
    said = [*emp_bombs(1, 3 * MB), encode(Data(b"after"))]
    rows, _ = decoded(recorded(tmp_path / "emp.pcapng", "emp", said), 2 * MB)
    assert [(row["fault"], row["body"]) for row in rows["messages"][1:]] == [("INFLATED_OVER_LIMIT", None), (None, b"after")]
    assert rows["emp"][1]["body"] == pack(bytes(3 * MB))
    said = [packed_lines(3 * MB, 1) + line(asked(2), 2)]
    rows, _ = decoded(recorded(tmp_path / "wolp.pcapng", "wolpertinger", said), 2 * MB)
    assert [row["fault"] for row in rows["messages"]] == ["INFLATED_OVER_LIMIT", None]


@pytest.mark.slow
def test_quarantine_rows_come_in_few_batches(tmp_path):
    """One Arrow batch a row made 28 s and 1.25 GB of 125 KB."""
    path = recorded(tmp_path / "faulty.pcapng", "wolpertinger", [b"\n" * 20_000])
    decoder = Decoder(DecodeOptions())
    made = [batch for block in read(identify(path), ports={}, sniff=protocols.sniff) for batch in decoder.feed(block).get("quarantine", [])]
    made += decoder.finish().get("quarantine", [])
    assert [batch.num_rows for batch in made] == [SPOILT_ROWS, SPOILT_ROWS, 20_000 - 2 * SPOILT_ROWS]
    rows, _ = decoded(path)
    assert len(rows["quarantine"]) == 20_000
    assert len({(row["source"], row["offset"], row["length"], row["layer"]) for row in rows["quarantine"]}) == 20_000


def test_a_multicast_to_65536_ids_without_bytes_is_set_aside(tmp_path):
    """RELINK-24: 8 bytes each, and a row of 65,536 ids each before."""
    bomb = b"\x47\x00\x00\x00" + (65_536).to_bytes(4, "little")
    path = recorded(tmp_path / "bomb.pcapng", "relink", [bytes(8) + relink.request(), bomb * 1000], bytes(8) + relink.reply(5, 6))
    rows, _ = decoded(path)
    assert [(row["reason"], len(row["raw"])) for row in rows["quarantine"]] == [("MULTICAST_OVER_LIMIT", 8000)]
    assert all(row["channel_id_count"] in (None, 0) for row in rows["relink"])


def test_rows_that_wait_on_disk_come_back_in_order():
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])

    def batch(n):
        return pa.record_batch([pa.array([n]), pa.array([f"name {n}"]).dictionary_encode()], names=["n", "name"])

    with Overflow("t", schema) as overflow:
        for _ in range(2):
            overflow.put({"t": [batch(1), batch(2)], "other": [batch(9)]})
            overflow.put({"t": [batch(3)]})
            assert [one.column(0)[0].as_py() for one in overflow.take({"t": [batch(4)]})] == [1, 2, 3, 4]
        assert list(overflow.take({})) == []


_LIMITED = """
import json, resource, sys
from pathlib import Path
from tests.lake.test_budget import decode_all
paths = sys.argv[2:]
decode_all(paths[0])
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]),) * 2)
print(json.dumps([decode_all(path) for path in paths[1:]]))
"""


def decode_all(path: str) -> list[int]:
    """How many messages and rows of quarantine a file has; nothing is kept."""
    use_compiled()
    counts = [0, 0]

    def take(batches):
        for index, name in enumerate(("messages", "quarantine")):
            counts[index] += sum(batch.num_rows for batch in batches.get(name, []))

    decoder = Decoder(DecodeOptions(max_batch_bytes=16 * MB), sink=take)
    for block in read(identify(path), ports=protocols.ports(), sniff=protocols.sniff):
        take(decoder.feed(block))
    take(decoder.finish())
    return counts


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_task_decodes_bombs_of_every_protocol_in_the_memory_it_has(tmp_path):
    """Each of these needs more than the limit if a block is decoded at once."""
    laughs = b"".join(b"\xd8\x1c\x8c" + b"\xd8\x1d" + bytes((n,)) + (b"\xd8\x1d" + bytes((n,))) * 11 for n in range(23))
    laughs = b"\x98\x18\xd8\x1c\x8c" + b"\x61a" * 12 + laughs
    multicast = b"\x47\x00\x00\x00" + (65_536).to_bytes(4, "little")
    talks = {
        "warm": recorded(tmp_path / "warm.pcapng", "emp", emp_bombs(1, 100)),
        "emp": recorded(tmp_path / "emp.pcapng", "emp", emp_bombs(15, 12 * MB)),
        "wolpertinger": recorded(tmp_path / "wolp.pcapng", "wolpertinger", [packed_lines(12 * MB, 15)]),
        "yamp": recorded(tmp_path / "yamp.pcapng", "yamp", [yamp.handshake(1, b"cbor"), yamp.event(b"e", laughs)]),
        "relink": recorded(
            tmp_path / "relink.pcapng", "relink", [bytes(8) + relink.request(), multicast * 1000], bytes(8) + relink.reply(5, 6)
        ),
    }
    limit = str(300 * MB)
    run = subprocess.run(
        [sys.executable, "-c", _LIMITED, limit, *map(str, talks.values())],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(("src", "."))},
    )
    assert run.returncode == 0, run.stderr.decode()[-2000:]
    assert json.loads(run.stdout) == [[16, 0], [15, 0], [2, 0], [4, 1]]
