"""Event Mesh from the command line: keys, decode with keys, and nodes that talk."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest
from tests.lake.mesh import ALICE, record
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, OTHER_NODE, PUBLIC, SECRET, SEED, maced, packet, signed, tlv

from wirelake.protocols.event_mesh.packet.builder import public_key_of

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]


def lines(done):
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def trust(tmp_path, wirelake):
    """A trust file with the node of the tests."""
    path = tmp_path / "mesh.keys"
    named = ("--node", NODE.hex(), "--key-id", AUTH.hex())
    done = wirelake("keys", "import", path, *named, "--public-key", PUBLIC.hex(), "--secret", stdin=SECRET.hex().encode())
    assert (done.code, done.talk) == (0, "")
    return path


def test_generated_keys_are_known_and_private(tmp_path, wirelake):
    own, trust = tmp_path / "own", tmp_path / "trust"
    done = wirelake("keys", "generate", own, trust, "--hmac", "--ed25519", "--key-id", "0000002a")
    node_id = str(uuid.UUID(done.out.decode().strip()))
    (listed,) = lines(wirelake("keys", "list", trust))
    assert (listed["node_id"], listed["auth_key_id"], listed["hmac"], listed["revoked_from"]) == (node_id, "0000002a", True, None)
    assert len(listed["public_key"]) == 64
    assert {path.stat().st_mode & 0o777 for path in (own, trust)} == {0o600}
    kept = json.loads(own.read_text())
    assert kept["secret"] not in wirelake("keys", "list", trust).out.decode()
    assert kept["seed"] not in trust.read_text()


def test_a_node_s_own_keys_are_not_overwritten_unasked(tmp_path, wirelake):
    own, trust = tmp_path / "own", tmp_path / "trust"
    wirelake("keys", "generate", own, trust)
    before = own.read_bytes()
    again = wirelake("keys", "generate", own, trust)
    assert (again.code, own.read_bytes()) == (64, before)
    assert "--force" in again.talk
    assert wirelake("keys", "generate", own, trust, "--force").code == 0
    assert own.read_bytes() != before


def test_a_file_that_others_may_read_is_refused(trust, wirelake):
    trust.chmod(0o644)
    done = wirelake("keys", "list", trust)
    assert done.code == 64
    assert "chmod 600" in done.talk


def test_a_key_is_revoked_from_a_time_on(trust, wirelake):
    assert wirelake("keys", "revoke", trust, "--node", NODE.hex(), "--key-id", AUTH.hex(), "--at", str(MADE + 5)).code == 0
    assert lines(wirelake("keys", "list", trust))[0]["revoked_from"] == MADE + 5
    before, after = (maced(message_id=1).hex(), maced(message_id=2, made=MADE + 5).hex())
    done = wirelake("decode", "event-mesh", "--hex", "--keys", trust, "--now", str(MADE + 4), stdin=f"{before}\n{after}\n".encode())
    first, second = lines(done)
    assert (first["verified"], second["rejected"]) == (True, "REVOKED_KEY")
    unknown = wirelake("keys", "revoke", trust, "--node", str(uuid.uuid4()))
    assert unknown.code == 64
    assert "UNKNOWN_KEY" in unknown.talk


def test_a_key_that_follows_another_holds_from_its_time_on(trust, wirelake):
    named = ("--node", NODE.hex(), "--key-id", AUTH.hex())
    done = wirelake("keys", "import", trust, *named, "--secret", "--from", str(MADE + 100), stdin=b"11" * 32)
    assert (done.code, done.talk) == (0, "")
    held = [(key["valid_from"], key["revoked_from"]) for key in lines(wirelake("keys", "list", trust))]
    assert held == [(0, MADE + 100), (MADE + 100, None)]


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--node", "nobody", "--public-key", PUBLIC.hex()], "not a UUID"),
        (["--node", NODE.hex()], "--public-key"),
        (["--node", NODE.hex(), "--public-key", "xyz"], "hex"),
        (["--node", NODE.hex(), "--public-key", "00" * 32], "EMM-32"),
        (["--node", NODE.hex(), "--key-id", "01", "--public-key", PUBLIC.hex()], "EMM-11"),
    ],
)
def test_keys_that_are_none_are_refused(tmp_path, wirelake, flags, word):
    done = wirelake("keys", "import", tmp_path / "new", *flags)
    assert done.code == 64
    assert word in done.talk
    assert not (tmp_path / "new").exists()


def test_decode_says_who_sent_a_packet_and_how_that_is_known(trust, wirelake):
    said = [signed(message_id=1), packet(tlv(1, b"clear"), message_id=2), signed(message_id=1)]
    done = wirelake(
        "decode", "event-mesh", "--hex", "--keys", trust, "--now", str(MADE), stdin="\n".join(one.hex() for one in said).encode()
    )
    first, second, third = lines(done)
    assert (first["verified"], first["node_id"], first["trust"]) == (True, str(uuid.UUID(bytes=NODE)), "store")
    assert (second["verified"], second["trust"]) == (False, "none")
    assert (third["rejected"], third["clause"]) == ("REPLAY", "EMM-23")
    assert done.code == 65


@pytest.mark.parametrize("now", ["1700000400", "2023-11-14T22:20:00Z", "2023-11-14T23:20:00+01:00"])
def test_time_is_said_as_people_say_it(trust, wirelake, now):
    (found,) = lines(wirelake("decode", "event-mesh", "--hex", "--keys", trust, "--now", now, stdin=maced().hex().encode()))
    assert found["rejected"] == "STALE"


def test_a_raw_file_is_one_datagram(tmp_path, wirelake):
    (tmp_path / "one").write_bytes(maced())
    (found,) = lines(wirelake("decode", "event-mesh", tmp_path / "one"))
    assert (found["type"], found["length"]) == ("event", len(maced()))
    (tmp_path / "none").write_bytes(b"")
    done = wirelake("decode", "event-mesh", tmp_path / "none")
    assert (lines(done)[0]["fault"], done.code) == ("SHORT_PACKET", 65)


def test_wrong_flags_are_told(trust, wirelake):
    for words, word in (
        (("decode", "emp", "--hex", "--keys", trust), "carry nothing to verify"),
        (("decode", "event-mesh", "--hex", "--now", "1"), "--keys"),
        (("decode", "event-mesh", "--hex", "--keys", trust, "--now", "noon"), "seconds since 1970"),
        (("decode", "event-mesh", "--hex", "--set", "max_payload=1"), "max_payload_size"),
        (("decode", "event-mesh", "--hex", "--set", "max_payload_size=many"), "max_payload_size"),
        (("call", "event-mesh", "udp://127.0.0.1:1", "x"), "does not know call"),
        (("send", "event-mesh", "tcp://127.0.0.1:1", "x"), "tcp"),
        (("send", "event-mesh", "udp://127.0.0.1:1", "x", "{bad"), "--text"),
        (("send", "event-mesh", "quic://127.0.0.1:1", "x"), "--cert"),
    ):
        done = wirelake(*words, stdin=b"")
        assert done.code == 64, words
        assert word in done.talk, (words, done.talk)


def test_encode_writes_what_decode_prints(wirelake):
    printed = wirelake("decode", "event-mesh", "--hex", stdin=maced().hex().encode()).out
    assert wirelake("encode", "event-mesh", "--hex", stdin=printed).out.decode().strip() == maced().hex()


@pytest.mark.slow
def test_a_node_hears_relays_and_records(tmp_path, wirelake):
    own, trust, record = tmp_path / "own", tmp_path / "trust", tmp_path / "node.pcapng"
    wirelake("keys", "generate", own, trust, "--hmac")
    serving = subprocess.Popen(
        [*WIRELAKE, "serve", "event-mesh", "udp://127.0.0.1:0", "--keys", str(trust), "--proven", "--record", str(record)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = serving.stderr.readline().split(" at ")[1].split(";")[0]
        sent = wirelake("send", "event-mesh", address, "plant.boiler", "42", "4.5", '{"a":1}', "x:00ff", "hallo", "--own", own)
        assert (sent.code, len(sent.out.strip())) == (0, 8)
        forged = wirelake("send", "event-mesh", address, "plant.boiler", "1")
        assert forged.code == 0
        shown = [json.loads(serving.stdout.readline()) for _ in range(4)]
    finally:
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=20)
    assert serving.returncode == 0
    (event,) = (one for one in shown if "event" in one)
    assert (event["event"], event["verified"], event["message_id"]) == ("plant.boiler", True, sent.out.decode().strip())
    assert sorted(map(str, event["content"])) == sorted(["42", "4.5", '{"a":1}', "00ff", "hallo"])
    assert [one["is"] for one in shown if "node" in one] == ["greeted"]
    assert [one["dropped"] for one in shown if "dropped" in one] == ["NOT_AUTHENTICATED"] * 2  # its hello, and its event
    assert "4 packets received, 1 events" in said
    assert "2 not-authenticated" in said
    assert record.stat().st_size > 300


@pytest.fixture
def serving():
    """Starts `wirelake serve event-mesh`; gives where it listens, and a function that reads the next event or drop that it prints."""
    running = []

    def start(*flags):
        one = subprocess.Popen(
            [*WIRELAKE, "serve", "event-mesh", "udp://127.0.0.1:0", *map(str, flags)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(one)
        port = int(one.stderr.readline().split(" at ")[1].split(";")[0].rpartition(":")[2])

        def following():
            return next(shown for shown in map(json.loads, one.stdout) if "node" not in shown)

        return ("127.0.0.1", port), following

    yield start
    for one in running:
        one.send_signal(signal.SIGINT)
        one.communicate(timeout=20)


def brought(seed, **more):
    """A packet signed by a key that it brings along."""
    public = tlv(0x13, public_key_of(seed))
    return signed(tlv(1, b"plant.x") + tlv(0x14, OTHER_NODE) + public, seed, tlv(1, b"plant.x") + public + tlv(0x14, OTHER_NODE), **more)


@pytest.mark.slow
def test_trust_freshness_and_relays_are_given_to_the_command(serving):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20)
        address, following = serving(
            *("--trust", "first-use", "--no-freshness"), "--relay", f"plant.> to=127.0.0.1:{peer.getsockname()[1]} types=3"
        )
        fresh = brought(SEED, message_id=1, made=int(time.time()))
        here.sendto(fresh, address)
        assert (said := following())["event"] == "plant.x"
        assert (said["verified"], said["trust"], said["sealed"]) == (True, "first-use", False)
        assert peer.recv(2048) == fresh
        here.sendto(brought(SEED, message_id=2), address)
        assert following()["time"] == MADE, "years old"
        here.sendto(brought(bytes(32), message_id=3), address)
        assert following()["dropped"] == "UNTRUSTED_KEY"
        any_key, others = serving("--trust", "in-band")
        for seed in (SEED, bytes(32)):
            here.sendto(brought(seed, made=int(time.time()), message_id=int.from_bytes(seed[:4])), any_key)
            assert others()["trust"] == "in-band"
        here.sendto(brought(SEED, message_id=9), any_key)
        assert others()["dropped"] == "STALE"


def test_read_trusts_the_keys_it_is_told_to(tmp_path, wirelake):
    """The first key is the first in the order of reading."""
    said = [brought(SEED, message_id=1), brought(bytes(32), message_id=2), brought(SEED, message_id=3), maced(message_id=4)]
    record(tmp_path / "x.pcapng", [(at, ALICE, "", data) for at, data in enumerate(said)])
    for trust, verified in (("store", [None] * 4), ("in-band", [True, True, True, None]), ("first-use", [True, False, True, None])):
        done = wirelake("read", tmp_path / "x.pcapng", "-T", "json", "--trust", trust)
        assert [one.get("verified") for one in lines(done) if one["type"] == "message"] == verified, trust


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("udp://127.0.0.1:1", "pattern"),
        ("", "empty pattern"),
        ("plan*", "whole levels"),
        ("> to=", "to=HOST:PORT"),
        ("> to=somewhere:1", "IP address"),
        ("> types=256", "types=NUMBER"),
        ("> twice", "twice"),
    ],
)
def test_a_relay_rule_that_is_none_is_refused(wirelake, rule, word):
    done = wirelake("serve", "event-mesh", "--relay", rule)
    assert done.code == 64
    assert word in done.talk


def test_keys_of_the_wrong_kind_are_told_in_one_line(tmp_path, wirelake):
    own, trust, log, opening = (tmp_path / name for name in ("own", "trust", "log", "opening"))
    wirelake("keys", "generate", own, trust)
    log.write_bytes(b"wolpertinger " + b"00" * 32 + b" " + b"00" * 16 + b"\n")
    log.chmod(0o600)
    assert wirelake("keys", "import", opening, "--node", NODE.hex(), "--encryption", stdin=b"07" * 32).code == 0
    for words, word in (
        (("listen", "event-mesh", "--keys", own), "for --own"),
        (("listen", "event-mesh", "--own", trust), "--own"),
        (("listen", "event-mesh", "--keys", log), "session keys"),
        (("read", "--keys", own, "x.pcap"), "for --own"),
        (("ingest", tmp_path / "lake", "--keys", opening), "need PATHS"),
        (("ingest", tmp_path / "lake", "--keys", log), "need PATHS"),
        (("gold", tmp_path / "lake", "--keys", opening), "wirelake ingest"),
        (("forget", tmp_path / "lake", "x", "--keys", trust), "no effect on forget"),
    ):
        done = wirelake(*words)
        assert done.code == 64, words
        assert word in done.talk, (words, done.talk)
        assert len(done.talk.strip().splitlines()) == 1, done.talk
    assert not (tmp_path / "lake").exists()


def test_encryption_keys_stand_beside_the_others_and_are_never_shown(trust, wirelake):
    done = wirelake("keys", "import", trust, "--node", OTHER_NODE.hex(), "--encryption", stdin=b"07" * 32)
    assert (done.code, done.talk) == (0, "")
    listed = wirelake("keys", "list", trust)
    assert [one.get("encryption_key_id") for one in lines(listed)] == [str(uuid.UUID(bytes=OTHER_NODE)), None]
    assert "0707" not in listed.out.decode()
    for flags, stdin, word in (
        (["--encryption"], b"08" * 32, "another encryption key"),
        (["--encryption"], b"07", "32 bytes"),
        (["--encryption", "--key-id", "00000001"], b"07" * 32, "--node alone"),
    ):
        refused = wirelake("keys", "import", trust, "--node", OTHER_NODE.hex(), *flags, stdin=stdin)
        assert refused.code == 64
        assert word in refused.talk


def test_a_node_may_bring_its_public_key(tmp_path, wirelake):
    wirelake("keys", "generate", tmp_path / "own", tmp_path / "trust", "--with-public-key")
    assert json.loads((tmp_path / "own").read_text())["with_public_key"] is True
    done = wirelake("keys", "generate", tmp_path / "other", tmp_path / "trust", "--hmac", "--with-public-key")
    assert (done.code, (tmp_path / "other").exists()) == (64, False)
    assert "--ed25519" in done.talk


def test_a_node_has_one_spelling_and_encode_takes_both(wirelake):
    printed = wirelake("decode", "event_mesh", "--hex", stdin=maced().hex().encode()).out
    (node,) = (each["node_id"] for each in json.loads(printed)["values"] if "node_id" in each)
    assert node == str(uuid.UUID(bytes=NODE))
    values = {name: value for name, value in json.loads(printed).items() if name != "fields"}
    for spelling in (node, NODE.hex()):
        values["values"] = [{"node_id": spelling} if "node_id" in each else each for each in values["values"]]
        assert wirelake("encode", "event_mesh", "--hex", stdin=json.dumps(values).encode()).out.decode().strip() == maced().hex()
