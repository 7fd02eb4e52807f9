"""Marks and comments: kept beside the lake, safe with several writers, and written only by pages of this server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.explore.rows import message, session
from tests.explore.served import served

from wirelake.errors import LakeError, UsageError
from wirelake.explore.comments import MARKS, MAX_CHARACTERS, About, Comments, prune
from wirelake.explore.web.comment_pages import MAX_FORM_BYTES
from wirelake.lake.store import folder, journal

MESSAGE, OTHER, SESSION = (bytes([number]) * 16 for number in (1, 2, 3))
HERE = {"message_id": MESSAGE, "session_id": SESSION, "connection_id": SESSION, "protocol": "emp", "name": "data", "size": 5}
ROWS = {
    "messages": [message(0, **HERE, status="ok", source="/a", offset=0, length=5)],
    "sessions": [session(SESSION)],
}


@pytest.fixture
def lake(fill: Callable[..., Path], tmp_path: Path) -> Path:
    return fill(tmp_path / "lake", ROWS)


def test_marks_and_comments_are_kept_beside_the_lake(lake: Path) -> None:
    comments = Comments(lake)
    comments.mark(About.MESSAGE, MESSAGE.hex(), "cause")
    comments.add(About.MESSAGE, MESSAGE.hex(), " first\r\nline ")
    note = comments.add(About.SESSION, SESSION.hex(), "<script>slow</script>")
    again = Comments(lake)
    assert again.note(About.MESSAGE, MESSAGE.hex()).mark == "cause"
    assert [comment.text for comment in again.note(About.MESSAGE, MESSAGE.hex()).comments] == ["first\nline"]
    assert again.note(About.SESSION, SESSION.hex()) == note
    assert not again.note(About.SESSION, OTHER.hex())
    assert folder.foreign(lake) == []  # no table, and no foreign file


def test_what_is_removed_leaves_nothing(lake: Path) -> None:
    comments = Comments(lake)
    comments.mark(About.MESSAGE, MESSAGE.hex(), "cause")
    note = comments.add(About.MESSAGE, MESSAGE.hex(), "text")
    comments.remove(About.MESSAGE, MESSAGE.hex(), note.comments[0].id)
    comments.mark(About.MESSAGE, MESSAGE.hex(), None)
    assert comments.read().message == {}


def test_several_writers_lose_nothing(lake: Path) -> None:
    def write(number: int) -> None:
        own = Comments(lake)
        for turn in range(10):
            own.add(About.MESSAGE, MESSAGE.hex(), f"{number}.{turn}")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):  # readers see whole files, and nothing is lost between two looks
        now = len(Comments(lake).read())
        assert now >= seen
        seen = now
    for writer in writers:
        writer.join()
    texts = {comment.text for comment in Comments(lake).note(About.MESSAGE, MESSAGE.hex()).comments}
    assert texts == {f"{number}.{turn}" for number in range(6) for turn in range(10)}


@pytest.mark.parametrize(("content", "text"), [(b"{", "damaged"), (b'{"version": 99}', "newer wirelake")])
def test_a_file_that_cannot_be_read_is_an_error_and_stays(lake: Path, content: bytes, text: str) -> None:
    journal.write(lake, "comments.json", content)
    with pytest.raises(LakeError, match=text):
        Comments(lake).add(About.MESSAGE, MESSAGE.hex(), "text")
    assert journal.read(lake, "comments.json") == content


def test_limits_say_what_to_do(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comments = Comments(lake)
    with pytest.raises(UsageError, match=f"at most {MAX_CHARACTERS}"):
        comments.add(About.MESSAGE, MESSAGE.hex(), "x" * (MAX_CHARACTERS + 1))
    with pytest.raises(UsageError, match="empty"):
        comments.add(About.MESSAGE, MESSAGE.hex(), " \n")
    with pytest.raises(UsageError, match="choose one of important"):
        comments.mark(About.MESSAGE, MESSAGE.hex(), "other")
    with pytest.raises(UsageError, match="32 hex digits"):
        comments.add(About.MESSAGE, "../../etc/passwd", "text")
    monkeypatch.setattr("wirelake.explore.comments.MAX_COMMENTS", 2)
    note = comments.add(About.MESSAGE, MESSAGE.hex(), "one")
    comments.add(About.MESSAGE, MESSAGE.hex(), "two")
    with pytest.raises(UsageError, match="remove some"):
        comments.add(About.MESSAGE, MESSAGE.hex(), "three")
    assert len(comments.remove(About.MESSAGE, MESSAGE.hex(), note.comments[0].id).comments) == 1


def test_comments_of_what_the_lake_does_not_have_are_removed(lake: Path) -> None:
    comments = Comments(lake)
    for target in (MESSAGE, OTHER):
        comments.add(About.MESSAGE, target.hex(), "text")
    comments.mark(About.SESSION, SESSION.hex(), "cause")
    comments.mark(About.SESSION, OTHER.hex(), "cause")
    assert prune(lake) == 2
    assert (set(comments.read().message), set(comments.read().session)) == ({MESSAGE.hex()}, {SESSION.hex()})
    assert prune(lake) == 0


@pytest.fixture
def client(lake: Path) -> Iterator[httpx.Client]:
    with served(lake) as address, httpx.Client(base_url=address, trust_env=False, timeout=60) as opened:
        yield opened


def form(client: httpx.Client, **fields: str) -> dict[str, str]:
    """The fields of a form on the page of the message."""
    found = re.search(r'name="secret" value="([^"]+)"', client.get(f"/messages/{MESSAGE.hex()}").text)
    assert found is not None
    return {"secret": found[1], "about": "message", "id": MESSAGE.hex(), "action": "comment", "text": "hello"} | fields


def post(client: httpx.Client, fields: dict[str, str], **headers: str) -> httpx.Response:
    return client.post("/comments", data=fields, headers={"origin": str(client.base_url).rstrip("/")} | headers)


def test_a_form_writes_and_leads_back(client: httpx.Client) -> None:
    response = post(client, form(client, text="<b>why</b> & so"))
    assert (response.status_code, response.headers["location"]) == (303, f"/messages/{MESSAGE.hex()}")
    post(client, form(client, action="mark", mark="cause"))
    post(client, form(client, about="session", id=SESSION.hex(), action="mark", mark="question"))
    page = client.get(f"/messages/{MESSAGE.hex()}").text
    assert "&lt;b&gt;why&lt;/b&gt; &amp; so" in page
    row = client.get("/messages.json").json()["rows"][0]
    assert (row["mark"], row["comments"]) == ("cause", 1)
    assert client.get("/sessions.json").json()["rows"][0]["mark"] == "question"
    ladder = client.get(f"/sessions/{SESSION.hex()}/ladder.json").json()
    assert (ladder["rows"][0]["mark"], ladder["session"]["mark"]) == ("cause", "question")
    both = client.get("/comments.json").json()["rows"]
    assert [(row["about"], row["note"].get("mark")) for row in both] == [("message", "cause"), ("session", "question")]
    post(client, form(client, action="delete", comment=both[0]["note"]["comments"][0]["id"], back="comments"))
    assert "comments" not in client.get("/messages.json").json()["rows"][0]


def test_a_script_gets_the_note(client: httpx.Client) -> None:
    response = post(client, form(client, action="mark", mark=MARKS[0]), accept="application/json")
    assert response.json() == {"mark": MARKS[0]}
    assert post(client, form(client, action="mark", mark=""), accept="application/json").json() == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ],
)
def test_no_other_site_writes(lake: Path, client: httpx.Client, headers: dict[str, str]) -> None:
    assert post(client, form(client), **headers).status_code in (403, 421)
    assert len(Comments(lake).read()) == 0


def test_a_request_without_an_origin_or_the_secret_writes_nothing(lake: Path, client: httpx.Client) -> None:
    assert client.post("/comments", data=form(client)).status_code == 403
    for secret in ("", "wrong"):
        assert post(client, form(client, secret=secret)).status_code == 403
    assert len(Comments(lake).read()) == 0


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"id": OTHER.hex()}, 404, "no message"),
        ({"id": "../../etc/passwd"}, 404, "hex digits"),
        ({"about": "file"}, 400, "message, session"),
        ({"action": "burn"}, 400, "mark, comment, delete"),
        ({"text": ""}, 400, "empty"),
        ({"action": "mark", "mark": "x"}, 400, "important"),
        ({"text": "x" * MAX_FORM_BYTES}, 413, "bytes"),
    ],
)
def test_a_wrong_form_says_why(client: httpx.Client, fields: dict[str, str], status: int, text: str) -> None:
    response = post(client, form(client, **fields), accept="application/json")
    assert response.status_code == status
    assert text in response.text


def test_a_damaged_file_hides_no_message(lake: Path, client: httpx.Client) -> None:
    journal.write(lake, "comments.json", json.dumps({"version": 99}).encode())
    assert client.get("/comments").status_code == 500
    assert client.get("/messages").status_code == 200
    for path in (f"/messages/{MESSAGE.hex()}", f"/sessions/{SESSION.hex()}"):
        page = client.get(path)
        assert page.status_code == 200
        assert "newer wirelake" in page.text
