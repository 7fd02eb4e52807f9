"""Decoder state in a lake: stored whole, read as data, and refused when it is damaged or forged. Nothing in it is ever run."""

from __future__ import annotations

import ast
import os
import pickle
import random
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.capture.build import Talk, ethernet, ipv4, pcap, udp
from tests.lake.following import Bomb
from tests.lake.test_cuts import PORTS, packets
from tests.protocols.test_xmpp import HEADER
from tests.protocols.wolpertinger.pair import KEYS

import wirelake
from wirelake import protocols
from wirelake.capture.blocks import assembly_state
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.assembly_state import AssemblyState
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import read_split, read_tasks
from wirelake.capture.files.growing import Offset
from wirelake.capture.files.identity import identify
from wirelake.capture.packets.tcp_stream import LATE, Budget, Half
from wirelake.errors import LakeError, StateError
from wirelake.lake.decode import scan
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.decode.state_codec import StoredState
from wirelake.lake.decode.streams import GAP
from wirelake.lake.decode.websocket import ALIEN
from wirelake.lake.jobs.follow import follow
from wirelake.lake.store import delta, journal, state_file
from wirelake.lake.store.journal import Following
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols import kernel
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

ROOMS = ("emp", "yamp", "websocket", "relink", "event_mesh", "wolpertinger", "xmpp")
OPTIONS = DecodeOptions()
HOSTILE = [-1, 0, 1, 2, 3, 7, 13, 255, 256, 4096, 65_536, 2**31, 2**47, 2**48, 2**62, 2**63 - 1, 2**64 - 1, -(2**63), 1.5, float("nan")]
HOSTILE += [b"", b"\0", bytes(16), bytes(24), b"\xff" * 24, "", "fresh", "GAP", "relink", "event_mesh", True, False, None, [], {}]


