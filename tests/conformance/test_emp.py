"""The runners of EMP's vectors can fail: for a value that is not so, and for a vector they cannot turn into an assertion."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance import emp, emp_sessions, harness
from tests.conformance.reading import Unmapped

OK = {
    "hex": "000000410580000000000014008000008000000000000000000000020000000c0100000001000000"
    "1f8b0800000000000003cb48cdc9c9070086a6103605000000",
    "expect": "ok",
    "fields": {
        "size": 65,
        "type": 5,
        "type_name": "data",
        "extensions": [
            {"size": 20, "id": 0, "more": True, "content_hex": "800000000000000000000002", "request": True, "request_id": 2},
            {"size": 12, "id": 1, "more": False, "content_hex": "01000000", "scheme": 1},
        ],
        "body_hex": "1f8b0800000000000003cb48cdc9c9070086a6103605000000",
        "plain_body_hex": "68656c6c6f",
    },
}
ERROR = {
    "hex": "000000170400000004000100000962616420626c6f636b",
    "expect": "ok",
    "fields": {
        "size": 23,
        "type": 4,
        "type_name": "error",
        "extensions": [],
        "error_code": 4,
        "extension_id": 0,
        "extension_error_code": 1,
        "message": "bad block",
    },
}
REJECT = {"hex": "00000015058000000000000c010000000200000078", "expect": "reject", "reject": {"error_code": 4, "extension_id": 1}}

ODD = [
    # Oddities, application types and extensions: accepted, and re-encoded without what is odd.
    ("0000000a027f00006162", {"size": 10, "type": 2, "type_name": "ping", "extensions": []}),
    ("0000000a027f00006162", {"size": 10, "type": 2, "type_name": "ping", "extensions": [], "body_hex": "6162"}),
    ("0000000c00010000010000ff", {"size": 12, "type": 0, "type_name": "hello", "extensions": [], "version": 1}),
    ("00000009c800000078", {"size": 9, "type": 200, "type_name": None, "extensions": [], "body_hex": "78", "plain_body_hex": "78"}),
    (
        "0000001380800000" + "0000000ac87f0001" + "abcd" + "78",
        {
            "size": 19,
            "type": 128,
            "type_name": None,
            "body_hex": "78",
            "plain_body_hex": "78",
            "extensions": [{"size": 10, "id": 200, "more": False, "content_hex": "abcd"}],
        },
    ),
]


@pytest.mark.parametrize("vector", [OK, ERROR, REJECT])
def test_what_is_so_passes(vector):
    emp.run(vector)
    emp.run({**vector, "name": "any", "source": "any"})


@pytest.mark.parametrize(("text", "fields"), ODD)
def test_what_is_odd_passes(text, fields):
    emp.run({"hex": text, "expect": "ok", "fields": fields})


def fails(run, vector):
    """Whether a test of this vector would fail, in whatever way."""
    try:
        run(vector)
    except Exception:
        return True
    return False


def paths(value, at=()):
    """Every place in a vector."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*at, key)
        yield from paths(one, (*at, key))


def owner(vector, path):
    for key in path[:-1]:
        vector = vector[key]
    return vector


@pytest.mark.parametrize("vector", [OK, ERROR, REJECT], ids=["ok", "error", "reject"])
def test_no_place_of_a_vector_can_be_changed_dropped_or_joined(vector):
    """Whatever is in a vector is asserted: another value fails, a missing key fails, and so does one more."""
    for path in paths(vector):
        changed = copy.deepcopy(vector)
        holder = owner(changed, path)
        value = holder[path[-1]]
        for other in ("another", None, not value) if isinstance(value, bool) else ("00", None) if isinstance(value, str) else (77, None):
            if other != value:
                holder[path[-1]] = other
                assert fails(emp.run, changed), (path, other)
        changed = copy.deepcopy(vector)
        del owner(changed, path)[path[-1]]
        assert fails(emp.run, changed), path
        changed = copy.deepcopy(vector)
        if isinstance(owner(changed, path)[path[-1]], dict):
            owner(changed, path)[path[-1]]["novelty"] = 1
            with pytest.raises(Unmapped):
                emp.run(changed)


@pytest.mark.parametrize(
    "vector",
    [
        None,
        [],
        {},
        {**OK, "expect": "maybe"},
        {**OK, "novelty": 1},
        {**OK, "hex": "00 00"},
        {**OK, "fields": {**OK["fields"], "type_name": "howdy"}},
        {**REJECT, "reject": {"error_code": 4}},
        {**REJECT, "reject": {"error_code": 3, "extension_id": 1}},
        {**REJECT, "reject": {"error_code": 4, "extension_id": 1, "in": "space"}},
        {**REJECT, "reject": {"error_code": "4"}},
        {**REJECT, "reject": None},
    ],
)
def test_a_vector_that_says_nothing_known_is_a_failure(vector):
    with pytest.raises(Unmapped):
        emp.run(vector)


