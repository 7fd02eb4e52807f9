"""Compile kernels in a child process while Spark starts.

The first ingest on a machine finds no compiled kernels, and tasks would compile the same ones in several processes. So a child process
decodes the beginning of one file of each kind, and drops the rows. It compiles exactly the kernels that tasks need, for the types that
tasks call them with; `kernel_cache.py` keeps them. A kind is the protocol of a recording, or the link type of a packet capture.

Compiling takes 10 to 40 s of CPU, and decoding a small input without Numba takes less. So a batch below `COLD_BYTES` does not wait: when
Spark is there, the child is stopped, and tasks decode plain. What the child finished stays, and the next ingest goes on from there. A
larger batch waits for the child. Which kinds are compiled is noted in the cache. The notes are hints: tasks compile what is missing.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from wirelake import capture, kernel_cache, protocols
from wirelake.capture.blocks import read_file
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.read_split import ReadTask, read_split
from wirelake.capture.blocks.transfer import from_batch, to_batches
from wirelake.capture.files.split import Split
from wirelake.errors import WirelakeError
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.sources.plan import Beginning, beginning
from wirelake.protocols.kernel import use_compiled

__all__ = ["COLD_BYTES", "COMPILED_BYTES", "HEAD_BYTES", "MAX_LOOKS", "PLAIN_BYTES", "Order", "WarmUp", "while_starting"]

PLAIN_BYTES: Final = 2 * 1024 * 1024
"""Batches of fewer bytes are decoded without Numba.

On a busy machine, plain decoding took 0.57 s of CPU for a megabyte of the demo. Compiled, it took 0.07 s, after 1.7 s for loading Numba
and kernels.
"""
COLD_BYTES: Final = 32 * 1024 * 1024
"""Batches of fewer bytes are decoded without Numba while kernels have yet to be compiled."""
COMPILED_BYTES: Final = 4 * 1024 * 1024
"""From this size of a task on, compiling the scanners of records and packets is worth its start-up."""
HEAD_BYTES: Final = 256 * 1024
"""Bytes of a file that the child decodes."""
MAX_LOOKS: Final = 16
"""Files whose kind is asked, the largest first."""
_NICE: Final = 5
"""The JVM goes first, but a busy machine must not keep the child from finishing a kernel."""
_STOP_SECONDS: Final = 5.0


class Item(msgspec.Struct, frozen=True):
    """One file that the child decodes the beginning of."""

    kind: str
    source: Source
    is_direct: bool


class Order(msgspec.Struct, frozen=True):
    """The input of the child process."""

    items: list[Item]
    ports: dict[int, str]
    is_reading_compiled: bool
    """Whether tasks read with compiled kernels, too; else they only decode with them."""


class WarmUp:
    """The child process of one ingest, if it needs one."""

    def __init__(self, order: Order | None = None, size: int = 0) -> None:
        self._size = size
        self._child: subprocess.Popen[bytes] | None = None
        if order is not None:
            self._child = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if self._child.stdin is not None:
                with suppress(BrokenPipeError), self._child.stdin as pipe:  # a child that died at once compiles nothing
                    pipe.write(msgspec.json.encode(order))

    def is_plain(self, *, is_local: bool) -> bool:
        """Whether tasks decode without Numba. Waits for the child if the batch is large; stops it otherwise.

        Tasks on other machines have caches of their own.
        """
        if self._child is None or not is_local:
            self.stop()
            return False
        if self._size >= COLD_BYTES:
            self._child.wait()
        is_ready = self._child.poll() == 0
        self.stop()
        return not is_ready and self._size < COLD_BYTES

    def stop(self) -> None:
        """Stop the child, if it runs. Kernels that it compiled stay."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


@contextmanager
def while_starting(sources: Iterable[Source], ports: Mapping[int, str]) -> Iterator[WarmUp]:
    """Start compiling what these sources need and the cache lacks; the child is gone when the block ends."""
    every = sorted(sources, key=lambda source: -source.size)
    size = sum(source.size for source in every)
    items = _missing(every[:MAX_LOOKS]) if size >= PLAIN_BYTES else []
    warm_up = WarmUp(Order(items, dict(ports), size >= COMPILED_BYTES) if items else None, size)
    try:
        yield warm_up
    finally:
        warm_up.stop()


def _missing(sources: list[Source]) -> list[Item]:
    """One file of each kind that the cache has no note of; none without a cache, where nothing would stay."""
    if (where := kernel_cache.folder()) is None:
        return []
    items: dict[str, Item] = {}
    for source in sources:
        try:
            first = beginning(source)
        except (WirelakeError, OSError):  # the task that reads it reports it
            continue
        for kind in _kinds(first):
            if kind not in items and not _note(where, kind).exists():
                items[kind] = Item(kind, source, first.is_direct)
    return list(items.values())


def _kinds(first: Beginning) -> list[str]:
    """Name what the beginning of a file has: protocols of recorded messages, or link types of packets."""
    return sorted({flow.protocol for flow in first.flows}) or [f"link-{link}" for link in sorted(first.links)]


def _note(where: Path, kind: str) -> Path:
    """The file that says that the kernels of a kind are compiled: for this code, this Python and this Numba."""
    digest = blake2b(digest_size=16)
    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = ""
    for part in (kind, platform.machine(), platform.python_version(), numba):
        digest.update(part.encode() + b"\0")
    for package in (protocols, capture):
        for module in sorted(Path(package.__path__[0]).rglob("*.py")):
            stat = module.stat()
            digest.update(f"{module} {stat.st_size} {stat.st_mtime_ns}\0".encode())
    return where / f"compiled-{digest.hexdigest()}"


def compile_kernels(order: Order) -> None:
    """In the child: decode the beginning of each file as tasks do, and note its kind."""
    if order.is_reading_compiled:
        use_compiled()
    where = kernel_cache.folder()
    for item in order.items:
        source, split = item.source, Split(0, min(HEAD_BYTES, item.source.size), None)
        if item.is_direct:
            blocks = read_file.read(
                source, ports=order.ports, sniff=protocols.sniff, dialect=protocols.dialect, protocols=protocols.names(), split=split
            )
            batches = to_batches(blocks)
        else:
            task = ReadTask(source, split, [Span(0, split.end)], is_last=False)
            names = protocols.names()
            batches = to_batches(read_split(task, buckets=1, ports=order.ports, protocols=names, partitioned=names))
        assembly = Assembly(order.ports, protocols.sniff, protocols.dialect)
        for _ in decode(chain.from_iterable(map(from_batch, batches)), Decoder(DecodeOptions()), assembly):
            pass
        if where is not None:
            _note(where, item.kind).touch()


if __name__ == "__main__":
    os.nice(_NICE)
    compile_kernels(msgspec.json.decode(sys.stdin.buffer.read(), type=Order))
