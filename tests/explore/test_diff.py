"""`wirelake diff`: new and vanished groups, latency shifts, sessions side by side, messages field by field."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.explore.lakes import lake_of
from tests.explore.rows import at, exchange, message, violation
from tests.explore.test_bytes import emp_recording
from tests.explore.test_read import BYE, HELLO, answered, asked, clock

from wirelake.capture.record.recorder import Recorder
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.errors import UsageError
from wirelake.explore.diff import selections
from wirelake.explore.diff.latency import shift
from wirelake.explore.diff.operands import operands
from wirelake.explore.diff.selections import DiffOptions, Part, compare
from wirelake.explore.query import query
from wirelake.protocols.kernel import use_plain


def said(seconds: float, number: int, **columns: Any) -> dict[str, Any]:
    return message(seconds, message_id=b"%016d" % number, protocol="emp", name="data", size=10, **columns)


def asking(number: int, latency: int, **columns: Any) -> dict[str, Any]:
    return exchange(latency, request_message_id=b"%016d" % number, correlation_id=str(number), **columns)


@pytest.fixture(scope="module")
def before(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    dice = random.Random(1)
    rows = {
        "messages": [said(index, index, kind="request", subject="orders.new") for index in range(40)]
        + [said(50, 50, kind="event", subject="gone")],
        "exchanges": [asking(index, 1000 + dice.randrange(200), subject="orders.new") for index in range(40)],
        "violations": [violation("OLD_RULE", message_id=b"%016d" % 1, ts=at(1)), violation("SILENCE", ts=at(5.5), offset=9)],
    }
    return fill(tmp_path_factory.mktemp("before") / "lake", rows)


@pytest.fixture(scope="module")
def after(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    dice = random.Random(2)
    rows = {
        "messages": [said(index, index, kind="request", subject="orders.new") for index in range(60)]
        + [said(70, 70, kind="error", subject="broken")],
        "exchanges": [asking(index, 1400 + dice.randrange(200), subject="orders.new") for index in range(60)]
        + [asking(99, 1, status="late")],
        "violations": [violation("NEW_RULE", message_id=b"%016d" % 2, ts=at(2)), violation("SILENCE", ts=at(5.5), offset=9)],
    }
    return fill(tmp_path_factory.mktemp("after") / "lake", rows)


def test_new_and_vanished_groups_are_named(before: Path, after: Path) -> None:
    found = compare(*operands(str(before), str(after)))
    assert [change.key for change in found.kinds.new] == [["emp", "error", "data"]]
    assert [change.key for change in found.kinds.vanished] == [["emp", "event", "data"]]
    assert [(change.key, change.a, change.b) for change in found.kinds.changed] == [(["emp", "request", "data"], 40, 60)]
    assert [change.key for change in found.subjects.new] == [["emp", "broken"]]
    assert [change.key[2] for change in found.rules.new] == ["NEW_RULE"]
    assert [change.key[2] for change in found.rules.vanished] == ["OLD_RULE"]
    assert found.rules.same_count == 1
    assert [change.key[2] for change in found.answers.new] == ["late"]
    assert (found.a.messages, found.b.messages, found.is_different) == (41, 61, True)


def test_a_shift_of_latencies_has_an_interval(before: Path, after: Path) -> None:
    found = compare(*operands(str(before), str(after)), DiffOptions(parts=(Part.LATENCY,)))
    assert [(one.subject, one.is_different) for one in found.latency] == [(None, True), ("orders.new", True)]
    moved = found.latency[1].shift
    assert 350 < moved.low < moved.shift < moved.high < 450
    assert moved.p < 1e-6
    assert not compare(*operands(str(before), str(after)), DiffOptions(parts=(Part.LATENCY,), tolerance=100)).is_different


def test_a_lake_does_not_differ_from_itself(before: Path) -> None:
    assert not compare(*operands(str(before), "::"), DiffOptions(parts=tuple(Part))).is_different


def test_filters_choose_what_is_compared(before: Path) -> None:
    """Two time ranges of one lake. A rule that is broken by silence counts between the messages around it."""
    found = compare(*operands(f"{before}::until:2025-03-01T12:00:03Z", "::since:2025-03-01T12:00:04Z until:2025-03-01T12:00:30Z"))
    assert (found.a.messages, found.b.messages) == (4, 27)
    assert [change.key[2] for change in found.rules.vanished] == ["OLD_RULE"]
    assert [change.key[2] for change in found.rules.new] == ["SILENCE"]
    assert found.answers.changed[0].a == 4


def test_counts_decide_only_if_they_are_asked_for(before: Path) -> None:
    sides = operands(f"{before}::kind:request until:2025-03-01T12:00:03Z -rule:*", "::kind:request since:2025-03-01T12:00:10Z")
    assert not compare(*sides).is_different
    assert compare(*sides, DiffOptions(parts=(Part.COUNTS,))).is_different


def test_only_the_largest_changes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "MOST_CHANGES", 3)
    first = [("emp", f"{number:03}", number) for number in range(1, 50)]
    second = [("emp", f"{number:03}", 2 * number) for number in range(10, 60)]
    found = selections._changes(["protocol", "subject"], iter(first), iter(second))
    assert (found.new_count, found.vanished_count, found.changed_count, found.same_count) == (10, 9, 40, 0)
    assert [change.key[1] for change in found.changed] == ["049", "048", "047"]
    assert [change.key[1] for change in found.vanished] == ["009", "008", "007"]


# The estimator.


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Samples whose true shift is known: about 95 of 100 intervals have it."""
    dice = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        moved = shift(dice.lognormal(7, 1, 40), dice.lognormal(7, 1, 60))
        hits += moved.low <= 0 <= moved.high
    assert 0.92 <= hits / 300 <= 0.98


