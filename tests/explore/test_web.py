"""The pages as a program sees them: every page and its twin, errors, and which requests are answered at all."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import httpx
import pytest
from tests.explore.lakes import lake_of
from tests.explore.rows import SPOKEN, message
from tests.explore.served import served
from tests.explore.test_bytes import emp_in_segments, emp_recording, relink_recording

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.explore.export.export import Format
from wirelake.explore.query import QueryLimits
from wirelake.explore.web import pages
from wirelake.explore.web.application import WebOptions
from wirelake.explore.web.guard import COOKIE
from wirelake.protocols.kernel import use_plain

TOKEN = secrets.token_hex(8)
OWN = "the address of this server"


@pytest.fixture(scope="module")
def talks(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two recordings and a capture, whose files are there."""
    folder = tmp_path_factory.mktemp("talks")
    use_plain()
    files = [emp_recording(folder / "emp.pcapng"), relink_recording(folder / "relink.pcapng"), emp_in_segments(folder / "segments.pcap")]
    return lake_of(fill, folder / "lake", files)


@contextmanager
def asking(lake: Path, options: WebOptions | None = None) -> Iterator[httpx.Client]:
    """A client of a lake that is served."""
    with served(lake, options) as address, httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(talks: Path) -> Iterator[httpx.Client]:
    with asking(talks) as opened:
        yield opened
    use_plain(False)


@pytest.fixture(scope="module")
def ids(client: httpx.Client) -> dict[str, str]:
    """Route -> an id of the lake for it."""
    return {
        "/messages/{id}": client.get("/messages.json").json()["rows"][3]["id"],
        "/sessions/{id}": client.get("/sessions.json").json()["rows"][0]["id"],
        "/files/{id}": client.get("/files.json").json()["rows"][0]["id"],
    }


@pytest.mark.parametrize("path", pages.ROUTES)
def test_every_page_has_a_twin(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    whole = path.replace("{id}", ids.get(path, ""))
    page, twin = client.get(whole), client.get("/index.json" if whole == "/" else f"{whole}.json")
    assert (page.status_code, twin.status_code) == (200, 200)
    assert page.headers["content-type"].startswith("text/html")
    assert twin.headers["content-type"] == "application/json"
    assert json.loads(twin.content)
    assert "</html>" in page.text


@pytest.mark.parametrize("path", pages.ROUTES)
def test_pages_have_no_inline_script_or_style(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    text = client.get(path.replace("{id}", ids.get(path, ""))).text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)


def test_all_files_of_a_page_are_there(client: httpx.Client) -> None:
    for name in re.findall(r"/static/[\w./-]+", client.get("/").text):
        assert client.get(name).status_code == 200
    source = client.get("/static/app.js").text
    for name in re.findall(r'from "\./([\w.]+)"|import "\./([\w.]+)"', source):
        assert client.get(f"/static/{''.join(name)}").status_code == 200


@pytest.mark.slow
def test_a_message_has_its_bytes_and_fields(client: httpx.Client) -> None:
    rows = client.get("/messages.json").json()["rows"]
    for row in {(row["protocol"], row["name"], row["session"]): row for row in rows}.values():
        found = client.get(f"/messages/{row['id']}.json").json()
        frame = found["layers"][0]
        assert found["gone"] is None
        assert frame["name"] == "frame"
        assert len(bytes.fromhex(frame["hex"])) == row["size"]
        assert frame["fields"][-1]["stop"] == row["size"]


@pytest.mark.slow
def test_a_file_that_is_gone_is_said_on_the_page(fill: Callable[..., Path], tmp_path: Path) -> None:
    path = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [path])
    path.unlink()
    with asking(lake) as client:
        message = next(row["id"] for row in client.get("/messages.json?q=kind:request").json()["rows"])
        text = client.get(f"/messages/{message}").text
    assert "cannot be read" in text
    assert "request_id" in text


def test_an_empty_list_says_of_how_many_nothing_passes(client: httpx.Client) -> None:
    whole = client.get("/messages/count.json").json()["count"]
    exchanges = sum(client.get("/exchanges.json").json()["counts"].values())
    assert min(whole, exchanges) > 0
    assert f"0 of {whole} shown" in client.get("/messages?q=kind:nothing*").text
    assert f"0 of {exchanges} shown" in client.get("/exchanges?q=kind:nothing*").text


