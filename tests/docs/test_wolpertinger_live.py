"""The page about live wolpertinger: its example runs and prints what the page says, and the options it names exist."""

import re
import subprocess
import sys
from pathlib import Path

from wirelake.peers.wolpertinger import Options, Xmpp

PAGE = (Path(__file__).parents[2] / "docs" / "wolpertinger-live.md").read_text()


def test_the_example_runs_and_prints_what_the_page_says():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_options_it_names_exist():
    owners = {"Options": Options, "Xmpp": Xmpp}
    named = [(owner, name) for owner, name in re.findall(r"\b(Options|Xmpp)[.(](\w+)", PAGE)]
    assert len(named) >= 8
    for owner, name in named:
        assert name in owners[owner].__struct_fields__, (owner, name)


def test_the_weaknesses_are_said_plainly():
    for word in ("initialisation vector", "without a MAC", "SHA-1", "in the middle", "tls://"):
        assert word in PAGE
