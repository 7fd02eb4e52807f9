"""Wirelake: speak five messaging protocols, and query every message they carry.

| name | content |
|---|---|
| `emp`, `relink`, `yamp`, `wolpertinger` | `connect`, `serve`, `Options`, events and peers of these protocols |
| `event_mesh` | `node`, `Options`, events of Event Mesh |
| `Backoff` | how a client reconnects |
| `Recorder` | writes everything a peer sends and receives to a pcapng file |
| `lake` | captures to tables: ingest, query, report |
| `errors` | every error that wirelake raises |

Names are imported when they are first used: `import wirelake` alone loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wirelake import errors as errors
    from wirelake import lake as lake
    from wirelake.capture.record.recorder import Recorder as Recorder
    from wirelake.peers import emp as emp
    from wirelake.peers import event_mesh as event_mesh
    from wirelake.peers import relink as relink
    from wirelake.peers import wolpertinger as wolpertinger
    from wirelake.peers import yamp as yamp
    from wirelake.peers.backoff import Backoff as Backoff
    from wirelake.version import __version__ as __version__

__all__ = [
    "Backoff",
    "Recorder",
    "__version__",
    "emp",
    "errors",
    "event_mesh",
    "lake",
    "relink",
    "wolpertinger",
    "yamp",
]

_MODULES: Final = {
    "emp": "wirelake.peers.emp",
    "errors": "wirelake.errors",
    "event_mesh": "wirelake.peers.event_mesh",
    "lake": "wirelake.lake",
    "relink": "wirelake.peers.relink",
    "wolpertinger": "wirelake.peers.wolpertinger",
    "yamp": "wirelake.peers.yamp",
}
"""Public name -> the module it is."""
_OBJECTS: Final = {
    "Backoff": "wirelake.peers.backoff",
    "Recorder": "wirelake.capture.record.recorder",
    "__version__": "wirelake.version",
}
"""Public name -> the module that holds it."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _OBJECTS:
        value = getattr(import_module(_OBJECTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
