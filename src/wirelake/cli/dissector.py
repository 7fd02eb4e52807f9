"""`wirelake dissector`: Lua files that let Wireshark show the protocols."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import need
from wirelake.protocols import name_of

__all__ = ["dissector"]


@click.command()
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder to write into.")
@click.option("--protocol", "chosen", multiple=True, help="Only this protocol; may be given several times.")
@click.option("--force", is_flag=True, help="Overwrite files of these names that this command did not write.")
def dissector(folder: Path, chosen: tuple[str, ...], force: bool) -> int:
    """Write dissectors for Wireshark and tshark, one Lua file for each protocol.

    They are translated from the scanners that decode captures. So Wireshark shows the fields of the tables, under the same names. stdout
    has the path of each file; stderr says how to install them.

    \b
      wirelake dissector -o ~/.local/lib/wireshark/plugins
      tshark -r talk.pcapng -Y 'emp.request == 1' -T fields -e emp.request_id
    """
    need("numpy", "pyarrow")
    from wirelake.explore.dissector.generate import names  # noqa: PLC0415 - needs Arrow
    from wirelake.explore.dissector.write import write  # noqa: PLC0415

    wanted = [name_of(name) for name in chosen] or list(names())
    for name in wanted:
        if name not in names():
            raise UsageError(f"there is no dissector for {name}: choose {', '.join(names())}")
    for path in write(folder, list(dict.fromkeys(wanted)), force=force):
        print(path)
    say("Wireshark loads them from its folder of personal Lua plugins: Help > About Wireshark > Folders, or `tshark -G folders`.")
    say("Press Ctrl+Shift+L there, or start it again.")
    return ExitCode.OK
