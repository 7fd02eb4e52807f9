"""The pages as a person sees them: a real browser that loads, drags, clicks and types. No page may log an error."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.explore.lakes import lake_of
from tests.explore.rows import at, exchange, message, session, violation
from tests.explore.served import served
from tests.explore.test_bytes import emp_in_segments, emp_recording, relink_recording
from tests.explore.test_read import HELLO, answered, asked, clock

from wirelake.capture.record.recorder import Recorder
from wirelake.explore.comments import About, Comments
from wirelake.explore.web import pages as web_pages
from wirelake.lake.store import delta, snapshot
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.kernel import use_plain

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The same engine twice; without windows it needs half the CPU."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: make tools, or apt-get install -y chromium-headless-shell"),
]
playwright = pytest.importorskip("playwright.sync_api")
axe_playwright_python = pytest.importorskip("axe_playwright_python")

LONG = 10_000
"""Messages of the long session."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("browser")
    use_plain()
    files = [emp_recording(folder / "emp.pcapng"), relink_recording(folder / "relink.pcapng"), emp_in_segments(folder / "segments.pcap")]
    with served(lake_of(fill, folder / "lake", files)) as own:
        yield own
    use_plain(False)


class Watched:
    """A page, and everything that went wrong on it."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
        self.wrong: list[str] = []
        self.expected: str | None = None
        """Part of the errors that a test provokes."""
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.wrong.append(said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: request.url.startswith("http://127.0.0.1") or self.wrong.append(request.url))
        self.loading: set[Any] = set()
        """Requests under way."""
        self.page.on("request", self._begins)
        self.page.on("requestfinished", self._ends)
        self.page.on("requestfailed", self._ends)

    def _begins(self, request: Any) -> None:
        self.loading.add(request)

    def _ends(self, request: Any) -> None:
        self.loading.discard(request)

    def settle(self) -> None:
        """Wait until nothing is being loaded, and drawing what came leads to no further request.

        Playwright's own wait for an idle network is half a second long for every page. Pages ask at once for what they show.
        """
        until = time.monotonic() + 30
        quiet = 0
        while quiet < 3:
            assert time.monotonic() < until, f"{self.page.url} still loads {[one.url for one in self.loading]}"
            self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            quiet = 0 if self.loading else quiet + 1


def in_soak(look: str) -> Any:
    """Leave a look to `make soak`: it takes half a minute, and shares its pages with the others."""
    return pytest.param(look, marks=pytest.mark.long)


@pytest.fixture(params=["wide"])
def watched(browser: Any, request: pytest.FixtureRequest) -> Iterator[Watched]:
    looks = {
        "wide": {"viewport": {"width": 1300, "height": 800}},
        "phone": {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True},
        "dark": {"viewport": {"width": 1300, "height": 800}, "color_scheme": "dark"},
    }
    context = browser.new_context(**looks[request.param])
    one = Watched(context)
    yield one
    context.close()
    assert [text for text in one.wrong if one.expected is None or one.expected not in text] == []


def all_pages(page: Any, address: str) -> list[str]:
    """The address of every page, with ids that the lake has."""

    def first(path: str) -> str:
        return str(page.request.get(f"{address}{path}.json").json()["rows"][0]["id"])

    known = {"/messages/{id}": "/messages", "/sessions/{id}": "/sessions", "/files/{id}": "/files"}
    return [f"{address}{path.replace('{id}', first(known[path]) if path in known else '')}" for path in web_pages.ROUTES]


def until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait for an expression. Playwright's own wait evaluates text as script in the page, which the page's policy forbids."""
    for _ in range(2400):
        try:
            if page.evaluate(expression, arg):
                return
        except playwright.Error as error:  # the page was left while it was asked
            if "context was destroyed" not in str(error):
                raise
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression} {arg}")


def lines(page: Any) -> Any:
    return page.locator(".line:not([hidden])")


