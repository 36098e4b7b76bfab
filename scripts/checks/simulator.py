"""Simulate runs that are killed, lose power, meet faults, and are resumed while their tables change.

    python -m scripts.checks.simulator [--histories 10000] [--seed 1] [--kind short|whole|both] [--processes 1]
    python -m scripts.checks.simulator --replay SEED --kind short|whole

The product's own code runs on a disk in memory. When the power fails, this disk loses or tears unsynced writes. After each
history no row may be lost, none may be visited more often than its epoch allows, the last checkpoint that was written must
be the one that is used, and the state must have the bits of a history without disturbances in which the same shards arrive
at the same rows; or there is a refusal with a remedy.

A short history has the order of rows, the state of a learner, the saver and the checkpoints. A whole one has `train` and
`resume` with everything except the reading of rows and the steps of a solver; one is simulated for each hundred short ones.
Exits with 1 if a law was broken, and prints the seed. A replay prints all steps of a history. Ctrl-C prints the counts so far.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from scripts.machine import machine_line
from tests.faults.simulator.runner import KINDS, simulate, simulate_in
from tests.faults.simulator.tally import Tally

_SHORT_PER_WHOLE = 100
_MOST_FAILURES = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first history; each has the next one")
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="SEED", help="print the steps of this history")
    chosen = parser.parse_args()
    if chosen.replay is not None:
        if chosen.kind == "both":
            parser.error("--replay needs --kind short or whole")
        return _said(simulate(chosen.kind, [chosen.replay], print))
    print(f"{machine_line()}; seed {chosen.seed}")
    wanted = {kind: chosen.histories for kind in KINDS if chosen.kind in (kind, "both")}
    if chosen.kind == "both":
        wanted["whole"] = -(-chosen.histories // _SHORT_PER_WHOLE)
    failures = 0
    for kind, count in wanted.items():
        began, tally = time.perf_counter(), Tally()
        with suppress(KeyboardInterrupt):
            for piece in simulate_in(chosen.processes, kind, range(chosen.seed, chosen.seed + count)):
                tally.add(piece)
                if len(tally.failures) >= _MOST_FAILURES:
                    break
        print(f"\n{kind} histories: {tally.histories:,} in {time.perf_counter() - began:.0f} s")
        failures += _said(tally)
    return min(1, failures)


def _said(tally: Tally) -> int:
    """Print a tally; 1 if a law was broken."""
    for what, count in tally.counts.most_common():
        print(f"  {count:>12,}  {what}")
    for reason, count in tally.refusals.most_common():
        print(f"  {count:>12,}  refused: {reason}")
    for kind, seed, what in tally.failures:
        print(f"BROKEN: {what:.1000}\n  python -m scripts.checks.simulator --kind {kind} --replay {seed}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
