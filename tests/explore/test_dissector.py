"""Dissectors in Debian's tshark: fields are the columns of our rows, for every vector, for random messages and for broken ones."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from tests import cases
from tests.capture.build import Talk, pcap
from tests.conformance.harness import OWN, directory
from tests.explore import random_messages, wireshark
from tests.explore.wireshark import needs_tshark, tshark
from tests.fuzz import mutating, seeds
from tests.lake import broken_sessions
from tests.lake import test_websocket as websocket
from tests.lake.relink_recording import Tape, tell
from tests.lake.relink_sessions import STORY, record

from wirelake import protocols
from wirelake.capture.record.recorder import Recorder
from wirelake.cli.main import app
from wirelake.errors import UsageError
from wirelake.explore.dissector.generate import MARK, dissector, names
from wirelake.explore.dissector.write import file_name
from wirelake.protocols.emp.messages import Compression, Data, Scheme
from wirelake.protocols.emp.wire import encode as emp_encode
from wirelake.protocols.kernel import use_plain
from wirelake.protocols.relink.messages import Reply, Request, Version
from wirelake.protocols.relink.wire import encode
from wirelake.protocols.wolpertinger import wire as wolpertinger_wire
from wirelake.protocols.wolpertinger.messages import Envelope

PROTOCOLS: Final = ("emp", "event_mesh", "relink", "yamp", "wolpertinger")
FAST: Final = 400
"""Random messages of each protocol in `make test`."""
MANY: Final = 20_000
"""The same in the long test: 100,000 of all."""
START_NS: Final = 1_700_000_000 * 10**9


@pytest.fixture(autouse=True, scope="module")
def _plain_scanners() -> Iterator[None]:
    use_plain()
    yield
    use_plain(False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder, with the dissectors where Wireshark looks for plugins."""
    return tmp_path_factory.mktemp("home")


def check(home: Path, capture: Path, protocol: str, at_least: int, *arguments: str) -> tuple[int, int]:
    """Compare all messages of a capture; returns how many messages and values were equal."""
    messages, values, found = wireshark.differences(protocol, capture, wireshark.shown(home, capture, protocol, *arguments))
    assert not found, "\n".join(found[:20])
    assert messages >= at_least
    return messages, values


def test_every_protocol_with_a_layout_has_a_dissector() -> None:
    assert names() == PROTOCOLS == protocols.names()[:5]


def vectors(protocol: str) -> list[bytes]:
    """The bytes of every vector of messages."""
    wires = []
    for folder in (directory(), OWN):
        path = folder / f"{protocol.replace('_', '-')}.json"
        for one in json.loads(path.read_text()) if path.exists() else []:
            wires += [bytes.fromhex(one["hex"])] if "hex" in one else [each.encode("latin-1") for each in one.get("wire") or ()]
    return [wire for wire in wires if wire]


def record_vectors(path: Path, protocol: str) -> int:
    """A recording with a connection for each vector, whose last bytes it is; returns how many there are.

    Both sides send every vector. On a link with ids of each size they do so in turn.
    """
    now = [START_NS]

    def clock() -> int:
        now[0] += 1_000_000
        return now[0]

    openings = [(b"", b"")]
    if protocol == "relink":
        reply = encode(Version()) + encode(Reply(1_700_000_000_000_000, 7))
        openings += [(encode(Version()) + encode(Request("demo", size, size)), reply) for size in (0, 1, 2, 4, 8, 16)]
    count = 0
    with Recorder(path, protocol=protocol, clock=clock) as recorder:
        for number, wire in enumerate(vectors(protocol)):
            ending = b"" if protocol != "wolpertinger" or wire.endswith(b"\n") else b"\n"
            for role in ("client", "server"):
                for first, second in openings if len(openings) == 1 or role == ("client", "server")[number % 2] else openings[:1]:
                    transport = "udp" if protocol == "event_mesh" else "tcp"
                    one = recorder.connection(role=role, transport=transport, local=("10.0.0.1", 5), remote=("10.0.0.2", 6))
                    if first:
                        (one.sent if role == "client" else one.received)(first)
                        (one.received if role == "client" else one.sent)(second)
                    one.sent(wire + ending)
                    one.closed("eof")
                    count += 1
    return count


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_vector_has_the_fields_of_our_row(tmp_path: Path, home: Path, protocol: str) -> None:
    capture = tmp_path / "vectors.pcapng"
    count = record_vectors(capture, protocol)
    assert count > 40
    check(home, capture, protocol, count)


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_messages_have_the_fields_of_our_rows(tmp_path: Path, home: Path, protocol: str) -> None:
    check(home, random_messages.recording(tmp_path / "a.pcapng", protocol, 7, FAST), protocol, FAST - 50)


