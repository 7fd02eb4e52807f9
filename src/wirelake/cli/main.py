"""The command `wirelake`: which commands there are, and what becomes of errors. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Final

import click

from wirelake import __version__
from wirelake.cli.exits import ExitCode
from wirelake.cli.terminal import InputMissing, say
from wirelake.errors import ConnectFailed, ProtocolError, UsageError, WirelakeError
from wirelake.masking import mask

__all__ = ["COMMANDS", "app", "main", "run"]

COMMANDS: Final = ("demo", "decode", "encode", "ingest", "forget", "query", "report", "check", "keys", "serve", "listen", "call", "send")
"""Every command: the function of this name in the module of this name. Its docstring is its help, and it returns an exit code."""

_EXITS: Final[tuple[tuple[type[WirelakeError], ExitCode], ...]] = (
    (UsageError, ExitCode.USAGE),
    (InputMissing, ExitCode.NO_INPUT),
    (ConnectFailed, ExitCode.UNAVAILABLE),
    (ProtocolError, ExitCode.DATA),
    (WirelakeError, ExitCode.FAILED),
)


class Commands(click.Group):
    """The commands by name; each is imported when it is called, so that a short one does not pay for a long one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of COMMANDS: what a newcomer wants comes first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if it is one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"wirelake.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="wirelake")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error, and log lines.")
def app(verbose: bool) -> None:
    """Speak five messaging protocols, and query every message they carry."""
    if verbose:
        import logging  # noqa: PLC0415 - only where somebody wants to read it

        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def run(arguments: list[str]) -> int:
    """Run a command; errors are told in one line, and the exit code says which kind it was."""
    try:
        return int(app.main(arguments, prog_name="wirelake", standalone_mode=False) or ExitCode.OK)
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except WirelakeError as error:
        if "-v" in arguments or "--verbose" in arguments:
            say(mask(traceback.format_exc().rstrip()))
        say(f"wirelake: {mask(str(error))}")
        return next(code for kind, code in _EXITS if isinstance(error, kind))
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
