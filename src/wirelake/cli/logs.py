"""Log records of this package and of libraries, as single lines on stderr."""

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
    """Prints log records to stderr: one line each, tracebacks below."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        try:
            say(self._line(record))
            if record.exc_info:
                say_traceback(logging.Formatter().formatException(record.exc_info))
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        """Format a record without the traceback that a formatter appends."""
        bare = logging.makeLogRecord(record.__dict__ | {"exc_info": None, "exc_text": None, "stack_info": None})
        return self.format(bare)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Print warnings and errors while a command runs.

    Prints all records of this package once `verbose` was called.
    """
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
    """Log everything of this package from now on.

    Of libraries only warnings are logged: Py4J logs every byte it sends to the JVM.
    """
    logging.getLogger(_OURS).setLevel(logging.DEBUG)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogToStderr):
            handler.setFormatter(_VERBOSE)


def quiet(name: str) -> None:
    """Log nothing of this logger below CRITICAL, unless `verbose` was called."""
    if not is_verbose():
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _is_shown(record: logging.LogRecord) -> bool:
    """Tell whether to print a record: a warning, or any of this package, which has its own level."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == _OURS


def is_verbose() -> bool:
    """Tell whether `verbose` was called for the current command."""
    return any(isinstance(handler, LogToStderr) and handler.formatter is _VERBOSE for handler in logging.getLogger().handlers)
