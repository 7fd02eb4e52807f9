"""The folder of `wirelake demo`: only files of an earlier demo may be removed.

A marker file lists the folders and recordings of the demo. It is written before the first of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import UsageError, WirelakeError

__all__ = ["MARKER", "DemoFolder"]

MARKER: Final = ".wirelake-demo.json"
"""Name of the marker file in the folder given with --out."""
_ADVICE: Final = "name another folder with --out, or move it away"


class _Marker(msgspec.Struct):
    folders: list[str] = []
    """Folders that demos made, by name."""
    recordings: list[str] | None = []
    """Names of all recordings and key files in them.

    None while a demo runs, and after one that was killed.
    """


class DemoFolder:
    """The paths of one demo: `recordings`, `lake` and `report`.

    Creating the object changes nothing on disk.
    """

    def __init__(self, out: Path, *, fresh: bool) -> None:
        """Raise UsageError if the demo would have to remove or replace files that are not of a demo."""
        from wirelake.explore.report import is_report  # noqa: PLC0415 - needs the lake extra

        self._out = out
        self.lake, self.report = out / "lake", out / "report.html"
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is a file: name a folder with --out")
        self._marker = self._read()
        for name in ("recordings", "lake"):
            if (out / name).exists() and name not in self._marker.folders:
                raise UsageError(f"{out / name} exists, and no demo made it: {_ADVICE}")
        if self.report.exists() and not is_report(self.report):
            raise UsageError(f"{self.report} exists, and is no report of wirelake: {_ADVICE}")
        self._old = [out / name for name in self._marker.folders if (out / name).exists()] if fresh else []
        for foreign in self._foreign():
            raise UsageError(f"{foreign} was not made by the demo, which would remove it: {_ADVICE}, or add to it with --no-fresh")
        self.recordings = out / "recordings" if fresh else _unused(out, "recordings")

    def prepare(self) -> None:
        """Remove the files of the last demo, and make the folders of this one."""
        for folder in self._old:
            shutil.rmtree(folder)
        kept = [name for name in self._marker.folders if (self._out / name).exists()]
        known = dict.fromkeys([*kept, self.recordings.name, self.lake.name])
        self._out.mkdir(parents=True, exist_ok=True)
        self._write(_Marker(list(known), None))
        self.recordings.mkdir()

    def recorded(self) -> None:
        """Write the names of the recordings to the marker file: later files among them are not of the demo."""
        made = [path.name for name in self._read().folders if name != self.lake.name for path in (self._out / name).glob("*")]
        self._write(_Marker(self._read().folders, made))

    def _read(self) -> _Marker:
        path = self._out / MARKER
        try:
            marker = msgspec.json.decode(path.read_bytes(), type=_Marker)
        except FileNotFoundError:
            return _Marker()
        except (msgspec.DecodeError, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        return _Marker([name for name in marker.folders if Path(name).name == name], marker.recordings)

    def _write(self, marker: _Marker) -> None:
        (self._out / MARKER).write_bytes(msgspec.json.encode(marker))

    def _foreign(self) -> Iterable[Path]:
        """List files in folders that would be removed, and are not of a demo."""
        for folder in self._old:
            if folder == self.lake:
                yield from _foreign_in_lake(folder, self._out)
            elif self._marker.recordings is not None:
                yield from (path for path in sorted(folder.iterdir()) if path.name not in self._marker.recordings)


def _unused(out: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3, … that is not there."""
    number, path = 1, out / name
    while path.exists():
        number += 1
        path = out / f"{name}-{number}"
    return path


def _foreign_in_lake(lake: Path, out: Path) -> Iterable[Path]:
    """Files beside the tables, and captures of which the lake may hold the only copy."""
    from wirelake.lake.store import folder as store_folder  # noqa: PLC0415
    from wirelake.lake.store import journal  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.store.progress import positions  # noqa: PLC0415

    yield from store_folder.foreign(lake)
    try:
        sources = positions(lake).all if journal.check(lake) else []
    except WirelakeError:  # this version cannot read the lake, so its captures are unknown
        yield lake
        return
    home = out.absolute()
    yield from (Path(one.source.path) for one in sources if home not in Path(one.source.path).parents)
