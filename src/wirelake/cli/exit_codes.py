"""What the command line returns, after sysexits where one fits. Each code means one thing, in every command."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes; `wirelake --help` and the CLI reference list them with `meaning`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """A code with one sentence of what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "The command did what it was asked to do."
    FAILED = 1, "It could not: a peer said no or did not answer in time, a lake or file cannot be read or written. stderr ends with why."
    USAGE = 64, "The command was called the wrong way: an argument, an option, or SQL."
    DATA = 65, "What was read breaks a rule: a message, a file's content, or what a peer sent."
    NO_INPUT = 66, "A file, a folder or a lake that was named is not there, or cannot be opened."
    UNAVAILABLE = 69, "No connection to the peer could be made."
    INTERNAL = 70, "A bug in wirelake: -v shows where."
    NOT_INSTALLED = 78, "A library that the command needs is not installed; stderr names the extra that installs it."
    INTERRUPTED = 130, "Ctrl-C."
