"""What people see in a terminal: what a peer sent does not act on it, exit codes mean one thing, -v and completion work everywhere."""

import json
import logging
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.shell_completion import ShellComplete
from tests.cases import each

from wirelake import protocols
from wirelake.cli import main
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.terminal import json_text, spreadsheet_cell
from wirelake.errors import (
    CaptureError,
    CapturesMissing,
    ConnectFailed,
    InputMissing,
    LakeError,
    LakeMissing,
    PeerError,
    QueryError,
    RequestTimeout,
    UsageError,
    WirelakeError,
)
from wirelake.protocols.emp.messages import Error
from wirelake.protocols.emp.wire import encode
from wirelake.text import visible

HOSTILE = "\x1b]0;owned\x07\x9b2J\x7f\u202egnp.exe\u2066\u2028\r\nwirelake: all is well\t\x00\U000e0041"
SEEN = r"\x1b]0;owned\x07\x9b2J\x7f\u202egnp.exe\u2066\u2028\r\nwirelake: all is well\t\x00" + "\\U000e0041"
"""The same, as it is printed."""


def acts(text: str) -> set[str]:
    """The characters of an output that would act on a terminal, besides its own line ends and tabs."""
    return {each for each in text if (not each.isprintable() and each not in "\n\t") or ord(each) in range(0x80, 0xA0)}


@each("code", [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x061C, 0x200B, 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF])
def test_a_character_that_acts_is_shown_by_its_code(code):
    shown = visible(f"a{chr(code)}b")
    assert shown.isprintable()
    assert shown[0] + shown[-1] == "ab"
    assert shown[1] == "\\"
    assert acts(json_text([chr(code)])) == set()
    assert json.loads(json_text([chr(code)])) == [chr(code)], "JSON stays the same value"


def test_a_value_too_deep_to_print_is_replaced_and_the_others_stay():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert json.loads(json_text({"a": 1, "deep": deep})) == {"a": 1, "deep": "(nested too deep to print)"}
    assert json.loads(json_text(deep)) == "(nested too deep to print)"


@pytest.mark.parametrize("text", ["", "plain", "été", "日本\u3000語", "👩\u200d🚀", "a\u00a0b", "back\\slash", "\ue000"])
def test_text_that_only_shows_is_left_as_it_is(text):
    assert visible(text) == text


def test_lone_surrogates_can_be_printed():
    assert visible("a\udcff\ud800") == r"a\udcff\ud800"
    assert json.loads(json_text({"a": "\udcff"})) == {"a": "\udcff"}
    json_text({"a": "\udcff"}).encode()


@pytest.mark.parametrize("form", ["text", "fields"])
def test_decode_shows_what_a_peer_sent_and_does_not_run_it(wirelake, form):
    outcome = wirelake("decode", "emp", "-T", form, "-e", "type", "-e", "message", stdin=encode(Error(4, 1, 2, HOSTILE)) * 2)
    lines = outcome.out.decode().splitlines()
    assert len(lines) == 2
    assert all(SEEN in line for line in lines)
    assert acts(outcome.out.decode()) == set()


def test_json_is_exact_and_acts_on_no_terminal(wirelake):
    outcome = wirelake("decode", "emp", stdin=encode(Error(4, 1, 2, HOSTILE)))
    assert json.loads(outcome.out)["message"] == HOSTILE
    assert acts(outcome.out.decode()) == set()


def ending(monkeypatch, action):
    """Let every command be this."""

    def command(*_, **__):
        action()

    monkeypatch.setattr(main.app, "main", command)


def raising(error):
    def action():
        raise error

    return action


def test_an_error_that_quotes_a_peer_is_one_line(wirelake, monkeypatch):
    ending(monkeypatch, raising(PeerError(None, HOSTILE)))
    assert wirelake("call").talk == f"wirelake: {SEEN}\n"


def test_a_wrong_argument_is_printed_without_its_control_characters(wirelake):
    outcome = wirelake("decode", "emp", "--no-\x1b[31m-such")
    assert outcome.code == 64
    assert acts(outcome.talk) == set()


@pytest.mark.parametrize("name", ["wirelake.emp", "asyncio"])
def test_a_log_line_is_one_line(wirelake, monkeypatch, name):
    ending(monkeypatch, lambda: logging.getLogger(name).warning("from a peer: %s", HOSTILE))
    assert wirelake("serve").talk == f"from a peer: {SEEN}\n"


