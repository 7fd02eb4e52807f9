"""`wirelake serve pigeon` and `wirelake send pigeon`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from wirelake.cli.commands import Commands
from wirelake.cli.flags import limits_flag
from wirelake.cli.live import emit, recording, run, say, until_stopped
from wirelake.cli.live_flags import live_flags
from wirelake_pigeon import PROTOCOL
from wirelake_pigeon.options import Limits

__all__ = ["COMMANDS"]


@click.command("pigeon")
@click.argument("address", default=f"tcp://127.0.0.1:{PROTOCOL.port}")
@limits_flag("pigeon")
@live_flags
def serve(address: str, limits: Limits, record: Path | None) -> int:
    """Print each note that arrives as one JSON object. Ctrl-C ends it.

    \b
    ADDRESS  Where to listen: tcp://host:port; port 0 is any free one.
    """
    from wirelake_pigeon import live  # noqa: PLC0415 - only a command that runs needs it

    def show(_: Any, note: Any) -> None:
        emit({"number": note.number, "text": note.text})

    async def main() -> None:
        with recording(record, "pigeon") as recorder:
            options = live.Options(**msgspec.structs.asdict(limits), on_note=show, recorder=recorder)
            async with live.serve(address, options=options) as server:
                say(f"listening at {server.address}; Ctrl-C ends it")
                await until_stopped()

    run(main())
    return 0


@click.command("pigeon")
@click.argument("address")
@click.argument("texts", nargs=-1, required=True)
@limits_flag("pigeon")
@live_flags
def send(address: str, texts: tuple[str, ...], limits: Limits, record: Path | None) -> int:
    """Send notes, wait until each is acknowledged, then say bye.

    \b
    ADDRESS  tcp://host:port.
    TEXTS    The notes.
    """
    from wirelake_pigeon import live  # noqa: PLC0415 - only a command that runs needs it

    async def main() -> None:
        with recording(record, "pigeon") as recorder:
            async with live.connect(address, options=live.Options(**msgspec.structs.asdict(limits), recorder=recorder)) as peer:
                for text in texts:
                    await peer.note(text)

    run(main())
    return 0


COMMANDS: Final = Commands(serve=serve, send=send)
