"""Disturb the calls to the operating system of commands, one call at a time, and count the results.

    python -m scripts.checks.faults [--points 5000] [--seed 1] [--command train-arrow] [--workers 2]
    python -m scripts.checks.faults --point train-arrow:read:17:fail:EIO

A library for LD_PRELOAD makes one call of Python or Arrow for a file fail, cuts it short, or kills the process before,
during or after it. The command must give the same result; or an error with a remedy and then, repeated without the fault,
the same result. Exits with 1 if that was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scripts.machine import machine_line
from tests.faults.single_calls import shim
from tests.faults.single_calls.commands import COMMANDS
from tests.faults.single_calls.law import BAD
from tests.faults.single_calls.points import Point
from tests.faults.single_calls.trying import failures, scratch, store, table, try_commands
from tests.stores import moto


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=5000, help="calls to disturb, shared by the commands")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", action="append", choices=sorted(COMMANDS), help="only this one; can be repeated")
    parser.add_argument("--point", action="append", default=[], help="only this point; can be repeated")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, default=None, help="folder for the runs (default: in memory if possible)"
    )
    return parser.parse_args()


def points_of(chosen: argparse.Namespace) -> dict[str, int | list[Point]]:
    if chosen.point:
        points = [Point.of(text) for text in chosen.point]
        return {point.command: [other for other in points if other.command == point.command] for point in points}
    names = chosen.command or [
        name for name, command in COMMANDS.items() if moto.PYTHON.exists() or not command.on_store
    ]
    return dict.fromkeys(names, -(-chosen.points // len(names)))


def main() -> int:
    if reason := shim.missing():
        sys.exit(f"faults: {reason}")
    chosen = arguments()
    print(f"{machine_line()}; seed {chosen.seed}", flush=True)
    began, tried = time.perf_counter(), []
    points_by_command = points_of(chosen)
    with scratch(chosen.folder) as folder, store(points_by_command, folder):
        for each in try_commands(points_by_command, folder, chosen.seed, chosen.workers):
            tried.append(each)
            bad = sum(map(each.count, BAD))
            print(f"{each.command}: {len(each.verdicts):,} points, {bad} bad, {each.seconds:.0f} s", flush=True)
    print(f"\n{table(tried)}\n")
    for failure in failures(tried):
        print(failure)
    points, bad = sum(len(each.verdicts) for each in tried), sum(each.count(kind) for each in tried for kind in BAD)
    print(f"{points:,} points in {time.perf_counter() - began:.0f} s, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