def test_a_traceback_in_the_log_is_indented_and_acts_on_nothing(wirelake, monkeypatch):
    def action():
        try:
            raise PeerError(None, HOSTILE)
        except PeerError:
            logging.getLogger("wirelake.emp").exception("it failed")

    ending(monkeypatch, action)
    first, *rest = wirelake("serve").talk.splitlines()
    assert first == "it failed"
    assert all(line.startswith("  ") for line in rest)
    assert acts("".join(rest)) == set()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-", "'-"),
        ("-12", "-12"),
        ("+1.5e-3", "+1.5e-3"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_spreadsheet_runs_nothing(text, cell):
    assert spreadsheet_cell(text) == cell


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (QueryError("x"), ExitCode.USAGE),
        (InputMissing("x"), ExitCode.NO_INPUT),
        (LakeMissing("x"), ExitCode.NO_INPUT),
        (LakeError("x"), ExitCode.FAILED),
        (RequestTimeout("x"), ExitCode.FAILED),
        (WirelakeError("x"), ExitCode.FAILED),
        (ConnectFailed("x"), ExitCode.UNAVAILABLE),
        (CaptureError("x", 0, "x"), ExitCode.FAILED),
        (CapturesMissing("x"), ExitCode.NO_INPUT),
        (PermissionError(13, "not allowed", "x"), ExitCode.FAILED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ZeroDivisionError("x"), ExitCode.INTERNAL),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else each.name,
)
def test_each_kind_of_error_has_one_exit_code_and_one_line(wirelake, monkeypatch, error, code):
    ending(monkeypatch, raising(error))
    outcome = wirelake("demo")
    assert (outcome.code, outcome.talk.count("\n")) == (code, 1)
    assert ("internal error" in outcome.talk) == (code is ExitCode.INTERNAL)


def test_the_help_lists_every_exit_code_with_its_meaning(wirelake):
    shown = " ".join(wirelake("--help").out.decode().split())
    assert all(f"{code.value} {code.meaning}" in shown for code in ExitCode)
    assert len({code.meaning for code in ExitCode}) == len(ExitCode)


def test_the_help_shows_the_first_sentence_of_each_command_whole(wirelake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = wirelake("--help").out.decode()
    assert "..." not in shown.partition("Commands:")[2]
    assert "dissector Write dissectors for Wireshark and tshark, one Lua file for each protocol." in " ".join(shown.split())


def commands(group: click.Command, *words: str):
    """Every command, with the words that lead to it."""
    yield words, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), *words, name)


EVERY = dict(commands(main.app))


@each("words", EVERY, ids=" ".join)
def test_every_command_takes_v_wherever_it_stands(words):
    assert [option.opts for option in EVERY[words].params if option.name == "verbose"] == [["-v", "--verbose"]]


@pytest.mark.parametrize("words", [("-v", "decode", "smtp"), ("decode", "-v", "smtp"), ("decode", "smtp", "--verbose")])
def test_v_shows_where_an_error_came_from(wirelake, words):
    outcome = wirelake(*words)
    assert outcome.code == 64
    assert outcome.talk.startswith("  Traceback")
    assert outcome.talk.splitlines()[-1].startswith("wirelake: unknown protocol 'smtp'")
    assert "Traceback" not in wirelake("decode", "smtp").talk, "-v is of one run"


def test_v_logs_what_wirelake_does_and_not_what_py4j_sends():
    script = """if True:
        import logging, sys
        from wirelake.cli import main, report
        def write(**_):
            logging.getLogger("wirelake.lake").debug("stage one")
            logging.getLogger("py4j.clientserver").debug("Command to send: A secret")
            logging.getLogger("py4j.clientserver").info("Received command c")
            logging.getLogger("py4j").warning("py4j is worried")
        main.app.get_command(None, "report").callback = write
        sys.exit(main.run(["report", "-v", "lake"]))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [line.split(" ", 2)[2] for line in done.stderr.splitlines()] == [
        "wirelake.lake DEBUG stage one",
        "py4j WARNING py4j is worried",
    ]


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        (["decode"], "", list(protocols.names())),
        (["decode"], "event-m", ["event_mesh"]),
        (["encode"], "e", ["emp", "event_mesh"]),
        (["serve"], "e", ["emp", "event_mesh"]),
        ([], "de", ["demo", "decode"]),
        (["decode", "emp"], "--h", ["--hex", "--help"]),
    ],
)
def test_shells_complete_commands_options_and_protocols(words, begun, offered):
    found = ShellComplete(main.app, {}, "wirelake", "_WIRELAKE_COMPLETE").get_completions(words, begun)
    assert [item.value for item in found] == offered


def test_shells_complete_the_tables_of_a_lake(tmp_path):
    for name in ("messages", "metrics", "_wirelake"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
    found = ShellComplete(main.app, {}, "wirelake", "_WIRELAKE_COMPLETE").get_completions(["query", str(tmp_path)], "m")
    assert [item.value for item in found] == ["messages", "metrics"]


@pytest.mark.parametrize("spelling", ["event_mesh", "event-mesh"])
def test_a_protocol_is_printed_in_one_spelling_and_taken_in_both(wirelake, spelling):
    assert wirelake("serve", spelling, "--help").code == 0
    assert wirelake("decode", spelling, "--hex", stdin=b"").code == 0
    for words in (("serve", "--help"), ("decode", "--help")):
        assert b"event-mesh" not in wirelake(*words).out


@pytest.mark.parametrize("show", ["live.emit", "protocols.yamp._print", "protocols.wolpertinger._print"])
def test_what_live_peers_receive_acts_on_no_terminal(capsys, show):
    module, _, name = show.rpartition(".")
    getattr(import_module(f"wirelake.cli.{module}"), name)({"body": HOSTILE})
    shown = capsys.readouterr().out
    assert json.loads(shown)["body"] == HOSTILE
    assert acts(shown) == set()
