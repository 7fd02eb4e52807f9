"""What the command line returns, after sysexits where one fits."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes, documented in the CLI reference."""

    OK = 0
    FAILED = 1
    """Something went wrong that no other code says."""
    USAGE = 64
    """The command was called the wrong way."""
    DATA = 65
    """The input broke a rule."""
    NO_INPUT = 66
    """The input cannot be opened."""
    UNAVAILABLE = 69
    """A peer or a program this needs is not there."""
    INTERRUPTED = 130
    """Ctrl-C."""
