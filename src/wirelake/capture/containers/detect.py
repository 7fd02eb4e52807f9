"""Detect the container of a file, and keep its state from window to window."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
import numpy as np

from wirelake.capture.containers import pcap, pcapng
from wirelake.capture.files.magic import HEAD_SIZE, capture_kind
from wirelake.errors import CaptureError
from wirelake.protocols.kernel import active

__all__ = ["HEAD_SIZE", "Container", "ContainerState", "recognise", "restore"]


class ContainerState(msgspec.Struct, frozen=True):
    """The state of a container at an offset of its file: enough to continue there in another process."""

    layer: str
    state: tuple[int, ...]
    interfaces: bytes = b""
    """The interface rows of the section, as bytes."""


class Container(Protocol):
    """Finds records in windows of one file, in order."""

    @property
    def layer(self) -> str:
        """Its name in quarantine: `pcap` or `pcapng`."""
        ...

    def scan(self, data: Any, limit: int, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """Fill rows with the whole records of a window that begin before `limit`.

        Returns (rows written, bytes used, how it ended).

        The window comes from `kernel.array`.
        """
        ...

    def find(self, data: Any, start: int, is_end: bool) -> tuple[int, int]:
        """Find the first certain record in a window from `start` on.

        Returns (offset, 0), or (-1, first undecided offset).
        """
        ...

    def known(self) -> ContainerState:
        """Return its state now."""
        ...


class Pcap:
    """A pcap file; its state is its last file header."""

    layer: Final = "pcap"

    def __init__(self, known: ContainerState | None = None) -> None:
        self._state = np.array(known.state if known else (0,) * pcap.STATE_SIZE, np.int64)

    def scan(self, data: Any, limit: int, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """See `Container.scan`."""
        count, used, end = active(pcap.scan)(data, 0, len(data), limit, self._state, rows)
        return count, used, end

    def find(self, data: Any, start: int, is_end: bool) -> tuple[int, int]:
        """See `Container.find`."""
        place, decided = active(pcap.find)(data, start, len(data), int(is_end), self._state)
        return place, decided

    def known(self) -> ContainerState:
        """See `Container.known`."""
        return ContainerState(self.layer, tuple(self._state.tolist()))


class Pcapng:
    """A pcapng file; its state is the byte order and the interfaces of its current section."""

    layer: Final = "pcapng"

    def __init__(self, known: ContainerState | None = None) -> None:
        # Older versions stored more state of a followed file.
        self._state = np.array(known.state[: pcapng.STATE_SIZE] if known else (0,) * pcapng.STATE_SIZE, np.int64)
        self._interfaces = np.zeros((pcapng.MAX_INTERFACES, pcapng.INTERFACE_COLUMNS), np.int64)
        if known:
            stored = np.frombuffer(known.interfaces, np.int64).reshape(-1, pcapng.INTERFACE_COLUMNS)
            self._interfaces[: len(stored)] = stored

    def scan(self, data: Any, limit: int, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """See `Container.scan`."""
        count, used, end = active(pcapng.scan)(data, 0, len(data), limit, self._state, self._interfaces, rows)
        return count, used, end

    def find(self, data: Any, start: int, is_end: bool) -> tuple[int, int]:
        """See `Container.find`."""
        place, decided = active(pcapng.find)(data, start, len(data), int(is_end), self._state)
        return place, decided

    def known(self) -> ContainerState:
        """See `Container.known`."""
        count = int(self._state[pcapng.INTERFACES])
        return ContainerState(self.layer, tuple(self._state.tolist()), self._interfaces[:count].tobytes())


def recognise(path: str, head: bytes, at: int = 0) -> Container:
    """Return a container by the first bytes of a file; raises CaptureError if it is no capture."""
    kind = capture_kind(head)
    if not kind:
        raise CaptureError(path, at, "not a capture")
    return Pcap() if kind == Pcap.layer else Pcapng()


def restore(known: ContainerState) -> Container:
    """Return a container that continues from a state."""
    return Pcap(known) if known.layer == Pcap.layer else Pcapng(known)
