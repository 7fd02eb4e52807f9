"""`python -m tests.fuzz`: hostile inputs for readers, sessions, serializers and servers, with limits on memory and CPU for each."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

import msgspec
from tests.fuzz import bombs
from tests.fuzz.campaign import TARGETS, Campaign, fixed, inputs, numbered
from tests.fuzz.cases import load


def main() -> int:
    """Run a campaign; 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, epilog="A failure names the file of its input.")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds; without it and --count, 60")
    parser.add_argument("--count", type=int, help="stop after so many random inputs, whatever time that takes")
    parser.add_argument("--seed", type=int, default=0, help="draw other inputs (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first random input (default: 0)")
    parser.add_argument("--only", choices=TARGETS, action="append", help="only inputs for this; repeatable")
    parser.add_argument("--skip-fixed", action="store_true", help="leave out the handmade inputs and the corpus")
    parser.add_argument("--fixed", action="store_true", help="run the handmade inputs and the corpus alone")
    parser.add_argument("--skip-open", action="store_true", help="leave out handmade inputs for which an issue is open")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="run the inputs in these files")
    parser.add_argument("--number", type=int, help="with --only: run the one random input of this number")
    parser.add_argument("--json", action="store_true", help="print the verdict on every input as JSON")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="where inputs that fail are saved (default: .fuzz)")
    options = parser.parse_args()

    chosen = tuple(options.only or TARGETS)
    if options.replay:
        cases, endless = [load(path) for path in options.replay], iter(())
    elif options.number is not None:
        if len(chosen) != 1:
            parser.error("--number needs --only TARGET")
        cases, endless = [numbered(chosen[0], options.seed, options.number)], iter(())
    else:
        cases = [] if options.skip_fixed else fixed(chosen)
        endless = iter(()) if options.fixed else inputs(chosen, options.seed, options.first)
    seconds = options.seconds if options.seconds is not None or options.count is not None else 60.0

    began = time.monotonic()
    campaign = Campaign(options.folder, sys.stderr)
    try:
        if {case.target for case in cases} != {"selftest"}:
            campaign.warm_up()
        for case in cases:  # always all of them
            if options.skip_open and bombs.open_issue(case):
                continue
            verdict = campaign.run(bombs.filled(case))
            if options.json:
                print(msgspec.json.encode({"case": str(case), **msgspec.structs.asdict(verdict)}).decode(), flush=True)
        left = None if seconds is None else max(0.0, seconds - (time.monotonic() - began))
        campaign.run_all(itertools.chain(endless), count=options.count, seconds=left)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        campaign.close()
    failures = sum(campaign.causes.values())
    print(
        f"{campaign.count} inputs in {time.monotonic() - began:.0f} s with seed {options.seed}: "
        f"{failures} failed, of {len(campaign.causes)} causes" + (f"; {campaign.open} of open issues" if campaign.open else ""),
        file=sys.stderr,
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
