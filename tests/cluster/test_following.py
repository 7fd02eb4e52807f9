"""Following on a cluster: a folder that grows is read by executors, and comes out as one ingest on one machine has it."""

import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.cluster.conftest import SECONDS, SMALL, driver, finish
from tests.lake.following import contents
from tests.lake.hashing import hashes

from wirelake.lake.store import delta, journal
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import GOLD, table

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def portions(lake: Path) -> int:
    return (delta.batch(lake, table("ledger")) or 0) if (lake / "ledger" / "_delta_log").is_dir() else 0


def said(lake: Path) -> dict[str, str]:
    """What readers see; the ledger's entries add up to the same, however many they are."""
    gold = {each.name for each in GOLD} - {"runs"}
    return contents(lake) | {name: told for name, told in hashes(lake).items() if name in gold}


def wait_for(portion: int, lake: Path, process) -> None:
    until = time.monotonic() + SECONDS
    while portions(lake) < portion:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"only {portions(lake)} portions"
        time.sleep(0.1)


def test_a_folder_that_grows_is_followed_until_ctrl_c_and_then_once(cluster, captures, tmp_path):
    folder, lake, cwd = tmp_path / "in", tmp_path / "lake", tmp_path / "cwd"
    folder.mkdir()
    whole = (captures / "packets-0.pcap").read_bytes()
    half = len(whole) // 2

    def follow(*more: str):
        words = ("ingest", str(lake), "--follow", str(folder), "--every", "0.2", "--master", cluster.url, *SMALL, *more)
        return driver(cwd, "-m", "wirelake.cli.main", *words)

    (folder / "packets-0.pcap").write_bytes(whole[:half])
    process = follow("--gold-every", "2", "--complete-after", "600")
    wait_for(1, lake, process)
    before = portions(lake)
    with (folder / "packets-0.pcap").open("ab") as file:
        file.write(whole[half:])
    shutil.copy(captures / "cases.pcapng", folder)
    wait_for(before + 1, lake, process)
    process.send_signal(signal.SIGINT)
    _, talk = finish(process)
    assert f"starting Spark ({cluster.url}): done" in talk
    assert "stopping after the current micro-batch" in talk
    assert "Traceback" not in talk
    assert list(journal.memories(lake).iterdir()), "what connections wait with is in the lake, where every executor finds it"

    shutil.copy(captures / "packets-1.pcap", folder)
    finish(follow("--once"))
    finish(driver(cwd, "-m", "wirelake.cli.main", "ingest", str(tmp_path / "quiet"), str(folder), "--master", "local[2]", *SMALL[2:]))
    assert said(lake) == said(tmp_path / "quiet")
    assert check_ledger(lake).problems == ()
    assert list(cwd.iterdir()) == []
