"""The command `wirelake`: which commands there are, and what becomes of errors. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import os
import sys
import traceback
from importlib import import_module
from typing import Any, Final

import click

from wirelake import __version__
from wirelake.cli import logs
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import with_verbose
from wirelake.cli.terminal import AlreadyReported, say, say_traceback
from wirelake.errors import ConnectFailed, InputMissing, MissingExtra, ProtocolError, QueryError, UsageError, WirelakeError
from wirelake.extras import missing

__all__ = ["COMMANDS", "app", "main", "run"]

COMMANDS: Final = ("demo", "decode", "encode", "ingest", "forget", "query", "report", "check", "keys", "serve", "listen", "call", "send")
"""Every command: the function of this name in the module of this name. Its docstring is its help, and it returns an exit code."""

_EXITS: Final[tuple[tuple[type[WirelakeError], ExitCode], ...]] = (
    (MissingExtra, ExitCode.NOT_INSTALLED),
    (UsageError, ExitCode.USAGE),
    (QueryError, ExitCode.USAGE),
    (InputMissing, ExitCode.NO_INPUT),
    (ConnectFailed, ExitCode.UNAVAILABLE),
    (ProtocolError, ExitCode.DATA),
    (WirelakeError, ExitCode.FAILED),
)
"""What the first type that fits leads to."""


class _OutputClosed(Exception):
    """The reader of stdout has seen enough. Not an OSError: click would end the process with 1."""


class Commands(click.Group):
    """The commands by name; each is imported when it is called, so that a short one does not pay for a long one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of COMMANDS: what a newcomer wants comes first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if it is one; every command takes -v."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"wirelake.cli.{cmd_name}"), cmd_name)
        return with_verbose(command)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a pipe that was closed is no error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit codes, and how a shell is told to complete."""
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
    """Run a command; errors are told in one line, and the exit code says which kind it was."""
    with logs.logging_to_stderr():
        try:
            return int(app.main(arguments, prog_name="wirelake", standalone_mode=False) or ExitCode.OK)
        except click.ClickException as error:
            _say_usage(error)
            return ExitCode.USAGE
        except WirelakeError as error:
            if not isinstance(error, AlreadyReported):
                _explain(str(error))
            return next(code for kind, code in _EXITS if isinstance(error, kind))
        except (KeyboardInterrupt, click.Abort):
            say("interrupted")
            return ExitCode.INTERRUPTED
        except _OutputClosed:  # `| head` has seen enough
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
    """One line for the error at hand; with -v, its traceback before."""
    if logs.is_verbose():
        say_traceback(traceback.format_exc())
    say(f"wirelake: {text}")


def _say_usage(error: click.ClickException) -> None:
    """What click says of a wrong call."""
    text = io.StringIO()
    error.show(text)
    for line in text.getvalue().splitlines():
        say(line)


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
