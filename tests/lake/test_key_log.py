"""The whole way of a secret: a server that keeps a key log, an encrypted call, an ingest with that log, and a question."""

import json
import signal
import subprocess
import sys

from wirelake.cli.main import run

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
SECONDS = 120


def test_an_encrypted_call_is_read_with_the_key_log_of_the_server(spark, tmp_path, capfd):
    recording, log, lake = tmp_path / "talk.pcapng", tmp_path / "sessions.log", tmp_path / "lake"
    serving = [*WIRELAKE, "serve", "wolpertinger", "tcp://127.0.0.1:0", "--key-log", str(log), "--record", str(recording)]
    with subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stderr.readline().split()[2].rstrip(";")
            calling = [*WIRELAKE, "call", "wolpertinger", address, "Demo.Secret", "--level", "2"]
            called = subprocess.run(calling, capture_output=True, text=True, timeout=SECONDS)
            assert called.stdout == '"encrypted on its way here"\n', called.stderr
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
    assert run(["ingest", str(lake), str(recording), "--keys", str(log)]) == 0
    capfd.readouterr()

    def asked(sql):
        assert run(["query", str(lake), sql, "-T", "json"]) == 0
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    sealed = asked("select decrypted, count(*) > 1 as many from wolpertinger where encryption is not null group by all")
    assert sealed == [{"decrypted": True, "many": True}]
    assert asked("select method from wolpertinger where decrypted and root = 'RemoteMethodCall'") == [{"method": "Secret"}]
    (answer,) = asked(
        "select body_json from messages join wolpertinger using (message_id) where decrypted and root = 'RemoteMethodResponse'"
    )
    assert "encrypted on its way here" in answer["body_json"]
    assert b"encrypted on its way here" not in recording.read_bytes()
    secret = log.read_text().split()[1]
    assert not [path for path in lake.rglob("*") if path.is_file() and bytes.fromhex(secret) in path.read_bytes()], (
        "keys stay out of the lake"
    )
