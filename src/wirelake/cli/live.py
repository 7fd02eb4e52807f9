"""Shared by `serve`, `listen`, `call` and `send`: event loop, bodies, recordings, output."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import io
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from wirelake import protocols
from wirelake.capture.record.recorder import MODE, Recorder
from wirelake.cli import logs, terminal
from wirelake.cli.output import MAX_NOTICES, OUTPUT_BUFFER, Lines, Notices
from wirelake.cli.terminal import json_text
from wirelake.cli.watch import watching
from wirelake.errors import CaptureError, UsageError
from wirelake.extras import is_installed
from wirelake.peers.notices import NOTICE
from wirelake.protocols.kernel import COMPILED_BYTES, use_compiled
from wirelake.text import visible

__all__ = [
    "LiveOptions",
    "body_fields",
    "body_of",
    "compile_scanner",
    "emit",
    "first_of",
    "live_limits",
    "live_output",
    "recording",
    "run",
    "say",
    "text_of",
    "until_stopped",
]


T = TypeVar("T")


class LiveOptions(msgspec.Struct, frozen=True):
    """Options of every live command; see `live_flags`."""

    record_max_size: int | None = None
    record_max_time: float | None = None
    record_mode: int = MODE
    max_notices: int = MAX_NOTICES
    output_buffer: int = OUTPUT_BUFFER
    watch: bool = False


class _Output:
    """stdout and stderr of a live command."""

    def __init__(self, options: LiveOptions, out: int, err: int) -> None:
        self.options = options
        self.descriptor = out
        self.on_gone: Callable[[], None] = lambda: None
        self.err = Lines(err, max_bytes=options.output_buffer)
        self.out = Lines(out, max_bytes=options.output_buffer, on_gone=self._on_gone, on_dropped=self._on_dropped)
        self.notices = Notices(self.err.put, NOTICE, per_second=options.max_notices)

    def _on_gone(self) -> None:
        self.on_gone()

    def _on_dropped(self, count: int) -> None:
        self.err.put(f"{count:,} lines were not printed" if count else "nobody reads stdout: lines are dropped")


_active: _Output | None = None
"""A process has one stdout and one stderr."""


@contextlib.contextmanager
def live_output(options: LiveOptions) -> Iterator[None]:
    """Inside, `emit`, `say` and the log write without waiting for their readers.

    At the end all is written, if the output is still read.
    """
    global _active  # noqa: PLW0603 - see there
    try:
        sys.stdout.flush()
        _active = output = _Output(options, sys.stdout.fileno(), sys.stderr.fileno())
    except (io.UnsupportedOperation, ValueError):  # replaced by an object that is no file: its reader cannot be slow
        yield
        return
    log = logging.getLogger("wirelake")
    before = log.level, log.propagate
    if not logs.is_verbose():  # -v shows every log line already
        log.addHandler(output.notices)
        log.setLevel(NOTICE)
        log.propagate = False  # `logs` would print warnings a second time, and wait for a slow reader
    try:
        yield
    finally:
        _active = None
        log.removeHandler(output.notices)
        log.setLevel(before[0])
        log.propagate = before[1]
        output.out.close()
        output.notices.close()
        output.err.close()


def compile_scanner(protocol: str, *more: Callable[[], None]) -> None:
    """Compile a protocol's scanner, and what `more` compiles, before anything listens; all that was loaded for it stays.

    The first client would wait for it, perhaps beyond its handshake timeout.
    """
    use_compiled()
    descriptor = protocols.get(protocol)
    list(descriptor.buffer(descriptor.limits()).feed(b"\n" * COMPILED_BYTES))
    for compile_more in more:
        compile_more()
    gc.freeze()  # what was imported so far stays: the collector need not look at a million objects of Numba again and again


def say(text: str) -> None:
    """Print a line to stderr."""
    if _active is None:
        terminal.say(text)
    else:
        _active.err.put(visible(text))


def emit(described: Any, enc_hook: Callable[[Any], Any] | None = None) -> None:
    """Print one JSON object as one line; an object that arrived says when. Control characters are escaped."""
    if isinstance(described, dict):
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        described = {"received": now, **described}
    line = json_text(described, enc_hook)
    if _active is None:
        print(line, flush=True)
    else:
        _active.out.put(line)


def body_fields(body: bytes) -> dict[str, str]:
    """A body as JSON shows it: `text` if it is text, else `body` in hex digits."""
    text = text_of(body)
    return {"body": body.hex()} if text is None else {"text": text}


def text_of(body: bytes) -> str | None:
    """The text that a body is: UTF-8 of characters one can see, tabs and line ends; None for all else."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_LINE_ENDS).isprintable() else None


