"""`wirelake session`, `wirelake bytes` and `wirelake explore`, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.explore.lakes import lake_of
from tests.explore.test_bytes import emp_recording, relink_recording

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.explore.query import query
from wirelake.protocols.kernel import use_plain


@pytest.fixture(scope="module")
def talks(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("commands")
    use_plain()
    yield lake_of(fill, folder / "lake", [emp_recording(folder / "emp.pcapng"), relink_recording(folder / "relink.pcapng")])
    use_plain(False)


def one(lake: Path, sql: str) -> str:
    return str(query(lake, sql).column(0)[0].as_py())


def test_a_session_is_a_ladder(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = one(talks, "SELECT session_id FROM sessions WHERE protocol = 'relink'")
    assert run(["session", str(talks), session[:10]]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert session in lines[0]
    ladder = [line[12:68] for line in lines[2:]]
    assert {line[0] for line in ladder} <= set("│├◀┊")
    assert {line[-1] for line in ladder} <= set("│┤▶┊")
    assert any("of silence" in line for line in ladder)
    assert any("three" in line for line in lines)


@pytest.mark.slow
def test_one_side_of_a_session_and_a_window_of_it(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = one(talks, "SELECT session_id FROM sessions WHERE protocol = 'emp'")
    assert run(["session", str(talks), session, "--side", "server", "-T", "json"]) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["to_server"] for row in rows if "id" in row} == {False}
    assert run(["session", str(talks), session, "-c", "2", "--first", "1"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert "--first 3" in printed.err
    assert sum("▶" in line or "◀" in line for line in printed.out.splitlines()) == 2


def test_a_session_that_is_not_there_is_an_error(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["session", str(talks), "ffff"]) == ExitCode.NO_INPUT
    assert "no session ffff" in capsys.readouterr().err


def test_every_byte_of_a_message_is_printed_with_its_field(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = one(talks, "SELECT message_id FROM messages WHERE kind = 'request' LIMIT 1")
    assert run(["bytes", str(talks), message, "-T", "json"]) == ExitCode.OK
    frame = json.loads(capsys.readouterr().out)["layers"][0]
    assert run(["bytes", str(talks), message]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    printed = "".join(line[10:57] for line in lines if line[:8].strip().isdecimal())
    assert printed.replace(" ", "") == frame["hex"]
    assert any("request_id = 1" in line for line in lines)


@pytest.mark.slow
def test_bytes_of_a_file_that_is_gone(fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [path])
    path.unlink()
    message = one(lake, "SELECT message_id FROM messages WHERE kind = 'request' LIMIT 1")
    assert run(["bytes", str(lake), message]) == ExitCode.FAILED
    assert "cannot be read" in capsys.readouterr().err
    assert run(["bytes", str(lake), message, "-T", "raw"]) == ExitCode.USAGE


@pytest.mark.parametrize(("arguments", "text"), [(["zz"], "hex digits"), (["00"], "no message")])
def test_bytes_of_a_message_that_is_not_there(talks: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    assert run(["bytes", str(talks), *arguments]) == ExitCode.NO_INPUT
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_explore_serves_until_it_is_interrupted(talks: Path) -> None:
    arguments = [sys.executable, "-m", "wirelake", "explore", str(talks)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": ""}
    ) as served:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert httpx.get(f"{address}messages.json", trust_env=False, timeout=60).json()["rows"]
        served.send_signal(signal.SIGINT)
        _, said = served.communicate(timeout=60)
    assert served.returncode == ExitCode.OK, said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--host", "192.0.2.1"], "--token-file"),
        (["--host", "192.0.2.1", "--token-file", "nothing"], "nothing"),
        (["--host", "nowhere.invalid", "--token-file", "TOKEN"], "nowhere.invalid"),
        (["--token-file", "OPEN"], "chmod 600"),
        (["--token-file", "EMPTY"], "one word"),
    ],
)
def test_explore_that_cannot_be_served(
    talks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], text: str
) -> None:
    for name, mode, content in (("TOKEN", 0o600, "a-token"), ("OPEN", 0o644, "a-token"), ("EMPTY", 0o600, " ")):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    paths = [str(tmp_path / flag) if flag.isupper() else flag for flag in flags]
    assert run(["explore", str(talks), *paths]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "flags", "text"),
    [
        (
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7",
            ["--seconds", "0.2"],
            "longer than 0.2 s",
        ),
        ("SELECT list(a.range) FROM range(100000000) a", ["--memory", "64"], "memory"),
    ],
)
def test_a_query_ends_at_its_limits(talks: Path, capsys: pytest.CaptureFixture[str], sql: str, flags: list[str], text: str) -> None:
    assert run(["query", str(talks), sql, *flags]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


def test_explore_of_no_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explore", str(tmp_path)]) != ExitCode.OK
    assert "is not a lake" in capsys.readouterr().err
