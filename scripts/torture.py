"""Runs that survive anything, shown: kills, damage, full and broken disks, strangers' files, counted.

    python scripts/torture.py [--kills 1000] [--corruptions 2000] [--strangers 1000] [--trials 20] [--seed 1]

After each the run is resumed. It must end with the bits of λ that the undisturbed run ends with, or refuse with an error
that names what is damaged. Exits 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.torture_parts.cases import CASES, Case, Ground
from scripts.torture_parts.damage import Damager
from scripts.torture_parts.hostile import Stranger
from scripts.torture_parts.kills import Killer, kill_processes
from scripts.torture_parts.tally import LOST, Tally
from scripts.torture_parts.trials import Trials

PROCESSES = 20
"""One kill in so many is of a real process of the command line, which takes a second only to start."""


def shares(total: int, parts: int) -> list[int]:
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def torture(case: Case, folder: Path, counts: dict[str, int], seed: int) -> Tally:
    tally = Tally()
    ground = Ground(case, folder)
    killer = Killer(ground, tally, seed)
    killer.kill(counts["kills"] - counts["kills"] // PROCESSES)
    kill_processes(ground, tally, counts["kills"] // PROCESSES, seed)
    Damager(ground, tally, seed).damage(counts["corruptions"])
    Stranger(ground, tally, seed).offer(counts["strangers"])
    trials = Trials(ground, tally, seed)
    for trial in (
        trials.disks, trials.reads, trials.sizes, trials.small_disk, trials.memory, trials.clocks, trials.shrinking,
        trials.two_trainers,
    ):  # fmt: skip
        trial(counts["trials"])
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--corruptions", type=int, default=2000)
    parser.add_argument("--strangers", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=20, help="of each other kind, for each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="where the runs lie; default: a temporary folder")
    chosen = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores; seed {chosen.seed}")
    began, tally = time.perf_counter(), Tally()
    each = {name: shares(getattr(chosen, name), len(CASES)) for name in ("kills", "corruptions", "strangers")}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as base:
        for number, case in enumerate(CASES):
            started = time.perf_counter()
            (Path(base) / case.name).mkdir()
            counts = {name: share[number] for name, share in each.items()} | {"trials": chosen.trials}
            own = torture(case, Path(base) / case.name, counts, chosen.seed + number)
            tally.add(own)
            print(
                f"{case.name}: {own.tried():,} tried, {own.count(LOST)} lost, {time.perf_counter() - started:.0f} s",
                *(f"\n  LOST {loss}" for loss in own.losses),
                flush=True,
            )
    print(f"\n{tally.table()}\n\nThe worst moments to be killed in:")
    for moment in tally.worst():
        print(f"- {moment}")
    print(f"\n{tally.tried():,} tried in {time.perf_counter() - began:.0f} s, {tally.count(LOST)} lost")
    return 1 if tally.count(LOST) else 0


if __name__ == "__main__":
    sys.exit(main())
