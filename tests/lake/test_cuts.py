"""What is decoded does not depend on how it was cut: hostile streams of every room, in blocks of any size, with the memory taken out and
put back in between, give the same rows to the byte."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.capture.build import Talk, ethernet, ipv4, pcap, udp
from tests.cases import seeds
from tests.lake.relink_sessions import EPOCH, LINK
from tests.lake.wolpertinger_sessions import asked, line, pieces, result
from tests.protocols.event_mesh import speech as mesh
from tests.protocols.relink import speech as relink
from tests.protocols.test_websocket import REQUEST, RESPONSE, frame
from tests.protocols.test_xmpp import HEADER
from tests.protocols.wolpertinger.pair import KEYS
from tests.protocols.yamp import speech as yamp

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.tables.catalog import SILVER, TABLES
from wirelake.protocols.emp.messages import Data, Hello, Ping, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.yamp.serializers.registry import STANDARD

PORTS = {5040: "emp", 5041: "yamp", 5042: "relink", 5043: "event_mesh", 5044: "wolpertinger"}
PACKED = STANDARD["msgpack"].serialize({"a": [1, 2, 3]})
Rows = dict[str, list[dict]]


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


def decoded(path, window: int = 8 << 20, dice: random.Random | None = None) -> Rows:
    """All rows of a file in order, the ledger as sums; with dice, another decoder goes on now and then with what one remembered."""
    out: Rows = {table.name: [] for table in SILVER}
    decoder = Decoder(DecodeOptions(), keyring=Keyring([KEYS]))
    source = identify(path)
    made = []
    for block in read(source, ports=PORTS, sniff=protocols.sniff, window=window):
        made.append(decoder.feed(block))
        if dice is not None and dice.random() < 0.3:
            made.append(decoder.rest())
            decoder = Decoder(DecodeOptions(), decoder_state=DecoderState.put(decoder.decoder_state.take()), keyring=Keyring([KEYS]))
    made.append(decoder.finish())
    for batches in made:
        for name, parts in batches.items():
            for part in parts:
                out[name] += pa.Table.from_batches([part]).cast(TABLES[name].schema).to_pylist()
    sums: dict[tuple[str, str], list[int]] = {}
    for row in out["ledger"]:
        mine = sums.setdefault((row["category"], row["reason"]), [0, 0])
        mine[0] += row["bytes"]
        mine[1] += row["items"]
    out["ledger"] = [{"what": what, "sums": both} for what, both in sums.items() if any(both)]
    assert sum(both[0] for both in sums.values()) == source.size
    return {name: sorted(rows, key=repr) for name, rows in out.items()}


def noise(dice: random.Random) -> bytes:
    """What is no message, sometimes a lot of it."""
    return dice.randbytes(dice.choice([1, 7, 8, 40, 500, 5_000, 70_000] if dice.random() < 0.2 else [1, 7, 8, 40, 300]))


def hostile(dice: random.Random, opening: bytes, makers: list) -> bytes:
    """Messages with noise, halves and wrong bits between them."""
    out = [opening]
    for _ in range(dice.randint(5, 60)):
        one = dice.choice(makers)(dice)
        match dice.randrange(12):
            case 0:
                out.append(noise(dice))
            case 1:
                out.append(one[: dice.randrange(len(one))])
            case 2:
                spoilt = bytearray(one)
                spoilt[dice.randrange(len(one))] ^= 1 << dice.randrange(8)
                out.append(bytes(spoilt))
            case _:
                out.append(one)
    return b"".join(out)


def text(dice: random.Random) -> bytes:
    return b'{"n": %d}' % dice.randrange(10**6) + b" " * dice.choice([0, 10, 600, 9000] if dice.random() < 0.1 else [0, 10, 100])


EMP = [
    lambda dice: encode(Data(text(dice))),
    lambda dice: encode(Ping()),
    lambda dice: encode(Data(text(dice), (RequestResponse(True, dice.randrange(1, 99)),))),
]
YAMP = [
    lambda dice: yamp.event(b"e%d" % dice.randrange(9), text(dice)),
    lambda dice: yamp.request(b"work", PACKED),
    lambda dice: yamp.handshake(1, dice.choice([b"json", b"msgpack"])),
]
RELINK = [
    lambda dice: relink.message((b"aa",), (text(dice),)),
    lambda dice: relink.control(3, 1, (b"aa",), dice.randrange(99)),
    lambda dice: relink.GENERAL["ping"],
]
WOLPERTINGER = [
    lambda dice: line(asked(dice.randrange(99), "Echo", text(dice).decode()), dice.randrange(9), compress=dice.random() < 0.5),
    lambda dice: line(asked(dice.randrange(99)), dice.randrange(9), KEYS),
    lambda dice: b"".join(pieces(asked(dice.randrange(99), "Long", "x" * 900), dice.randrange(3), 200, dice.choice([None, KEYS]))),
    lambda dice: dice.choice(pieces(asked(1, "Long", "x" * 900), dice.randrange(3), 200)),
    lambda dice: result(dice.randrange(9)),
]


def stanzas(dice: random.Random, stream: bytes, who: str) -> bytes:
    """Lines as messages to, or from, two addresses, with other stanzas between them."""
    out = [HEADER]
    for one in stream.split(b"\n"):
        body = one.decode("latin-1").replace("&", "&amp;").replace("<", "&lt;").replace(";", "&#59;" if dice.random() < 0.1 else ";")
        peer = dice.choice(["bob@x/1", "carol@x"])
        told = f"<message {who}='{peer}'><body>{body}</body></message>".encode()
        out += [told, dice.choice([b"", b"", b"\n", b"<presence/>", b"<iq><x/></iq>", HEADER])]
        if dice.random() < 0.01:
            out.append(noise(dice))
    return b"".join(out)


def framed(dice: random.Random, opening: bytes, stream: bytes, *, mask: bool) -> bytes:
    """A stream in frames of a WebSocket, cut anywhere."""
    out, at = [opening], 0
    while at < len(stream):
        size = dice.choice([1, 3, 50, 400, 5000])
        out.append(frame(stream[at : at + size], mask=mask))
        at += size
        if dice.random() < 0.005:
            out.append(noise(dice))
    return b"".join(out)


def conversation(room: str, dice: random.Random) -> tuple[int, bytes, bytes]:
    """A port, and what client and server say."""
    match room:
        case "emp":
            return 5040, hostile(dice, encode(Hello()), EMP), hostile(dice, encode(Hello()), EMP)
        case "yamp":
            return 5041, hostile(dice, yamp.handshake(1, b"msgpack"), YAMP), hostile(dice, yamp.handshake(1, b"msgpack"), YAMP)
        case "websocket":
            client, server = (hostile(dice, yamp.handshake(1, b"json"), YAMP) for _ in range(2))
            return 5041, framed(dice, REQUEST, client, mask=True), framed(dice, RESPONSE, server, mask=False)
        case "wolpertinger":
            return 5044, hostile(dice, result(1), WOLPERTINGER), hostile(dice, result(1), WOLPERTINGER)
        case "xmpp":
            client, server = (hostile(dice, result(1), WOLPERTINGER) for _ in range(2))
            return 5044, stanzas(dice, client, "to"), stanzas(dice, server, "from")
    client = hostile(dice, bytes(8) + relink.request(b"demo", (2, 2)), RELINK)
    return 5042, client, hostile(dice, bytes(8) + relink.reply(EPOCH, LINK), RELINK)


def packets(room: str, dice: random.Random, count: int = 4) -> list[tuple[int, bytes]]:
    """Frames of some connections at once: lost, late, repeated, begun before the capture was."""
    talks: list[list[bytes]] = []
    for number in range(count):
        if room == "event_mesh":
            makers = [mesh.maced, mesh.signed, lambda: noise(dice), lambda: mesh.maced()[: dice.randrange(1, 30)]]
            talks.append(
                [ipv4("10.0.0.1", "10.0.0.2", udp(3000 + number, 5043, dice.choice(makers)()[:60_000]), protocol=17) for _ in range(20)]
            )
            continue
        port, *said = conversation(room, dice)
        talk = Talk(("10.0.0.1", 40_000 + number), ("10.0.0.2", port), first=dice.choice([1000, 2**32 - 300]))
        if dice.random() < 0.7:
            talk.open()
        left = [said[0], said[1]]
        while any(left):
            side = dice.randrange(2)
            size = dice.choice([1, 3, 40, 500, 1460, 1460, 20_000])
            chunk, left[side] = left[side][:size], left[side][size:]
            if chunk and dice.random() < 0.02:
                talk.next[side] += len(chunk)
            elif chunk:
                talk.say(side, chunk)
        if dice.random() < 0.5:
            talk.close()
        mine = [packet for _, packet in talk.packets]
        for _ in range(3):
            at = dice.randrange(len(mine) - 1)
            mine[at], mine[at + 1] = mine[at + 1], mine[at]
            mine.insert(dice.randrange(len(mine)), mine[dice.randrange(len(mine))])
        talks.append(mine)
    out = []
    while talks:
        one = dice.choice(talks)
        out.append(ethernet(one.pop(0)))
        if not one:
            talks.remove(one)
    return [(1_700_000_000_000_000 + number, packet) for number, packet in enumerate(out)]


@pytest.mark.parametrize("room", ["emp", "yamp", "websocket", "relink", "event_mesh", "wolpertinger", "xmpp"])
@pytest.mark.parametrize("seed", seeds(8, test=1))
def test_a_capture_gives_the_same_rows_in_blocks_of_any_size(tmp_path, room, seed):
    dice = random.Random(f"{room} {seed}")
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(packets(room, dice)))
    expected = decoded(path)
    assert expected["messages"]
    assert expected["quarantine"]
    for window in (1, dice.randrange(100, 3000), dice.randrange(3000, 100_000)):
        found = decoded(path, window, dice)
        for name, rows in expected.items():
            assert found[name] == rows, (name, window)


@pytest.mark.parametrize("room", ["emp", "yamp", "relink", "wolpertinger"])
@pytest.mark.parametrize("seed", seeds(4, test=1))
def test_a_recording_gives_the_same_rows_in_blocks_of_any_size(tmp_path, room, seed):
    dice = random.Random(f"{room} {seed}")
    path = tmp_path / "a.pcapng"
    with Recorder(path, protocol=room, clock=iter(range(10**18, 2 * 10**18, 10**6)).__next__) as recorder:
        talks = []
        for number in range(4):
            talk = recorder.connection(role="client", local=("127.0.0.1", 1000 + number), remote=("127.0.0.1", 1))
            talks.append((talk, list(conversation(room, dice)[1:])))
        while talks:
            talk, left = dice.choice(talks)
            side = dice.randrange(2)
            chunk, left[side] = left[side][:300], left[side][300:]
            if chunk:
                (talk.received if side else talk.sent)(chunk)
            if not any(left):
                talk.closed("eof")
                talks.remove((talk, left))
    expected = decoded(path)
    assert expected["messages"]
    for window in (1, dice.randrange(500, 5000), dice.randrange(5000, 50_000)):
        found = decoded(path, window, dice)
        for name, rows in expected.items():
            assert found[name] == rows, (name, window)


def test_a_memory_that_was_put_back_is_the_one_that_was_taken_out(tmp_path):
    dice = random.Random(1)
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(packets("relink", dice)))
    decoder = Decoder(DecodeOptions())
    waited = 0
    for block in read(identify(path), ports=PORTS, sniff=protocols.sniff, window=2000):
        decoder.feed(block)
        taken = decoder.decoder_state.take()
        again = DecoderState.put(taken)
        assert again.waiting == decoder.decoder_state.waiting
        assert again.take() == taken
        waited = max(waited, again.waiting)
    assert waited


@pytest.mark.parametrize("first", [0, 1])
def test_both_sides_of_a_link_are_heard_before_either_is_read(tmp_path, first):
    """Whichever side a capture shows first: packets are read by what the connector asked for, and all belong to the link."""
    said = [
        bytes(8) + relink.request(b"demo", (2, 2)) + relink.message((b"aa",), (b"one",)),
        bytes(8) + relink.reply(EPOCH, LINK) + relink.message((b"bb",), (b"two",)),
    ]
    talk = Talk(("10.0.0.1", 40_000), ("10.0.0.2", 5042)).open()
    for side in (first, 1 - first):
        for at in range(0, len(said[side]), 7):
            talk.say(side, said[side][at : at + 7])
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    for window in (1, 8 << 20):
        rows = decoded(tmp_path / "a.pcap", window)
        assert rows["quarantine"] == []
        names = {(row["direction"], row["type_name"]) for row in rows["relink"]}
        assert names >= {("to_server", "request"), ("to_server", "message"), ("to_client", "reply"), ("to_client", "message")}
        assert [row["payload"] for row in rows["relink"] if row["type_name"] == "message" and row["direction"] == "to_client"] == [[b"two"]]
        assert len({row["session_id"] for row in rows["messages"]}) == 1
        assert {row["session_id"] for row in rows["messages"]} != {row["connection_id"] for row in rows["messages"]}


def test_a_recording_of_a_link_goes_on_in_the_next_file(tmp_path):
    """The handshake is in the first file only: what it says holds in the second."""
    ticks = iter(range(10**18, 2 * 10**18, 10**6))
    with Recorder(tmp_path / "r.pcapng", protocol="relink", max_bytes=600, clock=ticks.__next__) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        talk.sent(bytes(8) + relink.request(b"demo", (2, 2)))
        talk.received(bytes(8) + relink.reply(EPOCH, LINK))
        for number in range(9):
            talk.sent(relink.message((b"aa",), (b"%d" % number,)))
        paths = recorder.paths
    assert len(paths) > 1
    decoder = Decoder(DecodeOptions())
    made = [decoder.feed(block) for path in paths for block in read(identify(path), ports=PORTS, sniff=protocols.sniff)]
    rows = [row for batches in (*made, decoder.finish()) for part in batches.get("relink", []) for row in part.to_pylist()]
    assert [row["payload"] for row in rows if row["type_name"] == "message"] == [[b"%d" % number] for number in range(9)]
    assert len({row["source"] for row in rows}) == len(paths)