def test_the_shift_is_the_median_of_all_differences() -> None:
    a, b = [1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13, 14, 15, 16, 17, 18]
    moved = shift(a, b)
    assert moved.shift == 10
    assert moved.low < 10 < moved.high
    assert moved.p == pytest.approx(0.0009, abs=0.0001)
    back = shift(b, a)
    assert (back.shift, back.low, back.high) == (-10, -moved.high, -moved.low)


def test_equal_values_are_no_shift() -> None:
    moved = shift([5] * 10, [5] * 20)
    assert (moved.shift, moved.low, moved.high, moved.p, moved.is_certain) == (0, 0, 0, 1.0, False)


# Sessions and messages, recorded.


def recorded(path: Path, bodies: list[bytes]) -> Path:
    with Recorder(path, protocol="emp", clock=clock()) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
        talk.sent(HELLO)
        talk.received(HELLO)
        for number, body in enumerate(bodies, 1):
            talk.sent(asked(number, body))
            talk.received(answered(number))
        talk.sent(BYE)
        talk.closed("bye")
    return path


@pytest.fixture(scope="module")
def sessions(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("diff")
    use_plain()
    captures = [recorded(folder / "one.pcapng", [b"alpha", b"beta"]), recorded(folder / "two.pcapng", [b"alphA", b"beta", b"gamma"])]
    yield lake_of(fill, folder / "lake", captures)
    use_plain(False)


def session_of(lake: Path, name: str) -> str:
    return str(query(lake, f"SELECT session_id FROM sessions WHERE source LIKE '%{name}.pcapng'").column(0)[0])


def message_of(lake: Path, name: str, number: int = 1) -> str:
    sql = f"SELECT m.message_id FROM messages m JOIN emp e USING (message_id) WHERE m.source LIKE '%{name}.pcapng' AND m.kind = 'request'"
    return str(query(lake, f"{sql} AND e.request_id = {number}").column(0)[0])


def test_each_side_says_how_many_of_how_many_messages_its_filter_chose(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", f"{before}::kind:event", "::kind:nothing*"]) == ExitCode.OK
    printed = capsys.readouterr().out.splitlines()
    assert "1 of 41 messages" in printed[0]
    assert "0 of 41 messages" in printed[1]


def test_two_sessions_are_put_side_by_side(sessions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (session_of(sessions, name) for name in ("one", "two"))
    assert run(["diff", f"{sessions}::session:{one}", f"::session:{other}"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert "messages: 7 the same, 2 on one side only" in printed.out
    assert "+ → request" in printed.out
    assert "no difference" in printed.err


def test_two_messages_differ_in_fields_and_bytes(sessions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [f"{sessions}::message:{message_of(sessions, name)}" for name in ("one", "two")]
    assert run(["diff", *sides, "-T", "json", "--exit-code"]) == ExitCode.FAILED
    found = json.loads(capsys.readouterr().out)
    assert [(field["name"], field["a"], field["b"]) for field in found["fields"] if field["name"] == "body"] == [
        ("body", b"alpha".hex(), b"alphA".hex())
    ]
    (one,) = found["ranges"]
    assert (one["a_hex"], one["b_hex"], one["fields"]) == (b"a".hex(), b"A".hex(), ["body"])
    assert one["a"][1] - one["a"][0] == 1
    assert "emp.request_id" in found["same"]
    assert run(["diff", *sides]) == ExitCode.OK
    assert "bytes" in capsys.readouterr().out


def test_the_same_message_twice_is_no_difference(sessions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [f"{sessions}::message:{message_of(sessions, name, 2)}" for name in ("one", "two")]
    assert run(["diff", *sides, "--exit-code"]) == ExitCode.OK
    assert "no difference" in capsys.readouterr().err


def test_bytes_of_messages_of_other_lengths_are_aligned(sessions: Path) -> None:
    from wirelake.explore.diff.messages import compare_messages

    sides = operands(f"{sessions}::message:{message_of(sessions, 'two', 1)}", f"::message:{message_of(sessions, 'two', 3)}")
    found = compare_messages(*sides)
    assert found.ranges
    assert {name for one in found.ranges for name in one.fields} == {"extension 0 request_id", "body"}
    assert found.is_different


def test_bytes_that_are_gone_are_said(fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = emp_recording(tmp_path / "one.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [path])
    path.unlink()
    sides = [f"{lake}::message:{message_of(lake, 'one', number)}" for number in (1, 2)]
    assert run(["diff", *sides, "-T", "text"]) == ExitCode.OK
    assert "no bytes of A" in capsys.readouterr().err


# The command.


def test_the_exit_code_says_whether_they_differ(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", str(before), str(after)]) == ExitCode.OK
    printed = capsys.readouterr()
    assert "NEW_RULE error  0 to 1" in printed.out
    assert "orders.new: median" in printed.out
    assert printed.err.strip() == "A and B differ"
    assert run(["diff", str(before), str(after), "--exit-code"]) == ExitCode.FAILED
    assert run(["diff", str(before), str(before), "--exit-code"]) == ExitCode.OK
    assert run(["diff", str(before), str(after), "--exit-code", "--parts", "latency", "--tolerance", "99"]) == ExitCode.OK


def test_json_has_everything(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", str(before), str(after), "-T", "json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["is_different"] is True
    assert found["kinds"]["new"] == [{"key": ["emp", "error", "data"], "a": 0, "b": 1}]
    assert found["latency"][0]["shift"]["low"] > 0


@pytest.mark.parametrize(
    ("sides", "flags", "text"),
    [
        (["::kind:request", "LAKE"], [], "names no lake"),
        (["LAKE::message:00", "LAKE"], [], "message with a message"),
        (["LAKE::kind:nothing", "LAKE"], [], "never 'nothing'"),
        (["LAKE", "LAKE"], ["--parts", "kinds,all"], "all is no part"),
        (["LAKE", "LAKE"], ["--parts", ""], "nothing is no part"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    before: Path, capsys: pytest.CaptureFixture[str], sides: list[str], flags: list[str], text: str
) -> None:
    assert run(["diff", *(one.replace("LAKE", str(before)) for one in sides), *flags]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


def test_a_message_that_is_not_there(before: Path) -> None:
    assert run(["diff", f"{before}::message:00", "::message:01"]) == ExitCode.NO_INPUT
    with pytest.raises(UsageError):
        operands("", "")
