"""The files of one task: how they are written, and in which memory."""

from __future__ import annotations

import subprocess
import sys


def test_a_task_lets_arrow_and_numpy_share_an_allocator(tmp_path):
    # In a process of its own: the allocator is that of the whole process.
    code = """
import sys
from pathlib import Path
import pyarrow as pa
from wirelake.lake.jobs.task_files import TaskFiles
TaskFiles(Path(sys.argv[1]), 1)
print(pa.default_memory_pool().backend_name)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["system"]
