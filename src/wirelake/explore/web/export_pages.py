"""Export: exactly the selection as a file, and the command line that writes the same."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

from wirelake import scratch
from wirelake.explore.comments import incident_comments
from wirelake.explore.export.export import SUFFIXES, Format, IncidentOptions, command, export
from wirelake.explore.query import QueryLimits
from wirelake.explore.web.explorer import Explorer, View, choice, wanted
from wirelake.filters import Filter

__all__ = ["EXPORT_LIMITS", "FileView", "list_exports", "menu", "write_export"]

EXPORT_LIMITS: Final = QueryLimits(seconds=600, megabytes=256)
"""Limits of one export. Larger ones are for the command line."""
_TYPES: Final = {
    Format.PCAPNG: "application/vnd.tcpdump.pcap",
    Format.JSONL: "application/jsonl",
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.OTLP: "application/json",
    Format.HTML: "text/html; charset=utf-8",
}
_TITLES: Final = {
    Format.PCAPNG: "pcapng, for Wireshark",
    Format.JSONL: "JSON lines",
    Format.CSV: "CSV",
    Format.PARQUET: "Parquet",
    Format.OTLP: "OpenTelemetry spans",
    Format.HTML: "incident, as one HTML page",
}


class FileView(NamedTuple):
    """A file that is sent, and deleted afterwards."""

    path: Path
    name: str
    media_type: str


def menu(explorer: Explorer, chosen: Filter | str) -> list[dict[str, str]]:
    """Return the formats of an export of a selection: title, address, and command line."""
    return [
        {
            "format": form.value,
            "title": _TITLES[form],
            "href": f"/export?{urlencode({'q': str(chosen), 'format': form.value})}",
            "command": command(explorer.path, chosen, form),
        }
        for form in Format
    ]


def list_exports(explorer: Explorer, request: Request) -> View:
    """The formats, for the filter of a request."""
    return View("", {"rows": menu(explorer, wanted(request))})


@functools.cache
def _folder() -> Path:
    """The scratch folder of this process."""
    return scratch.folder("export")


def write_export(explorer: Explorer, request: Request) -> FileView:
    """Write the selection of a request to a temporary file."""
    chosen, form = wanted(request), Format(choice(request, "format", tuple(Format)))
    suffix = next(suffix for suffix, one in SUFFIXES.items() if one is form)
    comments = incident_comments(explorer.comments.read()) if form is Format.HTML else ()
    incident = IncidentOptions(title=explorer.name, comments=comments)
    handle, name = tempfile.mkstemp(dir=_folder(), suffix=suffix)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            export(explorer.path, chosen, form, out, limits=EXPORT_LIMITS, incident=incident)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileView(path, f"export{suffix}", _TYPES[form])