@pytest.fixture(autouse=True)
def _fast(_same_kernels, monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


class Moment(NamedTuple):
    """The states between two parcels, and the parcel that comes next."""

    assembly: bytes
    decoder_state: bytes
    next: PacketBatch


def put(assembly: bytes, decoder_state: bytes) -> tuple[Assembly, Decoder]:
    known = (PORTS, protocols.sniff, protocols.dialect)
    return Assembly.put(assembly, *known), Decoder(OPTIONS, decoder_state=DecoderState.put(decoder_state), keyring=Keyring([KEYS]))


def go_on(assembly: Assembly, decoder: Decoder, parcel: PacketBatch) -> None:
    for block in (*assembly.feed(parcel), *assembly.rest()):
        decoder.feed(block)


@pytest.fixture(scope="module")
def moments(tmp_path_factory) -> list[Moment]:
    """States of every kind, of one capture in which every room is spoken."""
    dice = random.Random("states")
    said = [[packet for _, packet in packets(room, dice, 2)] for room in ROOMS]
    said.append([ethernet(ipv4("10.0.0.1", "10.0.0.9", udp(77, 78, b"who knows"), protocol=17))])
    talk = Talk(("10.0.0.7", 40_000), ("10.0.0.2", 5044)).open()
    for part in (HEADER, b"<message to='bob@x'><body>not fin", b"ished"):
        talk.say(0, part)
    said.append([packet for _, packet in talk.frames()])
    mixed = [one for turn in zip_longest(*said) for one in turn if one is not None]
    folder, packet_batches = tmp_path_factory.mktemp("state"), []
    for rank, (name, late, most) in enumerate((("a.pcap", 0, None), ("b.pcap", 7, 2))):  # another observer saw the beginning, too
        path = folder / name
        path.write_bytes(pcap([(1_700_000_000_000_000 + late + number, one) for number, one in enumerate(mixed)]))
        (work,) = read_tasks(msgspec.structs.replace(identify(path), begins=1), [], rank)
        packet_batches += [one for one in read_split(work, ports=PORTS, window=30_000) if isinstance(one, PacketBatch)][:most]
    assembly, decoder = Assembly(PORTS, protocols.sniff, protocols.dialect), Decoder(OPTIONS, keyring=Keyring([KEYS]))
    out = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirelake.protocols.kernel._use_compiled", True)
        for parcel, after in pairwise(packet_batches):
            go_on(assembly, decoder, parcel)
            out.append(Moment(assembly.take(), decoder.decoder_state.take(), after))
    return out


@pytest.mark.slow
def test_every_kind_of_state_is_stored_and_restored(moments):
    kinds = set()
    for moment in moments:
        assembly, decoder = put(moment.assembly, moment.decoder_state)
        assert assembly.take() == moment.assembly
        assert decoder.decoder_state.take() == moment.decoder_state
        stored = [
            msgspec.msgpack.decode(moment.assembly, type=AssemblyState),
            msgspec.msgpack.decode(moment.decoder_state, type=StoredState),
        ]
        stored += [msgspec.msgpack.decode(other, type=AssemblyState) for _, other in stored[0].others]
        kinds |= {name for state in stored for name in state.__struct_fields__ if getattr(state, name)}
        for one in stored[0].tracked:
            kinds |= {name for part in (one, *one.halves) for name in part.__struct_fields__ if getattr(part, name)}
        kinds |= {"inside websocket" for *_, one in stored[1].wrapped if one} | {"inside xmpp" for *_, one in stored[1].stanzas if one}
    assert kinds >= {*AssemblyState.__struct_fields__, *StoredState.__struct_fields__, "ahead", "recent", "held"}
    assert kinds >= {"inside websocket", "inside xmpp"}


def test_gaps_of_a_stream_are_stored():
    half = Half(Budget())
    half.opens_at(100)
    half.place(100, 1, 0, b"one")
    half.place(200, 2, 50, b"two")
    half.skip()
    half.place(300, 3, 90, b"three")
    state, budget = assembly_state._half_state(half), Budget()
    assembly_state._restore_half(again := Half(budget), state, budget)
    assert (budget.ahead, budget.remembered) == (5, 6)
    assert assembly_state._half_state(again) == state
    assert state.gaps
    assert [bit.what for bit in again.place(150, 4, 99, b"late")] == [LATE]


def key_ranges(value: object, path: tuple = ()) -> list[tuple]:
    """Paths to everything inside a value."""
    found = [path]
    if isinstance(value, list | dict):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += key_ranges(value[key], (*path, key))
    return found


def forged(content: bytes, dice: random.Random) -> bytes:
    """The same state with some values replaced, or some bits."""
    if dice.random() < 0.4:
        spoilt = bytearray(content)
        for _ in range(dice.choice([1, 1, 3])):
            spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
        return bytes(spoilt)
    if dice.random() < 0.1:
        return content[: dice.randrange(len(content))]
    value = msgspec.msgpack.decode(content)
    for _ in range(dice.choice([1, 1, 2])):
        *way, last = dice.choice(key_ranges(value)[1:])
        inside = value
        for key in way:
            inside = inside[key]
        old, new = inside[last], dice.choice(HOSTILE)
        if dice.random() < 0.8:
            new = dice.choice([one for one in HOSTILE if type(one) is type(old)] or HOSTILE)
        if isinstance(old, bytes) and dice.random() < 0.6:
            at, number = 8 * dice.randrange(len(old) // 8 + 1), dice.choice([-1, 0, 1, 500, 1 << 48, 2**63 - 1])
            placed = old[:at] + number.to_bytes(8, "little", signed=True) + old[at + 8 :]  # a number in an array
            new = dice.choice([old[:-1], old + b"\0", old * 2, bytes(len(old)), placed, placed, placed])
        elif type(old) is int and dice.random() < 0.5:
            new = old + dice.choice([-1, 1, 1 << 48])
        inside[last] = new
        value = msgspec.msgpack.decode(msgspec.msgpack.encode(value), strict=False)
    return msgspec.msgpack.encode(value)


def plainly(monkeypatch) -> None:
    """Kernels as Python runs them: an index that leads outside raises IndexError."""
    for name in protocols.names():
        scan.Scanner(name, OPTIONS.limits(name))
        scan._stride(name)
    plain = {one: kernel._over_views(one) for one in kernel._kernels}
    monkeypatch.setattr("wirelake.protocols.kernel._dispatchers", plain)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "count"), [("compiled", 100), ("plain", 40)])
