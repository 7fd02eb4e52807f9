"""Exit codes, from sysexits where one fits. Each has one meaning in every command."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes; `wirelake --help` and the CLI reference list them with `meaning`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Make a code with one sentence of meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "The command succeeded."
    FAILED = 1, "The command failed: a peer refused or did not answer in time, a lake or file cannot be read or written. stderr says why."
    USAGE = 64, "Wrong usage: an argument, an option, or SQL."
    DATA = 65, "The input breaks a rule: a message, a file's content, or bytes from a peer."
    NO_INPUT = 66, "A file, folder or lake does not exist, or cannot be opened."
    UNAVAILABLE = 69, "No connection to the peer could be made."
    INTERNAL = 70, "A bug in wirelake: -v shows where."
    NOT_INSTALLED = 78, "A library that the command needs is not installed; stderr names the extra that installs it."
    INTERRUPTED = 130, "Ctrl-C."
