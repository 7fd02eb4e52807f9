"""`wirelake mcp`: questions about a lake, for agents."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import query_flags
from wirelake.cli.own_process import without_pandas
from wirelake.extras import MCP, need

__all__ = ["mcp"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@query_flags(seconds=20.0, megabytes=512)
def mcp(lake: Path, seconds: float, megabytes: int) -> int:
    """Answer questions of an agent about a lake: a Model Context Protocol server on standard input and output.

    \b
    LAKE  The lake's folder.

    \b
    search      messages by a filter
    session     one conversation in order
    message     one message with every field
    bytes       the bytes of a message, and the field of each
    violations  broken rules with their text and places
    sql         SQL over the lake's tables, and nothing else

    All of them only read, and answers are bounded. The program that runs the agent starts this command; it ends with its input.
    """
    need(*MCP)
    without_pandas()
    from wirelake.explore.mcp.server import serve  # noqa: PLC0415 - needs the mcp extra
    from wirelake.explore.query import QueryLimits  # noqa: PLC0415

    serve(lake, QueryLimits(seconds=seconds, megabytes=megabytes))
    return ExitCode.OK