_LINE_ENDS = str.maketrans("", "", "\t\r\n")


def body_of(text: str, hex_text: bool) -> bytes:
    """A body from an argument: text, hex digits, or standard input for `-`."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    if not hex_text:
        return data
    try:
        return bytes.fromhex(data.decode())
    except ValueError:
        raise UsageError("--hex: the body is not an even number of hex digits") from None


@contextlib.contextmanager
def recording(path: Path | None, protocol: str) -> Iterator[Recorder | None]:
    """A recorder, if a file was named, or if the peer is to be watched.

    Its failure was reported when it happened: at the end only the exit code repeats it.
    """
    options = LiveOptions() if _active is None else _active.options
    if path is None and not options.watch:
        yield None
        return
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(watching()) if options.watch else None
        limits = {} if path is None else {"max_bytes": options.record_max_size, "max_seconds": options.record_max_time}
        recorder = Recorder(
            Path(os.devnull) if path is None else path,
            protocol=protocol,
            mode=options.record_mode,
            watch=watch,
            **limits,  # type: ignore[arg-type]  # both are numbers or None
        )
        yield from _recorded(recorder)


def _recorded(recorder: Recorder) -> Iterator[Recorder]:
    try:
        with recorder:
            yield recorder
    except CaptureError as error:
        if error is recorder.failure:
            raise terminal.AlreadyReported(str(error)) from None
        raise


def live_limits(protocol: str, limits: msgspec.Struct) -> dict[str, Any]:
    """Limits from the command line as arguments of a protocol's `Options`; those for captures only are left out."""
    offline = protocols.get(protocol).offline_limits
    return {name: getattr(limits, name) for name in limits.__struct_fields__ if name not in offline}


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: on uvloop where it is installed, on asyncio otherwise."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if is_installed("uvloop"):
        import uvloop  # noqa: PLC0415 - an extra

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of these is done; the others are cancelled. What the first raised is raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def until_stopped() -> None:
    """Wait for Ctrl-C, SIGTERM, or the end of the reader of stdout."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # only the main thread may
            loop.add_signal_handler(name, stopped.set)
    with contextlib.nullcontext() if _active is None else _watched(_active, loop, stopped.set):
        await stopped.wait()


@contextlib.contextmanager
def _watched(output: _Output, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """Stop when stdout is gone: when a line cannot be written and, where stdout is a pipe, as soon as its other end is closed."""
    is_pipe = stat.S_ISFIFO(os.fstat(output.descriptor).st_mode)

    def end() -> None:
        say("nobody can read stdout any more")
        stop()

    def look() -> None:
        if is_closed(output.descriptor):
            loop.remove_reader(output.descriptor)
            end()

    def end_soon() -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(end)

    output.on_gone = end_soon
    if output.out.gone:
        end()
    elif is_pipe:
        loop.add_reader(output.descriptor, look)  # an error counts as readable
    try:
        yield
    finally:
        output.on_gone = lambda: None
        if is_pipe:
            loop.remove_reader(output.descriptor)


def is_closed(descriptor: int) -> bool:
    """Whether the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
