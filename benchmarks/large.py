"""Ten million messages: jobs d, e and g of `gold.py`, as figures of the one table. It runs with `python benchmarks --large`.

`--quick` takes a tenth of the messages; goals are by message.
"""

from __future__ import annotations

from figures import Figure, main
from lake_goals import gold_figures

JOBS = "d,e,g"
MESSAGES = 10_000_000
SHARE = 10


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    return gold_figures(JOBS, "--messages", str(MESSAGES // SHARE if quick else MESSAGES))


if __name__ == "__main__":
    main(run, __doc__)
