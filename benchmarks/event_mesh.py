"""Event Mesh: compiled scanning, HMAC verification, and Ed25519 against the library's own verify.

Goals: 20 million packets of 100 bytes a second a core; 400,000 HMACs verified a second a core; a signature within 1.3 times the library.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from figures import Figure, best, main
from wirelake.protocols.event_mesh.packet.builder import Credentials, build
from wirelake.protocols.event_mesh.packet.values import binary, text
from wirelake.protocols.event_mesh.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, scan, walk
from wirelake.protocols.event_mesh.security import verify_rows
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.event_mesh.security.trust import Key, Policy, TrustStore
from wirelake.protocols.event_mesh.security.verify import Identity, Receiver, Verified, authenticate
from wirelake.protocols.kernel import FAULT, compiled, use_compiled

NODE, AUTH, SECRET, SEED = bytes(range(16)), b"\0\0\0\1", bytes(range(32)), bytes(range(32))
MADE = 1_700_000_000
SIZE = 100
TABLE = "Event Mesh packets of 100 bytes on one core"
BLOCK = 2000
"""Datagrams scanned in one go, so that they stay in the cache as they do in the lake."""


def packets(credentials: Credentials | None, count: int) -> list[bytes]:
    """Events of 100 bytes."""
    bare = len(build(3, [text("temp.changed"), binary(b"")], credentials, message_id=0, timestamp=MADE))
    fields = [text("temp.changed"), binary(b"x" * max(SIZE - bare, 0))]
    return [build(3, fields, credentials, message_id=number, timestamp=MADE) for number in range(count)]


def scanning(said: list[bytes], times: int) -> float:
    data = np.frombuffer(b"".join(said), np.uint8)
    stops = np.cumsum([len(one) for one in said], dtype=np.int64)
    starts = stops - np.array([len(one) for one in said], np.int64)
    rows, parts = np.zeros(len(said) * ROW_COLUMNS, np.int64), np.zeros((8 * len(said) + 64) * PART_COLUMNS, np.int64)
    run_of, ends, limits, fast = np.zeros(len(said), np.int64), stops.copy(), DEFAULT_LIMITS.for_scan(), compiled(walk)

    def run() -> int:
        count, _, _, _ = fast(data, starts, stops, 0, 0, rows, run_of, parts, ends, limits)
        return count

    found = best(run, times)
    assert run() == len(said)
    assert not rows.reshape(-1, ROW_COLUMNS)[:, FAULT].any()
    return found


def rows_of(said: list[bytes]) -> list[tuple[bytes, list[int], list[int]]]:
    """Each packet with its row and parts, as the lake has them."""
    found = []
    for data in said:
        row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * DEFAULT_LIMITS.max_parts)
        _, used, _, _ = scan(data, 0, len(data), row, parts, DEFAULT_LIMITS.for_scan())
        found.append((data, row, parts[: used * PART_COLUMNS]))
    return found


def authenticating(said: list[bytes], store: TrustStore, times: int) -> float:
    known, policy = rows_of(said), Policy()

    def run() -> int:
        for data, row, parts in known:
            if not isinstance(authenticate(data, row, parts, store, policy, MADE), Identity):
                raise SystemExit("a right packet was refused")
        return len(known)

    return best(run, times)


def receiving(said: list[bytes], store: TrustStore, times: int) -> float:
    def run() -> int:
        receiver = Receiver(store)
        for data in said:
            if not isinstance(receiver.receive(data, MADE), Verified):
                raise SystemExit("a right packet was refused")
        return len(said)

    return best(run, times)


def library(said: list[bytes], times: int) -> float:
    key = Ed25519PrivateKey.from_private_bytes(SEED).public_key()
    known = [(data[-64:], canonical(data, row, parts)) for data, row, parts in rows_of(said)]

    def run() -> int:
        for signature, covered in known:
            key.verify(signature, covered)
        return len(known)

    return best(run, times)


def judging(said: list[bytes], store: TrustStore, times: int) -> float:
    """As the lake verifies: columns of a table in, verdicts out."""
    batch = pa.RecordBatch.from_pydict(
        {
            "message_id": [data[1:5] for data in said],
            "ts": pa.array([MADE * 1_000_000] * len(said), pa.timestamp("us", "UTC")),
            "packet_id": [int.from_bytes(data[1:5]) for data in said],
            "flags": pa.array([data[5] for data in said], pa.int16()),
            "event_type": pa.array([data[6] for data in said], pa.int16()),
            "timestamp": pa.array([MADE] * len(said)).cast(pa.decimal128(20, 0)),
            "payload": [data[17:] for data in said],
        }
    )

    def run() -> int:
        (found,) = verify_rows.judge_batches([batch], store)
        if set(found.column("verdict").to_pylist()) != {verify_rows.GENUINE}:
            raise SystemExit("a right packet was refused")
        return len(said)

    return best(run, times)


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    use_compiled()
    many, few, fewest = (50, 3, 2) if quick else (200, 20, 5)
    seed_key = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()
    store = TrustStore([Key(NODE, AUTH, SECRET, seed_key)])
    clear, maced = packets(None, BLOCK), packets(Credentials(NODE, AUTH, SECRET), BLOCK)
    signed = packets(Credentials(NODE, AUTH, seed=SEED), 200)
    took = {
        "scan, 2 fields": (scanning(clear, many), 20e6),
        "scan, 5 fields, HMAC": (scanning(maced, many), 20e6),
        "HMAC, a row at a time": (authenticating(maced, store, few), None),
        "HMAC, in the lake, columns to verdicts": (judging(packets(Credentials(NODE, AUTH, SECRET), 10_000), store, few), 400e3),
        "HMAC, live, datagram to message": (receiving(maced, store, few), None),
        "Ed25519, a row at a time": (authenticating(signed, store, fewest), None),
    }
    figures = [Figure(table=TABLE, name=name, ours=1e9 / one, unit="/s", least=goal) for name, (one, goal) in took.items()]
    ours, theirs = 1e9 / judging(signed, store, fewest), 1e9 / library(signed, fewest)
    name = "Ed25519, in the lake, columns to verdicts"
    return [*figures, Figure(table=TABLE, name=name, ours=ours, unit="/s", rival="cryptography", theirs=theirs, least=1 / 1.3)]


if __name__ == "__main__":
    main(run, __doc__)
