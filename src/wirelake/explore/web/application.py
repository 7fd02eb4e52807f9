"""Application: routes, templates, and a `.json` twin of every page."""

from __future__ import annotations

import asyncio
import logging
import threading
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
from anyio import CapacityLimiter, to_thread
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from wirelake.errors import InputMissing, QueryError, UsageError, WirelakeError
from wirelake.explore import formatting
from wirelake.explore.comments import MARKS, MAX_CHARACTERS
from wirelake.explore.markup import visible
from wirelake.explore.model.database import DEFAULT_LIMITS, Database
from wirelake.explore.query import QueryLimits
from wirelake.explore.visit import Visit
from wirelake.explore.web import pages
from wirelake.explore.web.comment_pages import MAX_FORM_BYTES, ForeignForm, write_comment
from wirelake.explore.web.explorer import Explorer, View
from wirelake.explore.web.export_pages import FileView, write_export
from wirelake.explore.web.guard import Guard
from wirelake.filters import FIELDS
from wirelake.version import __version__

__all__ = ["WebOptions", "create"]

_HERE: Final = Path(__file__).parent
_LOG: Final = logging.getLogger(__name__)


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a lake is served."""

    host: str = "127.0.0.1"
    token: str | None = None
    """Every request must carry it; None only on loopback."""
    limits: QueryLimits = DEFAULT_LIMITS
    """Half of the memory is for pages, the other half for SQL and comparisons."""
    request_seconds: float = 10.0
    """Seconds that a connection has to send a whole request; 0: no limit."""
    most_sql: int = 4
    """Statements of SQL, and comparisons, that run at the same time. Others wait, so that pages are answered meanwhile."""


def create(lake: str | PathLike[str], options: WebOptions | None = None, ready: Callable[[], object] = lambda: None) -> Starlette:
    """Make the application for a lake; `ready` is called when the lake is open."""
    options = options or WebOptions()
    half = msgspec.structs.replace(options.limits, megabytes=-(-options.limits.megabytes // 2))
    explorer = Explorer(lake, Database(lake, half), Database(lake, half))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        visit = Visit()
        early = threading.Thread(target=visit.run, args=(lambda: pages.prepare(explorer),), daemon=True)
        with explorer.database, ExitStack() as closing:
            closing.push(explorer.costly)  # opened when it is asked
            early.start()
            for name in environment.list_templates():
                environment.get_template(name)
            ready()
            try:
                yield
            finally:
                visit.leave()
                early.join()

    environment = _environment(explorer)
    twins = {("/index" if path == "/" else path): handler for path, handler in (pages.DATA | pages.ROUTES).items()}
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=_HERE / "static"), name="static")]
    routes += [Route("/export", _exporting(explorer, environment, CapacityLimiter(1)))]  # each has memory of its own
    routes += [Route("/comments", _writing(explorer, environment), methods=["POST"])]
    costly = CapacityLimiter(options.most_sql)
    few = {path: costly if path in pages.COSTLY else None for path in twins}
    routes += [Route(f"{path}.json", _as_json(explorer, handler, few[path])) for path, handler in twins.items()]
    routes += [Route(path, _as_page(explorer, handler, environment, few.get(path))) for path, handler in pages.ROUTES.items()]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, host=options.host, token=options.token)])
    app.add_exception_handler(404, _not_found(environment))
    return app


def _environment(explorer: Explorer) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= {
        "count": formatting.count,
        "size": formatting.size,
        "duration": lambda value: "" if value is None else formatting.duration(value),
        "moment": lambda value: "" if value is None else formatting.moment(value),
        "instant": lambda value: "" if value is None else formatting.instant(value),
        "many": formatting.many,
        "percent": formatting.percent,
        "name": lambda path: Path(path).name,
        "exact": escape,  # what a form sends again; all other text is for people
    }
    environment.globals |= {"lake": explorer.name, "version": __version__, "filter_fields": FIELDS, "navigation": pages.NAVIGATION}
    environment.globals |= {"secret": explorer.secret, "marks": MARKS, "most_characters": MAX_CHARACTERS}
    return environment


Handler = Callable[[Explorer, Request], View]
Endpoint = Callable[[Request], Awaitable[Response]]


def _answered(explorer: Explorer, handler: Handler, request: Request) -> View:
    """What a handler returns; an error becomes a page about it."""
    return _guarded(lambda: handler(explorer, request), request)


def _guarded(make: Callable[[], View], request: Request) -> View:
    try:
        return make()
    except ForeignForm as error:
        return _failed(403, "Not written", error)
    except InputMissing as error:
        return _failed(404, "Not found", error)
    except (UsageError, QueryError) as error:
        return _failed(400, "This cannot be answered", error)
    except WirelakeError as error:
        return _failed(500, "The lake cannot be read", error)
    except Exception as error:
        _LOG.exception("internal error at %s", request.url.path)
        return _failed(500, "Internal error", error)


def _failed(status: int, title: str, error: Exception) -> View:
    return View("error.html", {"error": str(error), "title": title}, status=status)


async def _visited(make: Callable[[], Response], request: Request, few: CapacityLimiter | None) -> Response:
    """Answer in a thread, of which there may be few; if the reader leaves before, or the server ends, end the questions that are asked."""
    visit = Visit()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        visit.leave()

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        try:
            return await to_thread.run_sync(visit.run, make, limiter=few)
        finally:
            watching.cancel()
            visit.leave()


def _as_json(explorer: Explorer, handler: Handler, few: CapacityLimiter | None) -> Endpoint:
    def answer(request: Request) -> Response:
        view = _answered(explorer, handler, request)
        return Response(msgspec.json.encode(view.data), view.status, media_type="application/json")

    async def endpoint(request: Request) -> Response:
        return await _visited(lambda: answer(request), request, few)

    return endpoint


def _as_page(explorer: Explorer, handler: Handler, environment: jinja2.Environment, few: CapacityLimiter | None) -> Endpoint:
    def answer(request: Request) -> Response:
        view = _answered(explorer, handler, request)
        return HTMLResponse(_rendered(environment, request, view), view.status)

    async def endpoint(request: Request) -> Response:
        return await _visited(lambda: answer(request), request, few)

    return endpoint


def _writing(explorer: Explorer, environment: jinja2.Environment) -> Endpoint:
    """Answer a form: a browser goes to the page of the message or session, a script gets the note as JSON."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                return Response(f"a form has at most {MAX_FORM_BYTES} bytes", 413, media_type="text/plain")
        form = dict(urllib.parse.parse_qsl(bytes(body).decode(errors="replace"), keep_blank_values=True))
        view = await to_thread.run_sync(_guarded, lambda: View("", write_comment(explorer, form)), request)
        if "application/json" in request.headers.get("accept", ""):
            data = view.data if view.template else view.data[1]
            return Response(msgspec.json.encode(data), view.status, media_type="application/json")
        if view.template:
            return HTMLResponse(_rendered(environment, request, view), view.status)
        return RedirectResponse(view.data[0], 303)

    return endpoint


