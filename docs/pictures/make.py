"""Makes the pictures of README.md and docs/ from a demo: `python docs/pictures/make.py demo-lake` (`make pictures`).

The demo is made first if there is none. Chromium takes the pictures; `CHROMIUM` names another program. A picture over
`MAX_BYTES` is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MAX_BYTES = 200_000
"""Bytes of one picture."""
WIDTH = 1180
"""Pixels from left to right."""
LAKE_PATH = re.compile(r'(<p class="path">).*?(</p>)')


def report(demo: Path) -> Path:
    """The report of a demo, which is made if there is none."""
    if not (demo / "report.html").exists():
        subprocess.run([sys.executable, "-m", "wirelake", "demo", "--out", str(demo)], check=True)  # noqa: S603 - our own program
    return demo / "report.html"


def take(page: str, name: str, height: int, only: str = "") -> None:
    """Take a picture of the top of a page, or of one section of it."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on this machine: install it (make tools), or name it with CHROMIUM=…")
    with tempfile.TemporaryDirectory() as folder:
        html, picture = Path(folder) / "page.html", Path(folder) / "picture.png"
        style = f"header, main > :not(#{only}) {{ display: none }} section {{ margin-top: 24px !important }}" if only else ""
        html.write_text(page.replace("</style>", f"{style}</style>", 1))
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{height}", f"--screenshot={picture}"]
        subprocess.run([chromium, *flags, html.as_uri()], check=True, capture_output=True)  # noqa: S603
        data = picture.read_bytes()
    if len(data) > MAX_BYTES:
        sys.exit(f"{name} has {len(data):,} bytes, more than {MAX_BYTES:,}: show less of the page")
    (HERE / name).write_bytes(data)
    print(f"wrote docs/pictures/{name}: {len(data):,} bytes")


def main(demo: Path) -> None:
    """Take every picture."""
    page = LAKE_PATH.sub(r"\1demo-lake/lake\2", report(demo).read_text())
    take(page, "report.png", 830)
    take(page, "report-requests.png", 890, only="exchanges")
    take(page, "report-rules.png", 608, only="findings")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