@pytest.mark.parametrize(
    "reject",
    [
        {"error_code": 3},
        {"error_code": None},
        {"error_code": 4, "extension_id": 0},
        {"in": "handshake", "error_code": 4, "extension_id": 1},
    ],
)
def test_another_refusal_is_a_failure(reject):
    with pytest.raises(AssertionError):
        emp.run({**REJECT, "reject": reject})


def test_a_refusal_of_what_is_accepted_is_a_failure():
    with pytest.raises(AssertionError):
        emp.run({"hex": "0000000802000000", "expect": "reject", "reject": {"error_code": None}})
    with pytest.raises(AssertionError):
        emp.run({"hex": "0000000802", "expect": "reject", "reject": {"error_code": 3}})
    emp.run({"hex": "0000000802", "expect": "reject", "reject": {"error_code": None}})


SESSION = {
    "frames": [
        {"t": 0.0, "event": "open"},
        {"t": 0.1, "dir": "C>S", "hex": "0000000c0000000001000000"},
        {"t": 0.2, "dir": "S>C", "hex": "0000000c0000000001000000"},
        {"t": 0.3, "dir": "S>C", "hex": "0000001d05800000000000140000000080000000000000000000000168"},
        {"t": 0.4, "dir": "C>S", "hex": "0000001d05800000000000140000000000000000000000000000000168"},
        {"t": 0.5, "dir": "S>C", "hex": "0000000802000000"},
        {"t": 0.6, "dir": "C>S", "hex": "0000000803000000"},
        {"t": 0.7, "dir": "S>C", "hex": "0000000801000000"},
        {"t": 0.8, "dir": "S>C", "event": "eof"},
    ]
}


def without(index):
    return {"frames": [frame for at, frame in enumerate(SESSION["frames"]) if at != index]}


def with_frame(index, **changes):
    return {"frames": [{**frame, **changes} if at == index else frame for at, frame in enumerate(SESSION["frames"])]}


def test_a_recorded_session_passes():
    emp_sessions.run(SESSION)


@pytest.mark.parametrize(
    "session",
    [
        without(1),
        without(2),
        without(3),
        with_frame(5, hex="0000000806000000"),
        with_frame(4, hex="0000001d05800000000000140000000000000000000000000000000268"),
        with_frame(1, hex="0000000c0000000002000000"),
        with_frame(6, hex="000000080300000000"),
    ],
    ids=["no-client-hello", "no-server-hello", "unasked", "reserved", "other-id", "version", "trailing"],
)
def test_a_recorded_session_that_breaks_a_rule_fails(session):
    assert fails(emp_sessions.run, session)


@pytest.mark.parametrize(
    "session",
    [
        {},
        {"frames": []},
        {"frames": [{"t": 0, "event": "open"}]},
        with_frame(1, dir="S<C"),
        with_frame(0, event="lunch"),
        with_frame(1, novelty=1),
    ],
)
def test_a_recorded_session_that_says_nothing_known_is_a_failure(session):
    with pytest.raises(Unmapped):
        emp_sessions.run(session)


# The harness as it is run by others.


def run_pytest(vectors: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__).with_name("test_vectors.py")), "-rf", *more],
        env=os.environ | {"WIRELAKE_VECTORS": str(vectors)},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_other_vectors_and_unknown_files_are_run_and_fail(tmp_path):
    (tmp_path / "emp.json").write_text(json.dumps([{**OK, "name": "right"}, {**REJECT, "expect": "?", "name": "unmapped"}, ERROR]))
    (tmp_path / "emp-session.json").write_text(json.dumps([SESSION, without(2)]))
    (tmp_path / "novelty.json").write_text("[]")
    (tmp_path / "README.md").write_text("")
    result = run_pytest(tmp_path, "-k", "holds or runner")
    failed = {line.split("[")[1].split("]")[0] for line in result.stdout.splitlines() if line.startswith("FAILED")}
    assert failed == {"emp-1-unmapped", "emp-session-1", "novelty.json"}
    assert "3 failed, 5 passed" in result.stdout


@pytest.mark.slow
def test_no_vectors_at_all_is_a_failure(tmp_path):
    result = run_pytest(tmp_path)
    assert "test_there_are_vectors" in result.stdout
    assert result.returncode == 1


def test_our_own_copy_is_the_default(monkeypatch):
    monkeypatch.delenv("WIRELAKE_VECTORS", raising=False)
    assert {path.name for path in harness.files()} == set(harness.RUNNERS)
    monkeypatch.setenv("WIRELAKE_VECTORS", "/elsewhere")
    assert harness.directory() == Path("/elsewhere")