@pytest.mark.parametrize("path", ["/messages", "/exchanges", "/messages/count", "/histogram", "/exports"])
def test_the_syntax_of_other_programs_is_refused_with_what_to_write(client: httpx.Client, path: str) -> None:
    answer = client.get(f"{path}.json", params={"q": "kind:request tcp.port==5040"})
    assert answer.status_code == 400
    assert "column 14: `tcp.port==5040` is Wireshark's spelling: write port:5040" in answer.json()["error"]


def test_a_choice_is_one_term_of_a_page_and_is_removed_as_one(client: httpx.Client) -> None:
    text = unescape(client.get("/messages", params={"q": "(kind:request or kind:response) -rule:*"}).text)
    tokens = re.findall(r'<li><span>(.*?)</span><a href="\?q=(.*?)"', text)
    assert [(term, unquote_plus(rest)) for term, rest in tokens] == [
        ("kind:request or kind:response", "-rule:*"),
        ("-rule:*", "kind:request or kind:response"),
    ]


@pytest.mark.slow
def test_lists_go_on_where_they_ended(client: httpx.Client) -> None:
    whole = [row["id"] for row in client.get("/messages.json?limit=1000").json()["rows"]]
    seen, after = [], ""
    while after is not None:
        page = client.get("/messages.json", params={"limit": 7, "after": after}).json()
        seen += [row["id"] for row in page["rows"]]
        after = page["after"]
    assert seen == whole
    for text, count in (("", len(whole)), ("kind:nothing*", 0)):
        found = client.get("/messages/count.json", params={"q": text}).json()
        assert (found["count"], found["of"]) == (count, len(whole))
    assert sum(map(sum, client.get("/histogram.json").json()["series"].values())) == len(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/messages?q=kind:nothing", 400, "choose one of"),
        ("/messages?q=number:4", 400, "no number"),
        ("/messages?q=%22", 400, "quote"),
        ("/messages?after=../../etc/passwd", 404, "etc/passwd"),
        ("/messages?limit=many", 400, "write a number"),
        ("/messages?order=up", 400, "oldest, newest"),
        ("/messages/zz", 404, "hex digits"),
        ("/messages/00", 404, "no message"),
        ("/sessions/ffff", 404, "no session"),
        ("/files/00", 404, "no file"),
        ("/nothing", 404, "no such page"),
        ("/sql?sql=select+1+from+nowhere", 400, "nowhere"),
        ("/sql?sql=drop+table+ends", 400, "only read"),
    ],
)
def test_what_cannot_be_answered_says_why(client: httpx.Client, path: str, status: int, text: str) -> None:
    where, _, query = path.partition("?")
    for variant in (path, f"{where}.json?{query}"):
        response = client.get(variant)
        assert response.status_code == status, variant
        assert text in response.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/a.parquet')",
        "COPY messages TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list; SELECT 1",
        "SELECT 1; SELECT 2",
        "CREATE TABLE a AS SELECT 1",
        "EXPLAIN ANALYZE CREATE TABLE a AS SELECT 1",
    ],
)
def test_sql_reads_the_tables_of_the_lake_and_nothing_else(client: httpx.Client, sql: str) -> None:
    response = client.get("/sql.json", params={"sql": sql})
    assert response.status_code == 400
    assert "root:" not in response.text


@pytest.mark.slow
def test_sql_has_a_table_and_a_chart(client: httpx.Client) -> None:
    sql = "SELECT protocol, count(*) AS messages FROM messages GROUP BY protocol ORDER BY protocol"
    assert client.get("/sql.json", params={"sql": sql}).json()["rows"][0][0] == "emp"
    text = client.get("/sql", params={"sql": sql}).text
    assert 'class="chart"' in text
    assert re.search(r">\d+</text>", text)
    assert 'class="chart"' not in client.get("/sql", params={"sql": "SELECT 'a', 'b'"}).text


