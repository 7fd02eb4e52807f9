"""The command `wirelake` for spark-submit: `spark-submit --master … examples/submit.py ingest LAKE PATHS…` (docs/cluster.md)."""

import sys

from wirelake.cli.main import run

sys.exit(run(sys.argv[1:]))
