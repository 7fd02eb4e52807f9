"""The fuzzer keeps its limits and is reproducible, and no input that once broke something does so now."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz import bombs, campaign, hostile, seeds, targets
from tests.fuzz.cases import CORPUS, Case, corpus, load, save
from tests.fuzz.mutating import mutate
from tests.fuzz.targets import BOUNDS, TARGETS
from tests.protocols.yamp import speech as yamp

from wirelake.errors import ConnectFailed, LakeError
from wirelake.lake.decode.decoder import Decoder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # inputs run in processes with limits, which take a second each to start
NAMES = [str(case) for case in campaign.fixed()]
OPEN = {str(case): issue for case in campaign.fixed() if (issue := bombs.open_issue(case))}


def fuzz(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer as `make fuzz` does: a fork of pytest's own process would take its threads and its memory along."""
    command = [sys.executable, "-m", "tests.fuzz", "--folder", str(folder), *map(str, arguments)]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=550)


def verdicts(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    return {row["case"]: row for row in rows}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The verdicts on all handmade inputs and the corpus, but for those of open issues."""
    return verdicts(fuzz(tmp_path_factory.mktemp("fuzz"), "--fixed", "--skip-open", "--json"))


@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_broke_something_once_is_harmless(replayed, name):
    if name in OPEN:
        pytest.skip(f"{OPEN[name]} is open")
    assert replayed[name]["failure"] == "", replayed[name]["detail"]


# The limits.

BROKEN = {
    "raise": "ValueError: as asked",
    "spin": "more CPU than 1 s",
    "grow": "more memory than 512 MiB",
    "grow for ever": "MemoryError",
    "die": "the process died: SIGABRT",
    "leave": "the process died: exit code 3",
    "sleep": "",
}


@pytest.fixture(scope="module")
def selftest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("selftest")
    files = [save(folder, Case("selftest", what, b"")) for what in BROKEN]
    return folder / "out", fuzz(folder / "out", "--json", "--replay", *files)


@pytest.mark.parametrize("what", BROKEN)
def test_an_input_over_a_limit_fails_and_the_next_one_runs(selftest, what):
    _, done = selftest
    (verdict,) = [row for name, row in verdicts(done).items() if name.startswith(f"selftest {what} (")]
    assert verdict["failure"].startswith(BROKEN[what])
    assert bool(verdict["failure"]) == bool(BROKEN[what])


def test_a_failure_is_told_with_the_file_that_repeats_it(selftest):
    folder, done = selftest
    assert done.returncode == 1
    path = folder / Case("selftest", "raise", b"").file_name
    assert load(path).what == "raise"
    assert f"--replay {path}" in done.stderr
    assert "7 inputs" in done.stderr
    assert "6 failed, of 6 causes" in done.stderr


def test_a_stack_of_a_killed_process_is_told(selftest):
    assert "in selftest" in verdicts(selftest[1])["selftest spin (selftest.spin.e3b0c44298fc)"]["detail"]


# What targets notice.


def test_bytes_that_are_in_no_account_are_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = Case("recordings", "", seeds.recording("emp", [[("client", b"\0\0\0\x0c" + bytes(8)), ("client", b"cut")]]))
    targets.run(case)
    monkeypatch.setattr(Decoder, "_quarantine", lambda *_: None)
    with pytest.raises(LakeError, match="accounts for"):
        targets.run(case)


def test_an_internal_error_of_a_command_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = Case("decode", "yamp text", yamp.handshake() + yamp.event() + b"cut")
    targets.run(case)
    monkeypatch.setattr("wirelake.cli.decode.print_objects", lambda *_: 1 / 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        targets.run(case)


def test_a_session_that_raises_is_noticed(monkeypatch):
    case = Case("sessions", "relink server", bytes(8) + b"nonsense")
    targets.run(case)
    monkeypatch.setattr("wirelake.protocols.relink.session.Session.receive", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        targets.run(case)


@pytest.mark.parametrize("what", hostile.WHATS)
def test_a_server_that_serves_nobody_after_an_attack_is_noticed(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    case = Case("peers", f"{what} close", b"nonsense" * 3)
    targets.run(case)

    async def refuses(*_):
        raise ConnectFailed("nobody is served")

    monkeypatch.setattr(hostile, "_honest", refuses)
    with pytest.raises(ConnectFailed):
        targets.run(case)


# Inputs.


@pytest.mark.parametrize("target", campaign.TARGETS)
def test_the_same_seed_and_number_make_the_same_input(target):
    made = [campaign.numbered(target, 7, number) for number in range(20)]
    assert made == [campaign.numbered(target, 7, number) for number in range(20)]
    assert len({case.data for case in made}) > 15
    assert made != [campaign.numbered(target, 8, number) for number in range(20)]


def test_inputs_of_all_targets_come_in_turn():
    drawn = campaign.inputs(campaign.TARGETS, seed=1)
    assert [next(drawn).target for _ in range(12)] == [*campaign.TARGETS] * 2
    assert {*TARGETS} == {*BOUNDS} == {*campaign.TARGETS, "selftest"}


def test_a_file_of_the_corpus_says_how_it_is_run(tmp_path):
    case = Case("sessions", "event_mesh server", b"\0\1")
    again = load(save(tmp_path, case))
    assert (again.target, again.what, again.data) == ("sessions", "event_mesh server", b"\0\1")
    assert {path.name for path in CORPUS.glob("*.bin")} == {one.file_name for one in corpus()}
    with pytest.raises(SystemExit, match="says no target"):
        load(tmp_path / "some.bin")


def test_every_serializer_has_bombs_and_every_open_issue_is_of_an_input():
    assert {*bombs.BODIES} == {*targets.serializers()}
    assert sorted(OPEN) == sorted(name for name in OPEN if name in NAMES)
    assert len(OPEN) == sum(len(names) for names in bombs.OPEN.values())


def test_no_mutation_fails_on_few_bytes():
    for number in range(2_000):
        dice = random.Random(number)
        assert mutate(dice, dice.randbytes(number % 5), lambda: b"")
