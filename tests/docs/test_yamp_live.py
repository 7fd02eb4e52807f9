"""The page about live YAMP: its example runs and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "yamp-live.md").read_text()


@pytest.mark.slow
def test_the_example_runs_and_prints_what_the_page_says():
    example, other, flatbuffers = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    compile(flatbuffers, "flatbuffers", "exec")  # it needs what flatc makes of a schema
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert subprocess.run([sys.executable, "-c", other], timeout=60).returncode == 0