def _exporting(explorer: Explorer, environment: jinja2.Environment, few: CapacityLimiter) -> Endpoint:
    """Send a selection as a file, or a page that says why not."""

    def answer(request: Request) -> Response:
        files: list[FileView] = []

        def make() -> View:
            files.append(write_export(explorer, request))
            return View("", None)

        view = _guarded(make, request)
        if not files:
            return HTMLResponse(_rendered(environment, request, view), view.status)
        (file,) = files
        return FileResponse(file.path, filename=file.name, media_type=file.media_type, background=BackgroundTask(file.path.unlink))

    async def endpoint(request: Request) -> Response:
        return await _visited(lambda: answer(request), request, few)

    return endpoint


def _rendered(environment: jinja2.Environment, request: Request, view: View) -> str:
    context: dict[str, Any] = {"path": request.url.path, "query": request.query_params, "data": view.data, **view.more}
    return environment.get_template(view.template).render(context)


def _not_found(environment: jinja2.Environment) -> Callable[[Request, Exception], Response]:
    def endpoint(request: Request, error: Exception) -> Response:
        del error
        if request.url.path.endswith(".json"):
            return Response(b'{"error":"there is no such page"}', 404, media_type="application/json")
        view = View("error.html", {"error": "There is no such page.", "title": "Not found"}, status=404)
        return HTMLResponse(_rendered(environment, request, view), 404)

    return endpoint