def test_a_forged_state_is_refused_or_leads_nowhere_outside(moments, monkeypatch, how, count):
    dice = random.Random(how)
    if how == "plain":
        plainly(monkeypatch)
    refused = passed = 0
    while refused + passed < count:
        moment = dice.choice(moments[:: max(1, len(moments) // 4)])
        spoilt = [moment.assembly, moment.decoder_state]
        which = dice.randrange(2)
        spoilt[which] = forged(spoilt[which], dice)
        try:
            assembly, decoder = put(*spoilt)
        except StateError:
            refused += 1
            continue
        passed += 1
        go_on(assembly, decoder, moment.next)
        for block in assembly.finish():
            decoder.feed(block)
        decoder.finish()
        DecoderState.put(decoder.decoder_state.take())
    assert min(refused, passed) > count // 10


@pytest.mark.parametrize(
    ("name", "field", "value", "why"),
    [
        ("decoder_state", "origins", b"\xff" * 24, "pieces"),
        ("decoder_state", "data", b"", "bytes that wait are missing"),
        ("decoder_state", "sources", [], "spans are not in order"),
        ("decoder_state", "flows", [], "no flow of this number"),
        ("assembly", "flows", [(2**31, True)], "no flow of this number"),
        ("assembly", "waiting", [], "what waits is not what is said to wait"),
        ("assembly", "spans", [], "a place is in no span"),
    ],
)
def test_what_is_wrong_with_a_state_is_told(moments, name, field, value, why):
    kind, restore = (
        (StoredState, DecoderState.put) if name == "decoder_state" else (AssemblyState, lambda taken: put(taken, moments[0].decoder_state))
    )
    told = []
    for moment in moments:
        state = msgspec.msgpack.decode(getattr(moment, name), type=kind)
        setattr(state, field, value)
        try:
            restore(msgspec.msgpack.encode(state))
        except StateError as error:
            told.append(error.reason)
    assert any(why in one for one in told), told


def test_limits_are_those_of_the_ingest_that_reads_on(moments):
    """Kernels size their arrays by limits: a state must not bring its own."""
    for moment in moments:
        small = DecodeOptions(protocol_limits={"relink": {"max_parts": 7}, "emp": {"max_message_size": 5000}})
        decoder = Decoder(small, decoder_state=DecoderState.put(moment.decoder_state))
        for one in decoder.decoder_state.directions.values():
            if one.scan_limits and one.flow.protocol in small.protocol_limits:
                expected = small.limits(one.flow.protocol).for_scan()
                assert one.scan_limits[:4] == expected[:4]


def test_no_fault_is_called_like_a_gap():
    faults = {name for room in protocols.names() for name in protocols.get(room).faults.__members__}
    assert not faults & {GAP.name, ALIEN.name}


@pytest.mark.slow
def test_no_module_can_run_what_it_reads():
    """Stored bytes are data: no module of the package imports what would run them."""
    found = []
    for path in Path(wirelake.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
            unsafe = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "eval", "exec"}
            found += [(path.name, name) for name in names if name.split(".")[0] in unsafe]
    assert found == []


# Files.


@pytest.fixture
def lake(tmp_path):
    journal.initialise(tmp_path / "lake")
    journal.memories(tmp_path / "lake").mkdir()
    return tmp_path / "lake"


def restored(lake, name: str):
    return state_file.restored(lake, name, PORTS, protocols.sniff, protocols.dialect)


def test_a_state_is_read_from_the_file_it_was_written_to(lake, moments):
    name = state_file.write(lake, "00000001-0", *moments[-1][:2])
    state_file.check(lake, [name])
    assembly, decoder_state = restored(lake, name)
    assert (assembly.take(), decoder_state.take()) == moments[-1][:2]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_in_the_place_of_a_state_does_not_run(lake, tmp_path, protocol):
    bomb = pickle.dumps((Bomb(tmp_path / "ran"), b""), protocol)
    (journal.memories(lake) / "bomb").write_bytes(bomb)
    name = state_file.write(lake, "00000001-0", bomb, bomb)
    for each in ("bomb", name):
        with pytest.raises(LakeError, match=rf"_wirelake/memory/{each} .*FOLDER --again`"):
            restored(lake, each)
    for read in (restored, lambda lake, name: state_file.check(lake, [name])):
        why = "was written by an older wirelake, as code: it is not read" if protocol >= 2 else "is damaged: it is no decoder state"
        with pytest.raises(LakeError, match=why):
            read(lake, "bomb")
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)  # noqa: S301 - it would have run
    assert (tmp_path / "ran").exists()


def test_a_lake_of_an_older_version_is_refused_before_spark_starts(lake, tmp_path):
    for each in TABLES.values():
        delta.create(lake, each)
    (journal.memories(lake) / "bomb").write_bytes(pickle.dumps((Bomb(tmp_path / "ran"), b"")))
    journal.remember(lake, Following(Offset(), 1, {"0": "bomb"}))
    (tmp_path / "captures").mkdir()
    with pytest.raises(LakeError, match="memory/bomb was written by an older wirelake"):
        follow(lambda: pytest.fail("Spark was started"), lake, tmp_path / "captures")
    assert not (tmp_path / "ran").exists()


def test_a_state_of_a_newer_version_is_refused(lake):
    (journal.memories(lake) / "new").write_bytes(b"wirelake state 2\n whatever comes then")
    with pytest.raises(LakeError, match="memory/new was written by a newer wirelake"):
        restored(lake, "new")


def test_every_flipped_bit_and_every_cut_of_a_file_is_found(lake):
    assembly, decoder = Assembly(PORTS, protocols.sniff), Decoder(OPTIONS)
    name = state_file.write(lake, "00000001-0", assembly.take(), decoder.decoder_state.take())
    whole = (journal.memories(lake) / name).read_bytes()
    spoilt = [bytes([*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :]]) for at in range(len(whole)) for bit in range(8)]
    for content in (*spoilt, *(whole[:at] for at in range(len(whole))), whole + b"\0"):
        (journal.memories(lake) / "x").write_bytes(content)
        with pytest.raises(LakeError, match="memory/x "):
            restored(lake, "x")


@pytest.mark.timeout(20)
def test_what_is_no_file_does_not_hold_the_reader_up(lake):
    os.mkfifo(journal.memories(lake) / "pipe")
    (journal.memories(lake) / "folder").mkdir()
    with (journal.memories(lake) / "long").open("wb") as file:
        file.truncate(state_file.MAX_STATE + 1000)  # a sparse file: it takes no space
    for name, why in (
        ("pipe", "it is no file"),
        ("folder", "it is no file|it cannot be read"),
        ("long", "at most"),
        ("gone", "No such file"),
    ):
        with pytest.raises(LakeError, match=f"memory/{name} is damaged: .*({why})"):
            restored(lake, name)


@pytest.mark.parametrize("name", ["../format.json", "/etc/passwd", "", ".", "..", "a/b"])
def test_a_name_does_not_lead_out_of_its_folder(lake, name):
    with pytest.raises(LakeError, match="is no name of a file"):
        restored(lake, name)


def test_a_state_that_is_too_large_is_not_written(lake, monkeypatch):
    monkeypatch.setattr(state_file, "MAX_STATE", 100)
    with pytest.raises(LakeError, match=r"takes 20\d bytes, and at most 100"):
        state_file.write(lake, "00000001-0", bytes(100), bytes(100))
    assert list(journal.memories(lake).iterdir()) == []