@pytest.mark.slow
def test_a_query_that_takes_too_long_ends(talks: Path) -> None:
    slow = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7"
    with asking(talks, WebOptions(limits=QueryLimits(seconds=0.3))) as client:
        response = client.get("/sql.json", params={"sql": slow})
    assert response.status_code == 400
    assert "longer than 0.3 s" in response.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../application.py",
        "/static/..%2fapplication.py",
        "/static/%2e%2e/application.py",
        "/static/..%5capplication.py",
        "/static//etc/passwd",
        "/static/%2fetc/passwd",
        "/messages/..%2f..%2fetc%2fpasswd",
        "/files/..%2f..%2fetc%2fpasswd",
        "/sessions/%00",
    ],
)
def test_no_path_leads_out_of_the_package(client: httpx.Client, path: str) -> None:
    connection = HTTPConnection(client.base_url.host, client.base_url.port or 80)  # changes nothing about a path
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 404
    assert "root:" not in text
    assert "import " not in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8000"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1"}, 400),
        ({"host": "localhost:http"}, 400),
        ({"origin": "http://[::1"}, 400),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": OWN}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_only_requests_of_this_site_for_this_server_are_answered(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    own = str(client.base_url).rstrip("/")
    response = client.get("/messages.json", headers={name: own if value == OWN else value for name, value in headers.items()})
    assert response.status_code == status
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_server_only_reads(client: httpx.Client, method: str) -> None:
    assert client.request(method, "/messages").status_code == 405


def test_with_a_token_every_request_must_carry_it(talks: Path) -> None:
    with asking(talks, WebOptions(host="192.0.2.1", token=TOKEN)) as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/app.js").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        moved = client.get(f"/messages?q=kind:event&token={TOKEN}")
        assert moved.headers["location"] == "/messages?q=kind%3Aevent"
        cookie = moved.headers["set-cookie"].lower()
        assert all(part in cookie for part in (COOKIE, "httponly", "samesite=strict"))
        assert client.get("/messages").status_code == 200  # with the cookie


def test_a_token_leads_to_no_other_server(talks: Path) -> None:
    with asking(talks, WebOptions(host="192.0.2.1", token=TOKEN)) as client:
        connection = HTTPConnection(client.base_url.host, client.base_url.port or 80)
        connection.request("GET", f"//evil.example/messages?token={TOKEN}")
        response = connection.getresponse()
        response.read()
        connection.close()
    assert (response.status, response.headers["location"]) == (303, "/evil.example/messages")


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.PARQUET])
def test_an_export_is_what_the_command_writes(talks: Path, client: httpx.Client, form: Format, tmp_path: Path) -> None:
    wanted = "protocol:emp kind:request"
    row = next(row for row in client.get("/exports.json", params={"q": wanted}).json()["rows"] if row["format"] == form.value)
    assert row["command"].startswith("wirelake export ")
    response = client.get(row["href"])
    assert response.status_code == 200
    assert "attachment" in response.headers["content-disposition"]
    *words, out = shlex.split(row["command"])
    assert run([*words[1:], str(tmp_path / out)]) == ExitCode.OK
    written = (tmp_path / out).read_bytes()
    if form is Format.HTML:  # the server names its lake with the folder above
        assert response.text.count("<tr") == written.decode().count("<tr")
    else:
        assert response.content == written


