"""`wirelake mcp`: a real server process, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from tests.explore.lakes import lake_of
from tests.explore.test_bytes import emp_recording, relink_recording
from tests.explore.test_export import emp_with_two_hellos

from wirelake.cli.exit_codes import ExitCode
from wirelake.explore.mcp.server import TOOLS
from wirelake.explore.query import query
from wirelake.protocols.kernel import use_plain

Ask = Callable[[Callable[[Client], Awaitable[Any]]], Any]
"""Asks a server, and returns the answer."""
PATIENCE = 120


@pytest.fixture(scope="module")
def talks(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mcp")
    use_plain()
    captures = [
        emp_recording(folder / "emp.pcapng"),
        relink_recording(folder / "relink.pcapng"),
        emp_with_two_hellos(folder / "hellos.pcapng"),
    ]
    yield lake_of(fill, folder / "lake", captures)
    use_plain(False)


@contextmanager
def running(lake: Path, *flags: str) -> Iterator[Ask]:
    """Start a server; gives a function that asks it. The client lives in a thread, because one task must open and close it."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": ""}
    server = StdioServerParameters(command=sys.executable, args=["-m", "wirelake", "mcp", str(lake), *flags], env=environment)
    opened: Future[tuple[Client, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        try:
            async with Client(server) as client:
                is_over = asyncio.Event()
                opened.set_result((client, asyncio.get_running_loop(), is_over))
                await is_over.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    client, loop, is_over = opened.result(PATIENCE)

    async def asked(ask: Callable[[Client], Awaitable[Any]]) -> Any:
        return await ask(client)

    try:
        yield lambda ask: asyncio.run_coroutine_threadsafe(asked(ask), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def asking(talks: Path) -> Iterator[Ask]:
    """One server for all questions about these conversations."""
    with running(talks) as ask:
        yield ask


def answers(asking: Ask, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers to these questions; an error is its text."""

    async def ask(client: Client) -> list[Any]:
        found = [await client.call_tool(name, arguments) for name, arguments in questions]
        return [one.content[0].text if one.is_error else one.structured_content for one in found]

    found: list[Any] = asking(ask)
    return found


def test_the_tools_are_named_described_and_read_only(asking: Ask) -> None:
    async def ask(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = asking(ask)
    assert [tool.name for tool in tools] == list(TOOLS)
    for tool in tools:
        assert tool.description
        assert tool.annotations.read_only_hint is True
        assert all(argument.get("description") for argument in tool.input_schema.get("properties", {}).values()), tool.name
    assert "protocol:relink" in json.dumps(tools[0].input_schema)


def test_an_agent_finds_its_way_from_a_search_to_bytes(talks: Path, asking: Ask) -> None:
    async def ask(client: Client) -> None:
        found = (await client.call_tool("search", {"filter": "kind:request protocol:emp", "limit": 2})).structured_content
        expected = query(talks, "SELECT message_id FROM messages WHERE kind = 'request' AND protocol = 'emp' ORDER BY ts, message_id")
        ids = expected.column(0).to_pylist()
        assert (found["total"], [row["id"] for row in found["rows"]]) == (len(ids), ids[:2])
        assert found["of"] == query(talks, "SELECT count(*) FROM messages").column(0)[0].as_py() > len(ids)
        more = (
            await client.call_tool("search", {"filter": "kind:request protocol:emp", "limit": 2, "after": found["after"]})
        ).structured_content
        assert [row["id"] for row in more["rows"]] == ids[2:4]
        line = found["rows"][0]
        session = (await client.call_tool("session", {"session_id": line["session"][:12], "limit": 3})).structured_content
        assert session["session"]["id"] == line["session"]
        assert len(session["messages"]) == 3 < session["total"]
        message = (await client.call_tool("message", {"message_id": line["id"]})).structured_content
        assert message["own"]["request_id"] == 1
        assert message["body"] == "?"
        raw = (await client.call_tool("bytes", {"message_id": line["id"], "layer": "frame"})).structured_content
        (layer,) = raw["layers"]
        assert sum(field["stop"] - field["start"] for field in layer["fields"]) == layer["size"] == len(bytes.fromhex(layer["hex"]))

    asking(ask)


def test_broken_rules_come_with_their_text_and_places(asking: Ask) -> None:
    rules, places, others = answers(
        asking, ("violations", {}), ("violations", {"rule": "HELLO_REPEATED"}), ("violations", {"protocol": "yamp"})
    )
    (rule,) = [one for one in rules["rules"] if one["rule"] == "HELLO_REPEATED"]
    assert rule["why"]
    assert rule["count"] == len(places["violations"]) == 1
    assert places["violations"][0]["session"]
    assert others["total"] == 0


def test_sql_has_the_limits_of_query(talks: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with running(talks, "--seconds", "5", "--memory", "64") as asking:
        rows, cut, file, write, two, slow, large = answers(
            asking,
            ("sql", {"statement": "SELECT protocol, count(*) AS n FROM messages GROUP BY protocol ORDER BY protocol"}),
            ("sql", {"statement": "SELECT repeat('x', 50000) FROM messages", "limit": 1}),
            ("sql", {"statement": f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')"}),
            ("sql", {"statement": f"COPY messages TO '{tmp_path / 'out.csv'}'"}),
            ("sql", {"statement": "SELECT 1; SELECT 2"}),
            ("sql", {"statement": "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"}),
            ("sql", {"statement": "SELECT list(a.range) FROM range(100000000) a"}),
        )
    assert rows["columns"] == ["protocol", "n"]
    assert [row[0] for row in rows["rows"]] == ["emp", "relink"]
    assert (cut["is_cut"], len(cut["rows"]), len(cut["rows"][0][0])) == (True, 1, 10_000)
    assert "secret" in file
    assert "only read" in write
    assert not (tmp_path / "out.csv").exists()
    assert "one statement" in two
    assert "longer than 5 s" in slow
    assert "memory" in large


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("range(3000000)", "rows[0][0] has 3,000,000 items, 1,000 of them are here"),
        ("{'a': [range(3000000)]}", "rows[0][0].a[0] has 3,000,000 items, 1,000 of them are here"),
        ("map([1], [repeat('x', 3000000)])", "rows[0][0][0].value has 3,000,000 bytes, 10,000 of them are here"),
        ("repeat('é', 3000000)", "rows[0][0] has 6,000,000 bytes, 10,000 of them are here"),
        ("repeat('x', 3000000)::BLOB", "rows[0][0] has 3,000,000 bytes, 5,000 of them are here"),
        ("[range(1000) FOR x IN range(1000)]", "rows[0][0] has 1,000 items, 82 of them are here"),
    ],
)
def test_an_answer_is_bounded_and_says_so(asking: Ask, value: str, note: str) -> None:
    answer = asking(lambda client: client.call_tool("sql", {"statement": f"SELECT {value} AS wide"}))
    assert len(json.dumps(answer.structured_content)) < 500_000
    assert note in answer.structured_content["left_out"]


def test_a_long_error_is_bounded(asking: Ask) -> None:
    answer = asking(lambda client: client.call_tool("sql", {"statement": "SELECT repeat('x', 3000000)::INT"}))
    assert answer.is_error
    assert len(answer.content[0].text) < 20_000


@pytest.mark.parametrize(
    ("question", "arguments", "text"),
    [
        ("search", {"filter": "kind:nothing"}, "never 'nothing'"),
        ("search", {"limit": 100_000}, "500"),
        ("session", {"session_id": "ffff"}, "no session"),
        ("message", {"message_id": "zz"}, "hex digits"),
        ("bytes", {"message_id": "00"}, "no message"),
        ("sql", {}, "statement"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(asking: Ask, question: str, arguments: dict[str, Any], text: str) -> None:
    assert text in answers(asking, (question, arguments))[0]


def test_a_source_that_is_gone_is_said(fill: Callable[..., Path], tmp_path: Path) -> None:
    path = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [path])
    path.unlink()
    message = query(lake, "SELECT message_id FROM messages WHERE kind = 'request'").column(0)[0].as_py()
    with running(lake) as asking:
        (raw,) = answers(asking, ("bytes", {"message_id": message}))
    assert "cannot be read" in raw["note"]


def test_the_server_ends_with_its_input_and_says_nothing_else(talks: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wirelake", "mcp", str(talks)],
        input="",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"PYTHONWARNINGS": ""},
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.OK, "", "")


def test_a_folder_that_is_no_lake_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wirelake", "mcp", str(tmp_path)],
        input="",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"PYTHONWARNINGS": ""},
    )
    assert done.returncode == ExitCode.NO_INPUT
    assert "is not a lake" in done.stderr
