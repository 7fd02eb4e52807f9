"""Log lines on stderr: of this package and of libraries, one line each, whatever a peer put into them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from wirelake.cli.terminal import say, say_traceback

__all__ = ["LogToStderr", "is_verbose", "logging_to_stderr", "quiet", "verbose"]

_OURS: Final = "wirelake"
_QUIET: Final = logging.Formatter("%(message)s")
_VERBOSE: Final = logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s")


class LogToStderr(logging.Handler):
    """Log lines for the person at the terminal: one line each, tracebacks below."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        try:
            say(self._line(record))
            if record.exc_info:
                say_traceback(logging.Formatter().formatException(record.exc_info))
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        """The record as the formatter has it, without the traceback that a formatter puts below."""
        bare = logging.makeLogRecord(record.__dict__ | {"exc_info": None, "exc_text": None, "stack_info": None})
        return self.format(bare)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Print warnings and errors while a command runs; everything of this package once `verbose` was called."""
    root, ours = logging.getLogger(), logging.getLogger(_OURS)
    level, handler = ours.level, LogToStderr()
    handler.setFormatter(_QUIET)
    handler.addFilter(_is_shown)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(level)


def verbose() -> None:
    """Log all that this package does from now on. Of libraries only warnings are logged: Py4J's log is every byte it sends to the JVM."""
    logging.getLogger(_OURS).setLevel(logging.DEBUG)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogToStderr):
            handler.setFormatter(_VERBOSE)


def quiet(name: str) -> None:
    """Log nothing of this logger below CRITICAL, unless `verbose` was called."""
    if not is_verbose():
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether a record is a warning, or one of this package, which has a level of its own."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == _OURS


def is_verbose() -> bool:
    """Whether `verbose` was called for the command that runs."""
    return any(isinstance(handler, LogToStderr) and handler.formatter is _VERBOSE for handler in logging.getLogger().handlers)