def test_dragging_over_the_histogram_shows_the_messages_of_that_time(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages")
    until(page, "document.querySelector('message-list .bar-line').textContent.match(/of \\d+/)")
    before = page.locator("message-list .bar-line").inner_text()
    page.wait_for_selector("time-histogram rect")
    box = page.locator("time-histogram svg").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    until(page, "location.search.includes('since')")
    until(
        page,
        "([was]) => document.querySelector('message-list .bar-line').textContent.match(/of \\d+/) && "
        "document.querySelector('message-list .bar-line').innerText !== was",
        arg=[before],
    )
    assert page.locator("#tokens li").count() == 2
    assert page.locator("#q").input_value().startswith("since:")
    page.locator("#tokens button").first.click()
    assert page.locator("#tokens li").count() == 1


def test_keys_move_and_extend_the_range_of_the_histogram(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages?q=kind:request")
    page.wait_for_selector("time-histogram rect")
    brush = page.get_by_role("slider", name="Time range")
    width = "parseFloat(document.querySelector('.h-brush')?.getAttribute('width') ?? 0)"
    brush.press("ArrowRight")
    one = page.evaluate(width)
    first = page.locator("time-histogram .tip").inner_text()
    assert one > 0
    assert brush.get_attribute("aria-valuetext") == first
    assert "emp" in first
    brush.press("Shift+ArrowRight")
    brush.press("Shift+ArrowRight")
    assert page.evaluate(width) == pytest.approx(3 * one)
    assert "messages" in (brush.get_attribute("aria-valuetext") or "")
    brush.press("Escape")
    assert page.evaluate(width) == 0
    assert "since" not in page.url
    brush.press("Home")  # the first bar, and not the first row of the list
    assert brush.get_attribute("aria-valuenow") == "0"
    assert page.locator(".line.current").count() == 0
    brush.press("Shift+End")
    assert page.evaluate(width) == pytest.approx(1000)
    brush.press("Enter")
    until(page, "decodeURIComponent(location.search).includes('since:') && decodeURIComponent(location.search).includes('until:')")
    assert page.locator("#tokens li").count() == 3
    until(page, "document.activeElement.role === 'slider'")  # so that the next key goes on from there
    page.wait_for_selector("time-histogram rect")
    brush.press("Escape")  # without a brush: the range of the filter
    until(page, "document.querySelectorAll('#tokens li').length === 1")
    page.goto(address)
    page.wait_for_selector("time-histogram rect")
    brush.press("ArrowLeft")
    brush.press("Enter")
    page.wait_for_url("**/messages?*since*")
    page.wait_for_selector(".line")


def test_the_overview_leads_to_the_messages_of_a_range(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(address)
    page.wait_for_selector("time-histogram rect")
    box = page.locator("time-histogram svg").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20, steps=3)
    page.mouse.up()
    page.wait_for_url("**/messages?*")
    page.wait_for_selector(".line")


def test_a_click_on_a_value_filters_and_with_alt_excludes(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages")
    page.wait_for_selector(".line")
    every = (
        "([field, text]) => [...document.querySelectorAll(`.line:not([hidden]) [data-field=${field}]`)]"
        ".every((one) => one.textContent === text)"
    )
    lines(page).locator("[data-field=protocol]", has_text="relink").first.click(modifiers=["Alt"])
    until(page, "decodeURIComponent(location.search).includes('-protocol:relink')")
    until(page, every, arg=["protocol", "emp"])
    assert page.locator("#tokens li.not").inner_text().startswith("-protocol:relink")
    lines(page).locator("[data-field=kind]", has_text="request").first.click()
    until(page, "decodeURIComponent(location.search).includes('kind:request')")
    until(page, every, arg=["kind", "request"])
    page.go_back()
    until(page, "document.querySelectorAll('#tokens li').length === 1")
    page.reload()
    assert page.locator("#q").input_value() == "-protocol:relink"
    page.wait_for_selector(".line")
    page.keyboard.press("j")
    page.get_by_role("button", name="Hide kind:").press("Enter")  # the same without a mouse
    until(page, "decodeURIComponent(location.search).includes('-kind:')")


def test_a_choice_keeps_its_meaning_when_a_term_is_added(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages")
    page.locator("#q").fill("kind:request or kind:response")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('message-list .bar-line').textContent.match(/\\d of \\d+ shown/)")
    page.wait_for_selector(".line")
    assert page.locator("#tokens li").count() == 1
    lines(page).locator("[data-field=protocol]", has_text="emp").first.click(modifiers=["Alt"])
    until(page, "decodeURIComponent(location.search.replaceAll('+', ' ')).includes('(kind:request or kind:response) -protocol:emp')")
    assert page.locator("#tokens li").count() == 2
    page.locator("#q").fill("kind:nothing*")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('message-list .bar-line').textContent.match(/0 of [\\d,]+ shown/)")


def test_a_wrong_filter_says_what_to_write(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages")
    page.locator("#q").fill("kind:nothing")
    page.keyboard.press("Enter")
    page.wait_for_selector("#filter-error:not([hidden])")
    assert "choose one of" in page.locator("#filter-error").inner_text()
    page.locator("#q").fill("kind:request tcp.port==5040")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#filter-error').textContent.includes('column 14')")
    assert "write port:5040" in page.locator("#filter-error").inner_text()
    watched.expected = "400"  # the browser logs the status of a response, sometimes a moment later


def test_a_message_lights_the_bytes_of_a_field_and_the_field_of_a_byte(watched: Watched, address: str) -> None:
    page = watched.page
    found = page.request.get(f"{address}/messages.json?q=kind:request").json()["rows"][0]
    page.goto(f"{address}/messages/{found['id']}")
    layer = page.request.get(f"{address}/messages/{found['id']}.json").json()["layers"][0]
    page.wait_for_selector(".hex i[data-at]")
    for field in layer["fields"]:
        row = page.locator(".fields tbody tr:not(.group)").nth(layer["fields"].index(field))
        row.hover()
        lit = page.eval_on_selector_all(".hex i.lit", "found => found.map((one) => one.textContent)")
        assert "".join(lit) == layer["hex"][2 * field["start"] : 2 * field["stop"]], field
        page.locator(f".hex i[data-at='{field['stop'] - 1}']").hover()
        assert page.locator(".fields tr.lit th").inner_text() == field["name"]
        assert field["name"] in page.locator(".what").inner_text()
    page.locator(".hex").focus()
    page.keyboard.press("ArrowRight")
    assert "byte 0: size" in page.locator(".what").inner_text()


def test_keys_alone_lead_from_the_overview_to_a_byte(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(address)
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/messages")
    page.wait_for_selector(".line")
    page.keyboard.press("j")
    page.keyboard.press("j")
    for text in ("important", ""):  # marked, and not any more
        page.keyboard.press("m")
        until(page, "([text]) => (document.querySelector('.line.current .mark')?.textContent ?? '') === text", arg=[text])
    wanted = page.locator(".line.current a").get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{wanted}")
    page.wait_for_selector(".hex i[data-at]")
    page.keyboard.press("j")
    until(page, "([was]) => !location.pathname.endsWith(was)", arg=[wanted])
    page.goto(f"{address}/sessions")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("session-ladder .line")
    page.keyboard.press("/")
    page.keyboard.type("three")
    page.keyboard.press("Escape")


def test_a_ladder_shows_a_conversation_and_finds_in_it(watched: Watched, address: str) -> None:
    page = watched.page
    relink = next(row for row in page.request.get(f"{address}/sessions.json").json()["rows"] if row["protocol"] == "relink")
    page.goto(f"{address}/sessions/{relink['id']}")
    page.wait_for_selector("session-ladder .line")
    assert page.locator(".lanes span").all_inner_texts() == [relink["client"], relink["server"]]
    assert page.locator(".line.gap:not([hidden])").count() >= 1
    page.locator("session-ladder input").fill("three")
    until(page, "document.querySelector('session-ladder .bar-line').innerText.includes('2 found')")
    assert "message" in page.locator(".detail").inner_text()
    page.locator("session-ladder input").press("Enter")
    page.locator(".detail a").click()
    page.wait_for_url("**/messages/*")
    page.go_back()
    page.wait_for_selector(".line.current")


@pytest.fixture(scope="module")
def long_session(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("long")
    use_plain()
    with Recorder(folder / "long.pcapng", protocol="emp", clock=clock()) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
        talk.sent(HELLO)
        talk.received(HELLO)
        for number in range(1, LONG // 2):
            talk.sent(asked(number, b"request %d" % number))
            talk.received(answered(number, b"answer %d" % number))
    with served(lake_of(fill, folder / "lake", [folder / "long.pcapng"])) as own:
        yield own


def test_a_ladder_of_ten_thousand_messages_draws_only_what_is_in_view(watched: Watched, long_session: str) -> None:
    page = watched.page
    page.goto(f"{long_session}/sessions/{page.request.get(f'{long_session}/sessions.json').json()['rows'][0]['id']}")
    page.wait_for_selector("session-ladder .line")
    assert page.locator("session-ladder .bar-line").inner_text().startswith("10,000 messages")
    page.locator(".view").focus()
    page.keyboard.press("End")
    until(page, "document.querySelector('.line.current')?.innerText.includes('answer 4999')")
    for place in (0.1, 0.5, 0.9, 0.3):
        page.eval_on_selector(".view", "(view, place) => { view.scrollTop = place * view.scrollHeight; }", place)
        until(
            page,
            "([place]) => { const at = [...document.querySelectorAll('.line:not([hidden])')].map((one) => Number(one.dataset.index));"
            " return Math.min(...at) <= 10000 * place && 10000 * place <= Math.max(...at); }",
            arg=[place],
        )
        assert page.locator(".line").count() < 150


def test_a_list_loads_more_while_it_is_scrolled(watched: Watched, long_session: str) -> None:
    page = watched.page
    page.goto(f"{long_session}/messages")
    until(page, "document.querySelector('message-list .bar-line').innerText.includes('100 messages so far')")
    for loaded in (200, 300, 400):
        page.eval_on_selector(".view", "(view) => { view.scrollTop = view.scrollHeight; }")
        until(page, f"document.querySelector('message-list .bar-line').innerText.includes('{loaded} messages')")
    assert page.locator(".line").count() < 150


MILLION = 1_000_000
IN_VIEW = """() => {
    const view = document.querySelector('.view'), box = view.getBoundingClientRect();
    return [...view.querySelectorAll('.line:not([hidden])')].filter((line) => {
        const own = line.getBoundingClientRect();
        return own.bottom > box.top && own.top < box.bottom;
    }).map((line) => Number(line.dataset.index)).sort((a, b) => a - b);
}"""
"""The rows that a reader sees."""


@pytest.mark.parametrize("watched", ["wide", in_soak("phone")], indirect=True)
def test_a_list_of_a_million_rows_scrolls_to_every_row(watched: Watched, address: str) -> None:
    """More pixels than an element may have: short ways are exact, long ways reach every part, and both ends are the ends."""
    page = watched.page
    page.goto(f"{address}/messages")
    page.wait_for_selector(".line")

    def seen() -> list[int]:
        page.wait_for_timeout(60)  # a frame or two
        found = page.evaluate(IN_VIEW)
        assert found == list(range(found[0], found[-1] + 1))  # no row is missing
        assert len(found) >= 4
        assert page.locator(".line").count() < 150
        return [found[0], found[-1]]

    page.evaluate(
        "(million) => { const { list } = document.querySelector('message-list'), [row] = list.rows; list.onend = () => {};"
        " list.set(Array.from({ length: million }, (_, index) => ({ ...row, subject: String(index) }))); }",
        MILLION,
    )
    assert seen()[0] == 0
    for share in (0.3, 0.9, 0.5):  # the handle of the scrollbar
        page.eval_on_selector(".view", "(view, share) => { view.scrollTop = share * (view.scrollHeight - view.clientHeight); }", share)
        assert seen()[0] == pytest.approx(share * MILLION, rel=0.001)
    before = seen()[0]
    height = page.evaluate("document.querySelector('message-list').list.height")
    for moved in (1, 2, 3):  # the wheel: as many rows as it has pixels for
        page.eval_on_selector(".view", "(view, by) => { view.scrollTop += by; }", 7 * height)
        assert seen()[0] == before + 7 * moved
    page.eval_on_selector(".view", "(view) => { view.scrollTop = view.scrollHeight; }")
    assert seen()[1] == MILLION - 1
    page.eval_on_selector(".view", "(view) => { view.scrollTop -= 100; }")
    assert MILLION - 60 < seen()[1] < MILLION
    for index in (MILLION - 1, 0, 123_456, 999_000, 123_457, 1_500, 700_000):
        page.evaluate("(index) => document.querySelector('message-list').list.select(index)", index)
        first, last = seen()
        assert first <= index <= last
    page.locator(".view").focus()
    for step in range(1, 60):  # row by row, out of the view
        page.keyboard.press("j")
        assert page.locator(".line.current").get_attribute("data-index") == str(700_000 + step)
    first, last = seen()
    assert first <= 700_059 <= last
    page.keyboard.press("Home")
    assert seen()[0] == 0


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRAST = """() => [...document.querySelectorAll('main *, header *')].filter((one) => one.checkVisibility()
    && one.closest('svg') === null && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((one) => {
    let behind = one;
    while (behind.parentElement && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    return [one.className + ' ' + one.localName, getComputedStyle(one).color, getComputedStyle(behind).backgroundColor]; })"""


AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")


def check_with_axe(page: Any) -> None:
    """Nothing that axe-core calls serious or critical."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
    grave = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
    assert grave == [], page.url


@pytest.mark.parametrize("watched", ["wide", "phone", in_soak("dark")], indirect=True)
def test_every_page_fits_every_control_has_a_name_and_text_can_be_read(
    watched: Watched, address: str, request: pytest.FixtureRequest
) -> None:
    """Contrast of at least 4.5 to 1 between text and what is behind it, as WCAG 2 asks for; and what axe finds, in one look."""
    page = watched.page
    nameless = (
        "[...document.querySelectorAll('a, button, input, textarea, select, svg[role=img], [role=grid], [role=tab]')].filter((one) =>"
        " one.checkVisibility() && !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.title)).map((one) =>"
        " one.outerHTML)"
    )
    for where in all_pages(page, address):
        page.goto(where)
        watched.settle()
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth + 1"), where
        assert page.evaluate(nameless) == [], where
        assert page.locator("h1").count() == 1, where
        for name, text, behind in {tuple(one) for one in page.evaluate(CONTRAST)}:
            low, high = sorted((luminance(text), luminance(behind)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (where, name, text, behind)
        if request.node.callspec.params["watched"] == "wide":
            check_with_axe(page)


@pytest.mark.parametrize("watched", ["wide", in_soak("dark"), in_soak("phone")], indirect=True)
def test_axe_finds_nothing_serious(watched: Watched, address: str) -> None:
    """On pages that show something else when they are asked."""
    page = watched.page
    rows = page.request.get(f"{address}/messages.json").json()["rows"]
    session, message, other = rows[0]["session"], rows[0]["id"], rows[8]["id"]
    for path in (
        f"/messages/{other}",
        f"/sessions/{session}",
        f"/sessions/{session}?view=transcript",
        f"/diff?a=message:{message}&b=message:{other}",
        f"/diff?a=session:{session}&b=protocol:emp",
        "/sql?sql=SELECT+1+AS+a",
    ):
        page.goto(f"{address}{path}")
        watched.settle()
        check_with_axe(page)


def test_a_comment_is_seen_in_the_list_and_in_the_ladder(watched: Watched, address: str) -> None:
    page = watched.page
    found = page.request.get(f"{address}/messages.json?q=protocol:relink").json()["rows"][1]
    page.goto(f"{address}/messages/{found['id']}")
    page.locator(".note summary").click()
    page.locator(".note textarea").fill("look <here>")
    page.get_by_role("button", name="Comment", exact=True).click()
    until(page, "document.querySelector('.said')?.textContent === 'look <here>'")
    page.get_by_role("button", name="cause").click()
    until(page, "document.querySelector('.note [aria-pressed=true]')?.textContent === 'cause'")
    page.goto(f"{address}/messages?q=protocol:relink")
    until(page, "document.querySelector('.line .mark')?.textContent === 'cause +1'")
    page.goto(f"{address}/sessions/{found['session']}#{found['id']}")
    until(page, "document.querySelector('.line.current .mark')?.textContent === 'cause +1'")
    page.goto(f"{address}/comments")
    page.get_by_role("button", name="Delete the comment: look <here>").click()
    until(page, "document.querySelector('.said') === null")


def test_the_selection_is_exported_as_it_is_shown(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/messages")
    page.wait_for_selector(".line")
    page.locator("#q").fill("protocol:emp kind:request")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('export-menu code').textContent.includes('protocol:emp kind:request')")
    page.locator("export-menu summary").click()
    with page.expect_download() as waiting:
        page.locator("export-menu a", has_text="JSON lines").click()
    names = [json.loads(line)["message_id"] for line in Path(waiting.value.path()).read_text().splitlines()]
    shown = page.request.get(f"{address}/messages.json?q=protocol:emp+kind:request").json()["rows"]
    assert names == [row["id"] for row in shown]
    assert waiting.value.suggested_filename == "export.jsonl"


def test_two_messages_are_compared_with_keys(watched: Watched, address: str) -> None:
    page = watched.page
    first, second = page.request.get(f"{address}/messages.json?q=protocol:emp+kind:request").json()["rows"][:2]
    page.goto(f"{address}/messages/{first['id']}")
    page.wait_for_selector(".hex i[data-at]")
    page.keyboard.press("c")
    page.wait_for_url("**/diff?a=*")
    page.goto(f"{address}/messages/{second['id']}")
    page.wait_for_selector(".hex i[data-at]")
    page.keyboard.press("c")
    page.wait_for_url("**/diff?a=*&b=*")
    assert page.locator("#a").input_value() == f"message:{first['id']}"
    assert page.locator("#b").input_value() == f"message:{second['id']}"


SCRIPTS = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "'><iframe src=javascript:window.pwned=1>",
    "javascript:window.pwned=1",
    "</title><script>window.pwned=1</script>",
    "</textarea><script>window.pwned=1</script>",
    "{{ 7 * 7 }}{% raw %}",
    "${window.pwned=1}",
    "<a href=javascript:window.pwned=1>x</a>",
    "<style>*{display:none}</style>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "\u202egnp\u2066.\u200fe\u061cx\u200be",
    "\x00\x1b[31m\x07",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.pwned=1>",
    "--></script><script>window.pwned=1</script>",
    "x' onmouseover='window.pwned=1",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "<details open ontoggle=window.pwned=1>",
    "\ud83d\ude00" * 50,
    "A" * 4000,
    '","ts":0},{"id":"x',
    "../../../../etc/passwd",
]
FIELDS = ["subject", "name", "kind", "correlation_id", "body", "body_json", "status", "fault", "source", "protocol"]
VARIANTS = ["{}", "{}{}"]
HOSTILE = [(field, variant.replace("{}", script)) for script, field, variant in itertools.product(SCRIPTS, FIELDS, VARIANTS)]


@pytest.fixture(scope="module")
def hostile(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """500 messages, each with one hostile value; and hostile sessions, rules, peers, files and quarantine."""
    assert len(HOSTILE) == 500
    rows = []
    for number, (field, text) in enumerate(HOSTILE):
        value: Any = text.encode("utf-8", "replace") if field == "body" else text.encode("utf-8", "replace").decode()
        base = {"protocol": "emp", "name": "data", "size": 5, "status": "ok", "offset": number, "length": 5, "session_id": b"S" * 16}
        ends = {"message_id": number.to_bytes(16), "connection_id": b"S" * 16, "direction": "to_server" if number % 2 else "to_client"}
        rows.append(message(number / 1000, **base | ends | {field: value}))
    texts = [text.encode("utf-8", "replace").decode() for text in SCRIPTS]
    place = {"message_id": (1).to_bytes(16), "session_id": b"S" * 16}
    filled = {
        "messages": rows,
        "sessions": [session(b"S" * 16, client_address=texts[0], server_address=texts[1], ended_how=texts[2], source=texts[3])]
        + [session(bytes([number]) * 16, client_address=text, protocol=text) for number, text in enumerate(texts)],
        "connections": [
            {
                "connection_id": b"S" * 16,
                "what": text,
                "by": "client",
                "detail": text,
                "ts": at(number),
                "client_address": texts[0],
                "client_port": 1,
            }
            | {"server_address": texts[1], "server_port": 2, "source": text, "offset": number}
            for number, text in enumerate(texts)
        ],
        "violations": [
            violation(text, clause=text, text=text, severity="error", offset=number, **place) for number, text in enumerate(texts)
        ],
        "exchanges": [
            exchange(5, subject=text, correlation_id=text, status=text, request_message_id=number.to_bytes(16))
            for number, text in enumerate(texts)
        ],
        "security": [
            {
                "threat": text,
                "rule": text,
                "text": text,
                "sender": text,
                "protocol": "emp",
                "ts": at(number),
                "source": text,
                "offset": number,
            }
            for number, text in enumerate(texts)
        ],
        "topology": [{"protocol": text, "client": text, "server": text, "messages_to_server": 1} for text in texts],
        "quarantine": [
            {"layer": text, "reason": text, "text": text, "raw": text.encode(), "source": text, "offset": number, "length": 1}
            for number, text in enumerate(texts)
        ],
        "ledger": [
            {"source": text, "source_id": number.to_bytes(8), "source_size": 5, "category": text, "reason": text, "bytes": 5, "items": 1}
            | {"offset": 0, "length": 5}
            for number, text in enumerate(texts)
        ],
    }
    lake = fill(tmp_path_factory.mktemp("hostile") / "<img src=x onerror=window.pwned=1>", filled)
    for number, text in enumerate(texts):
        Comments(lake).add(About.MESSAGE, number.to_bytes(16).hex(), text)
        Comments(lake).add(About.SESSION, (b"S" * 16).hex(), text)
    with served(lake) as own:
        yield own


ACTING_TEXT = """() => {
    const acting = /[\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]/;
    const words = [...document.querySelectorAll("[title], [aria-label]")].flatMap((one) => [one.title ?? "", one.ariaLabel ?? ""]);
    return [document.title, ...document.documentElement.innerText.split("\\n"), ...words].filter((one) => acting.test(one));
}"""
"""Texts of a page with characters that change the direction of others or are invisible."""


def check_harmless(page: Any) -> None:
    assert page.evaluate("window.pwned") is None
    assert (
        page.evaluate(
            "document.querySelectorAll('main script, main iframe, main img, main style, base, meta[http-equiv], main [onerror]').length"
        )
        == 0
    )
    assert "49" not in page.title()
    assert page.evaluate(ACTING_TEXT) == []


def test_no_text_of_the_traffic_runs_as_script(watched: Watched, hostile: str) -> None:
    page = watched.page
    pairs = [f"/diff?a=message:{(2 * number).to_bytes(16).hex()}&b=message:{(2 * number + 1).to_bytes(16).hex()}" for number in range(6)]
    for where in (*all_pages(page, hostile), *(f"{hostile}{path}" for path in (*pairs, "/diff?a=until:2025-03-01T12:00:00.2Z&b="))):
        page.goto(where)
        watched.settle()
        check_harmless(page)
    page.goto(f"{hostile}/messages")
    page.wait_for_selector(".line")
    seen: set[str] = set()
    for _ in range(200):
        seen |= set(page.eval_on_selector_all(".line:not([hidden]) a", "found => found.map((one) => one.pathname)"))
        check_harmless(page)
        if len(seen) == len(HOSTILE):
            break
        page.eval_on_selector(".view", "(view) => { view.scrollTop += view.clientHeight; }")
        page.wait_for_timeout(30)
    assert len(seen) == len(HOSTILE)
    page.goto(f"{hostile}/sessions/{(b'S' * 16).hex()}")
    page.wait_for_selector("session-ladder .line")
    for _ in range(30):
        page.eval_on_selector(".view", "(view) => { view.scrollTop += view.clientHeight; }")
        check_harmless(page)
    for one in zip(FIELDS, SCRIPTS, strict=False):  # each field with another script
        page.goto(f"{hostile}/messages/{HOSTILE.index(one).to_bytes(16).hex()}")
        watched.settle()
        check_harmless(page)


@pytest.mark.parametrize("text", [*SCRIPTS[:4], *(pytest.param(one, marks=pytest.mark.long) for one in SCRIPTS[4:12])])
def test_no_text_of_an_address_runs_as_script(watched: Watched, address: str, text: str) -> None:
    page = watched.page
    page.goto(f"{address}/?")
    for name, where in (
        ("q", "/messages"),
        ("q", "/exchanges"),
        ("sql", "/sql"),
        ("rule", "/violations"),
        ("threat", "/security"),
        ("status", "/exchanges"),
        ("a", "/diff"),
    ):
        page.evaluate(  # from a page of this site: others may not ask
            "([where, name, text]) => { location.href = `${where}?${new URLSearchParams({ [name]: text })}`; }", [where, name, text]
        )
        page.wait_for_url(f"**{where}?*")
        watched.settle()
        check_harmless(page)
    watched.expected = "400"  # wrong filters and wrong SQL are answered so


def test_two_browsers_while_a_job_commits(browser: Any, fill: Callable[..., Path], tmp_path: Path) -> None:
    """Every answer is of one whole commit: as many messages as exchanges. Nothing fails, and readers are told that there is more."""

    def rows(number: int) -> dict[str, list[dict[str, Any]]]:
        one = number.to_bytes(16)
        base = {
            "protocol": "emp",
            "name": "data",
            "size": 5,
            "status": "ok",
            "message_id": one,
            "connection_id": b"c" * 16,
            "session_id": b"S" * 16,
        }
        return {"messages": [message(number, **base)], "exchanges": [exchange(5, request_message_id=one, session_id=b"S" * 16)]}

    lake = fill(tmp_path / "lake", rows(0) | {"sessions": [session(b"S" * 16)]})
    snapshot.publish(lake)
    is_over = threading.Event()

    def commit() -> None:
        for number in range(1, 15):
            for name, some in rows(number).items():
                sheet = Sheet(lake, TABLES[name], number + 1)
                sheet.add(pa.RecordBatch.from_pylist(some, schema=TABLES[name].schema))
                delta.append(lake, TABLES[name], [file for file in [sheet.close()] if file], number + 1)
            snapshot.publish(lake)
        is_over.set()

    with served(lake) as own:
        contexts = [browser.new_context() for _ in range(2)]
        both = [Watched(context) for context in contexts]
        both[0].page.goto(f"{own}/messages")
        both[0].page.wait_for_selector(".line")
        job = threading.Thread(target=commit)
        job.start()
        seen = 0
        while True:
            was_over = is_over.is_set()
            both[1].page.goto(own)
            cards = both[1].page.locator(".card strong").all_inner_texts()
            assert cards[0] == cards[2]
            assert int(cards[0]) >= seen
            seen = int(cards[0])
            if was_over:
                break
        job.join()
        assert seen == 15
        until(both[0].page, "document.getElementById('news').textContent === '14 new'")
        assert lines(both[0].page).count() == 1  # nothing moved
        both[0].page.locator("#news").click()
        until(both[0].page, "document.querySelectorAll('.line:not([hidden])').length === 15")
        for one, context in zip(both, contexts, strict=True):
            context.close()
            assert one.wrong == []