@needs_tshark
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hundred_thousand_messages_have_the_fields_of_our_rows(tmp_path: Path, home: Path, protocol: str) -> None:
    messages, values = check(home, random_messages.recording(tmp_path / "a.pcapng", protocol, 99, MANY), protocol, MANY - 500)
    print(f"{protocol}: {messages} messages, {values} values are equal")


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("port", ["default", "other"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_packets_are_put_together_on_any_port(tmp_path: Path, home: Path, protocol: str, port: str) -> None:
    """Segments are cut anywhere. On another port the protocol is recognised by its first bytes."""
    number = protocols.get(protocol).port if port == "default" else 31_999
    check(home, random_messages.packets(tmp_path / "a.pcap", protocol, 3, number), protocol, 30)


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["emp", "relink", "yamp", "wolpertinger"])
def test_a_second_pass_shows_the_same(tmp_path: Path, home: Path, protocol: str) -> None:
    """Wireshark dissects packets again and in any order: state of earlier messages must be that of the first pass."""
    capture = random_messages.packets(tmp_path / "a.pcap", protocol, 5, protocols.get(protocol).port)
    assert wireshark.shown(home, capture, protocol, "-2") == wireshark.shown(home, capture, protocol)


@needs_tshark
@pytest.mark.slow
def test_sessions_that_break_every_rule_of_relink_have_the_fields_of_our_rows(tmp_path: Path, home: Path) -> None:
    tape = Tape(tmp_path / "a.pcapng")
    for number, talk in enumerate(broken_sessions.relink_talks()):
        if number % 8 == 0 or number > 500:
            tell(tape, talk)
    tape.recorder.close()
    check(home, tape.path, "relink", 500)
    check(home, story(tmp_path), "relink", 10)


def story(folder: Path) -> Path:
    """The story of one link over several connections."""
    path = folder / "story.pcapng"
    record(path, STORY)
    return path


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("port", [protocols.get("yamp").port, 31_999])
def test_yamp_inside_websockets_is_dissected(tmp_path: Path, home: Path, port: int) -> None:
    """Wireshark's own dissectors unwrap WebSocket, and hand over one message of it at a time."""
    speech, frame = websocket.speech, websocket.frame
    talk = Talk(server=("10.0.0.9", port)).open().say(0, websocket.REQUEST).say(1, websocket.RESPONSE)
    talk.say(0, frame(speech.handshake(1, b"msgpack"), mask=True)).say(1, frame(speech.handshake(1, b"msgpack")))
    talk.say(0, frame(speech.request(b"work", websocket.PACKED), mask=True))
    talk.say(1, frame(speech.response(websocket.UID, 0, websocket.PACKED, uri=b"work")))
    talk.say(0, frame(speech.close(b"enough"), mask=True))
    capture = tmp_path / "a.pcap"
    capture.write_bytes(pcap(talk.close().frames()))
    check(home, capture, "yamp", 5)


@needs_tshark
@pytest.mark.parametrize("seed", cases.seeds(6, test=1))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_broken_bytes_make_lua_fail(tmp_path: Path, home: Path, protocol: str, seed: int) -> None:
    """Mutants of recordings and captures; `tshark` checks that no error of Lua is shown."""
    dice = random.Random(f"{protocol} {seed}")
    talks = seeds.talks(protocol)
    capture = tmp_path / "broken.pcapng"
    with Recorder(capture, protocol=protocol) as recorder:
        for _ in range(150):
            one = recorder.connection(
                role=dice.choice(["client", "server"]),
                transport=dice.choice(["tcp", "xmpp"]) if protocol == "wolpertinger" else "tcp",
                local=("10.0.0.1", 5),
                remote=("10.0.0.2", 6),
                dialect=lambda protocol=protocol: protocols.get(protocol).dialects[: dice.randrange(2)],
            )
            for who, data in dice.choice(talks):
                mutant = bytearray(data)
                if dice.random() < 0.5:
                    mutant = mutating.cut_and_splice(dice, mutant, lambda: dice.choice(dice.choice(talks))[1])
                elif dice.random() < 0.5:
                    mutant = mutating.change_number(dice, mutant)
                (one.sent if who == "client" else one.received)(bytes(mutant[:30_000]))
    text = tshark(home, "-r", str(capture), "-V")
    assert f"[Protocols in frame: exported_pdu:{protocol}" in text


@needs_tshark
def test_a_fault_is_expert_information_that_names_its_clause(tmp_path: Path, home: Path) -> None:
    with Recorder(tmp_path / "a.pcapng", protocol="emp") as recorder:
        one = recorder.connection(role="client", local=("10.0.0.1", 5), remote=("10.0.0.2", 6))
        one.sent(bytes.fromhex("0000000c7f00000001000000"))
    text = tshark(home, "-r", str(tmp_path / "a.pcapng"), "-V")
    assert "[Expert Info (Error/Malformed): EMP-24: message types 6 to 127 are reserved (TYPE_RESERVED)]" in text


def bomb(protocol: str, size: int) -> bytes:
    """One message that is small on the wire, and this large in clear."""
    if protocol == "emp":
        return emp_encode(Data(gzip.compress(bytes(size), 9), (Compression(Scheme.GZIP),)))
    document = b"<RemoteMethodCall><ComponentName>a</ComponentName></RemoteMethodCall>"
    packed = gzip.compress(document + b" " * (size - len(document)), 9)
    return wolpertinger_wire.encode(Envelope(7, base64.b64encode(packed), len(packed))) + b"\n"


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "size"),
    [("emp", 1 << 20), ("emp", (1 << 20) + 1), ("emp", 15 << 20), ("wolpertinger", 1 << 20), ("wolpertinger", 15 << 20)],
)
def test_a_body_is_inflated_up_to_a_mebibyte_and_more_is_said(tmp_path: Path, home: Path, protocol: str, size: int) -> None:
    """One frame of 87 KB took 13.5 s and 1.7 GB."""
    with Recorder(tmp_path / "a.pcapng", protocol=protocol) as recorder:
        recorder.connection(role="client", local=("10.0.0.1", 5), remote=("10.0.0.2", 6)).sent(bomb(protocol, size))
    names = (f"{protocol}.{'plain_body' if protocol == 'emp' else 'document'}", f"{protocol}.fault", "_ws.expert.message")
    text = tshark(
        home, "-r", str(tmp_path / "a.pcapng"), "-Y", protocol, "-T", "fields", *(word for name in names for word in ("-e", name))
    )
    body, fault, note = text.rstrip("\n").split("\t")
    assert (len(body) // 2 if protocol == "emp" else len(body), fault) == (min(size, 1 << 20), "")
    assert ("Only the first 1048576 bytes are decompressed here: more is there" in note) == (size > 1 << 20)


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["dissector", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.stdout, done.stderr


def test_the_command_writes_a_file_for_each_protocol(tmp_path: Path) -> None:
    code, output, errors = run("-o", str(tmp_path / "plugins"))
    assert code == 0
    assert output.split() == [str(tmp_path / "plugins" / file_name(protocol)) for protocol in PROTOCOLS]
    assert errors.splitlines()[-1] == "Press Ctrl+Shift+L there, or start it again."
    assert "tshark -G folders" in errors
    for protocol in PROTOCOLS:
        text = (tmp_path / "plugins" / file_name(protocol)).read_text()
        assert text.startswith(MARK)
        assert f'Proto("{protocol}"' in text


def test_the_command_writes_only_chosen_protocols(tmp_path: Path) -> None:
    run("-o", str(tmp_path), "--protocol", "yamp", "--protocol", "event-mesh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wirelake_event_mesh.lua", "wirelake_yamp.lua"]


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    foreign = tmp_path / file_name("relink")
    foreign.write_text("-- mine")
    with pytest.raises(UsageError, match="--force"):
        run("-o", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [foreign.name]
    assert foreign.read_text() == "-- mine"
    run("-o", str(tmp_path), "--force")
    assert foreign.read_text().startswith(MARK)
    run("-o", str(tmp_path))  # our own files are


def test_an_unknown_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mqtt"):
        run("-o", str(tmp_path), "--protocol", "mqtt")


def test_lua_defines_every_name_that_it_uses() -> None:
    """A name in capital letters that is nowhere defined would be nil at run time."""
    for protocol in PROTOCOLS:
        text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', re.sub(r"--\[\[.*?\]\]|--.*", "", dissector(protocol)))
        defined = {name.strip() for names in re.findall(r"local ([A-Z_][A-Z0-9_, ]*) =", text) for name in names.split(",")}
        used = set(re.findall(r"(?<![.\w])[A-Z][A-Z0-9_]{2,}\b(?!\s*=)", text))
        assert used - defined <= {"ENC_UTF_8", "ENC_NA", "DESEGMENT_ONE_MORE_SEGMENT"}, protocol
