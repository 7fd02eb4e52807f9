"""`wirelake ingest --follow`: wrong ways to call it are told before anything starts."""

from __future__ import annotations

import pytest

from wirelake.cli.main import run


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--once"], "--once needs --follow FOLDER"),
        (["a.pcap", "--every", "2"], "--every needs --follow FOLDER"),
        (["--max-bytes", "5"], "--max-bytes needs --follow FOLDER"),
        (["a.pcap", "--follow", "."], "PATHS and --follow exclude each other"),
        (["--follow", "nowhere"], "there is no such folder"),
        (["--follow", ".", "--master", "sc://127.0.0.1:1"], "cannot be followed through Spark Connect"),
        ([], "a folder to --follow"),
    ],
)
def test_wrong_ways_to_follow_are_told(tmp_path, capsys, given, complaint):
    assert run(["ingest", str(tmp_path / "lake"), *given]) == 64
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
