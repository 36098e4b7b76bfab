"""Kill trainers, damage their files, break their disks and forge their records; count the results.

    python scripts/torture.py [--kills 1000] [--corruptions 2000] [--forgeries 1000] [--trials 20] [--seed 1]

After each attempt the run is resumed. It must end with the same bits of λ as the undisturbed run, or refuse with an error
that names the damaged file. Exits with 1 if a run was lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_peers.machine import machine_line
from scripts.torture_parts.cases import CASES, Case, Subject
from scripts.torture_parts.damage import Damager
from scripts.torture_parts.forgery import Forger
from scripts.torture_parts.kills import Killer, kill_processes
from scripts.torture_parts.tally import LOST, Tally
from scripts.torture_parts.trials import Trials

PROCESSES = 20
"""One kill in this many hits a real process of the command line, which takes a second just to start."""


def shares(total: int, parts: int) -> list[int]:
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def torture(case: Case, folder: Path, counts: dict[str, int], seed: int) -> Tally:
    tally = Tally()
    subject = Subject(case, folder)
    killer = Killer(subject, tally, seed)
    killer.kill(counts["kills"] - counts["kills"] // PROCESSES)
    kill_processes(subject, tally, counts["kills"] // PROCESSES, seed)
    Damager(subject, tally, seed).damage(counts["corruptions"])
    Forger(subject, tally, seed).forge(counts["forgeries"])
    trials = Trials(subject, tally, seed)
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
    parser.add_argument("--forgeries", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=20, help="attempts of each other kind, for each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="folder for the runs (default: a temporary folder)")
    chosen = parser.parse_args()
    print(f"{machine_line()}; seed {chosen.seed}")
    began, tally = time.perf_counter(), Tally()
    each = {name: shares(getattr(chosen, name), len(CASES)) for name in ("kills", "corruptions", "forgeries")}
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
    print(f"\n{tally.table()}\n\nThe most expensive kills:")
    for moment in tally.worst():
        print(f"- {moment}")
    print(f"\n{tally.tried():,} tried in {time.perf_counter() - began:.0f} s, {tally.count(LOST)} lost")
    return 1 if tally.count(LOST) else 0


if __name__ == "__main__":
    sys.exit(main())