def test_no_export_is_left_behind(talks: Path, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert client.get("/export?q=kind:request&format=csv").content.startswith(b"message_id")
    assert client.get("/export?q=kind:nothing&format=csv").status_code == 400
    assert client.get("/export?q=&format=exe").status_code == 400
    assert list(tmp_path.iterdir()) == []


def test_no_link_of_another_site_exports(client: httpx.Client) -> None:
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/messages", headers=visit).status_code == 200
    assert client.get("/export?format=csv", headers=visit).status_code == 403


def test_a_broken_rule_comes_with_the_words_of_the_rule_book(lake: Path) -> None:
    wanted = {"rule": "HELLO_REPEATED", "protocol": "emp"}
    with asking(lake) as client:
        (entry,) = client.get("/violations.json", params=wanted).json()["entries"]
        page = unescape(client.get("/violations", params=wanted).text)
    assert entry["id"] == SPOKEN["violations"][0]["clause"]
    assert entry["title"] in page
    assert entry["rule"].replace("`", "") in page
    assert entry["why"].replace("`", "") in page


def test_two_of_a_kind_are_compared(client: httpx.Client) -> None:
    rows = client.get("/messages.json?q=protocol:emp+kind:request").json()["rows"]
    sessions = client.get("/sessions.json").json()["rows"]
    one = client.get("/diff.json", params={"a": f"message:{rows[0]['id']}", "b": f"message:{rows[1]['id']}"}).json()
    assert one["kind"] == "messages"
    assert one["difference"]["is_different"]
    a, b = (next(row["id"] for row in sessions if row["protocol"] == name) for name in ("emp", "relink"))
    both = client.get("/diff.json", params={"a": f"session:{a}", "b": f"session:{b}"}).json()["difference"]
    assert (both["a"]["sessions"], both["b"]["sessions"]) == (1, 1)
    assert both["steps"]
    page = client.get("/diff", params={"a": f"session:{a}", "b": f"session:{b}"}).text
    assert "Messages side by side" in page
    same = client.get("/diff", params={"a": "protocol:emp", "b": "protocol:emp"}).text
    assert "No difference" in same


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [("kind:nothing", "", "choose one of"), ("message:00", "message:00", "no message"), ("message:00", "kind:event", "with a message")],
)
def test_a_comparison_that_cannot_be_made_says_why(client: httpx.Client, a: str, b: str, text: str) -> None:
    response = client.get("/diff", params={"a": a, "b": b})
    assert response.status_code in (400, 404)
    assert text in response.text


def test_a_time_range_is_compared_with_the_one_before(client: httpx.Client) -> None:
    a = "kind:event since:2025-03-01T12:00:10Z until:2025-03-01T12:00:19.999999Z"
    page = client.get("/diff", params={"a": a}).text
    link = re.search(r'href="(/diff[^"]+)">the time before', page)
    assert link is not None
    wanted = httpx.URL(link[1].replace("&amp;", "&")).params["b"]
    assert wanted == "kind:event since:2025-03-01T12:00:00Z until:2025-03-01T12:00:09.999999Z"


def walk(value: Any) -> Iterator[Any]:
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(one)


def test_times_are_whole_microseconds(client: httpx.Client) -> None:
    found = client.get("/messages.json").json()
    assert all(isinstance(one["ts"], int) for one in walk(found) if isinstance(one, dict) and "ts" in one)


def test_an_answer_to_sql_is_bounded_and_says_so(client: httpx.Client) -> None:
    """`range(3000000)` made a page of 75 MB."""
    page, twin = (client.get(f"/sql{kind}", params={"sql": "SELECT range(3000000), [repeat('x', 5000)]"}) for kind in ("", ".json"))
    assert len(page.content) < 50_000
    assert twin.json()["left_out"] == [
        "rows[0][0] has 3,000,000 items, 1,000 of them are here",
        "rows[0][1][0] has 5,000 bytes, 2,000 of them are here",
    ]
    assert "3,000,000 items" in page.text


def test_characters_that_change_a_direction_are_written_out_in_pages_and_exact_in_data(fill: Callable[..., Path], tmp_path: Path) -> None:
    text = "a\u202eb\u2066c\u2069d\u200fe\u061cf\u200bg"
    row = message(0, message_id=b"m" * 16, protocol="emp", name=text, subject=text, size=1, status="ok", source="/a", offset=0, length=1)
    with asking(fill(tmp_path / "lake", {"messages": [row]})) as client:
        for path in ("/messages", f"/messages/{b'm'.hex() * 16}", "/sql?sql=SELECT name, [name] FROM messages"):
            page = client.get(path).text
            assert not re.search("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]", page), path
            assert r"a\u202eb\u2066c\u2069d\u200fe\u061cf\u200bg" in page
        assert client.get("/messages.json").json()["rows"][0]["name"] == text
        assert client.get("/sql.json?sql=SELECT name FROM messages").json()["rows"] == [[text]]
        searched = client.get("/messages", params={"q": f"subject:{text}"}).text
        assert f'value="subject:{text}"' in searched, "what is sent again is exact"
