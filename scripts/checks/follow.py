"""Test --follow with real processes and many shards: see tests/faults/following.py.

python -m scripts.checks.follow --shards 50 --kills 5 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.machine import machine_line
from tests.faults.following import follow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=50)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000, help="most rows of a shard")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two shards")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()

    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        outcome = follow(Path(folder), **vars(chosen))
    print(
        f"{outcome.shards} shards, {outcome.rows:,} rows, {chosen.epochs} epochs, {outcome.arrivals} arrivals, trainer "
        f"killed {outcome.kills} times"
    )
    print(f"each row trained on, at most once per epoch: {'yes' if outcome.visits_are_right else 'NO'}")
    print(f"same bits as the quiet run: {'yes' if outcome.same_as_quiet else 'NO'}")
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
