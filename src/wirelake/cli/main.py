"""The command `wirelake`: its sub-commands, and errors as exit codes.

A command's module is imported when the command is called, so that short commands start quickly.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from importlib import import_module
from typing import Any, Final

import click

from wirelake import __version__
from wirelake.cli import logs, own_process
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import with_verbose
from wirelake.cli.terminal import AlreadyReported, say, say_how_to_explain, say_traceback
from wirelake.errors import ConnectFailed, InputMissing, MissingExtra, ProtocolError, QueryError, UsageError, WirelakeError
from wirelake.extras import missing

__all__ = ["COMMANDS", "app", "main", "run"]

COMMANDS: Final = (
    "demo",
    "read",
    "decode",
    "encode",
    "explain",
    "ingest",
    "gold",
    "forget",
    "query",
    "explore",
    "session",
    "bytes",
    "export",
    "diff",
    "dissector",
    "report",
    "check",
    "mcp",
    "keys",
    "serve",
    "listen",
    "call",
    "send",
)
"""Every command: the function of this name in the module of this name.

Its docstring is its help, and it returns an exit code.
"""

_EXITS: Final[tuple[tuple[type[WirelakeError], ExitCode], ...]] = (
    (MissingExtra, ExitCode.NOT_INSTALLED),
    (UsageError, ExitCode.USAGE),
    (QueryError, ExitCode.USAGE),
    (InputMissing, ExitCode.NO_INPUT),
    (ConnectFailed, ExitCode.UNAVAILABLE),
    (ProtocolError, ExitCode.DATA),
    (WirelakeError, ExitCode.FAILED),
)
"""Error type -> exit code; the first type that matches counts."""


_SENTENCE: Final = 200
"""Characters of a command's first sentence at most, in the list of commands."""


class _OutputClosed(Exception):
    """The reader of stdout closed it. Not an OSError: click would end the process with 1."""


class Commands(click.Group):
    """The commands by name; each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List commands in the order of COMMANDS: those for newcomers first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by name, or return None; every command takes -v."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"wirelake.cli.{cmd_name}"), cmd_name)
        return with_verbose(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole first sentence; click would cut it off at the end of the line."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=_SENTENCE)) for name, command in commands if command])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is no error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes, and how to enable completion."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), code.meaning) for code in ExitCode])
        with formatter.section("Completion"):
            formatter.write_text('eval "$(_WIRELAKE_COMPLETE=bash_source wirelake)" in bash; zsh_source in zsh, fish_source in fish.')


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="wirelake")
def app() -> None:
    """Speak five messaging protocols, and query every message they carry."""


with_verbose(app)


def run(arguments: list[str]) -> int:
    """Run a command; print an error in one line, and return the exit code of its kind."""
    with logs.logging_to_stderr():
        try:
            return int(app.main(arguments, prog_name="wirelake", standalone_mode=False) or ExitCode.OK)
        except click.ClickException as error:
            _say_usage(error)
            return ExitCode.USAGE
        except WirelakeError as error:
            if not isinstance(error, AlreadyReported):
                _explain(str(error))
            if isinstance(error, ProtocolError):
                say_how_to_explain(None, error.fault.name, error.clause)
            return next(code for kind, code in _EXITS if isinstance(error, kind))
        except (KeyboardInterrupt, click.Abort):
            say("interrupted")
            return ExitCode.INTERRUPTED
        except _OutputClosed:  # for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.OK
        except OSError as error:
            _explain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            return ExitCode.FAILED
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and (absent := missing(error.name or "")) is not None:
                _explain(str(absent))
                return ExitCode.NOT_INSTALLED
            _explain(f"internal error: {type(error).__name__}: {error}")
            return ExitCode.INTERNAL


def _explain(text: str) -> None:
    """Print the current error in one line; with -v, its traceback first."""
    if logs.is_verbose():
        say_traceback(traceback.format_exc())
    say(f"wirelake: {text}")


def _say_usage(error: click.ClickException) -> None:
    """Print click's message about wrong usage."""
    text = io.StringIO()
    error.show(text)
    for line in text.getvalue().splitlines():
        say(line)


def main() -> None:
    """Run the command of the process and exit."""
    own_process.mark()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
