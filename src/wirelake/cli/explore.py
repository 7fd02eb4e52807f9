"""`wirelake explore`: a lake in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import query_flags
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import EXPLORE, need

__all__ = ["explore"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--host", "host", default="127.0.0.1", show_default=True, help="Address to listen on; other than loopback only with a token.")
@click.option("--port", "port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0: any free one.  [default: 0]")
@click.option(
    "--token-file",
    "token_file",
    type=click.Path(path_type=Path),
    help="A file that only you may read; every request must carry its content.",
)
@query_flags(seconds=20.0, megabytes=512)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the browser.")
def explore(lake: Path, host: str, port: int, token_file: Path | None, seconds: float, megabytes: int, is_opened: bool) -> int:
    """Show a lake in the browser: messages, sessions, fields and bytes, broken rules, SQL. Spark is not needed.

    \b
    LAKE  The lake's folder.

    The address is printed when the lake is open. The server writes nothing but comments, which are kept in the lake's folder. It answers
    requests for its own name only, and ends with Ctrl-C. A lake that is being filled is shown as of its last commit; pages say how many
    messages are new.
    """
    need(*EXPLORE)
    without_pandas()
    from wirelake.explore.query import QueryLimits  # noqa: PLC0415 - needs the explore extra
    from wirelake.explore.web.application import WebOptions  # noqa: PLC0415
    from wirelake.explore.web.serve import serve  # noqa: PLC0415
    from wirelake.lake.store import snapshot  # noqa: PLC0415

    snapshot.current(lake)  # a folder that is no lake is an error now, not on the first page
    options = WebOptions(host=host, token=_token(token_file), limits=QueryLimits(seconds=seconds, megabytes=megabytes))

    def ready(address: str) -> None:
        print(address, flush=True)
        say(f"exploring {lake}; Ctrl-C ends it")
        if is_opened:
            webbrowser.open(address)

    serve(lake, options, port, ready)
    return ExitCode.OK


def _token(path: Path | None) -> str | None:
    """The token in a private file; raises UsageError if it has none, or others may read it."""
    if path is None:
        return None
    from wirelake.peers.private_file import load_bytes  # noqa: PLC0415 - only with a token

    token = load_bytes(path).decode(errors="replace").strip()
    if not token or not token.isprintable() or " " in token:
        raise UsageError(f"{path}: the token is one word; make one with: openssl rand -hex 16")
    return token
