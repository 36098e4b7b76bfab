"""Kill trainers, damage their files, break their disks and stores; count the results.

    python -m scripts.checks.torture [--kills 600] [--corruptions 800] [--trials 6] [--follows 6] [--seed 1]

After each attempt the run is resumed. It must end with the same bits of λ as the undisturbed run, or refuse with an error
that names the damaged file. Exits with 1 if a run was lost; each lost run is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from scripts.machine import machine_line
from tests.faults.torture.cases import CASES, Case
from tests.faults.torture.kinds import KINDS, Torturer, kinds_of, named
from tests.faults.torture.store import there_is_a_store
from tests.faults.torture.tally import LOST, Tally

PROCESSES = 20
"""One kill in this many hits a real process of the command line, which takes a second just to start."""
SHARED = ("kills", "processes", "corruptions")
"""Options that count attempts on all cases together."""


def shares(total: int, parts: int) -> list[int]:
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=600)
    parser.add_argument("--corruptions", type=int, default=800)
    parser.add_argument("--trials", type=int, default=6, help="attempts of each other kind, for each case")
    parser.add_argument("--follows", type=int, default=6, help="attempts of --follow, for each place")
    parser.add_argument("--cases", default="", help="only these cases, separated by commas")
    parser.add_argument("--kinds", default="", help="only these kinds of attempts, separated by commas")
    parser.add_argument("--replay", default="", metavar="CASE/KIND/NUMBER", help="repeat one attempt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="folder for the runs (default: a temporary folder)")
    return parser.parse_args()


def chosen_cases(names: str) -> list[Case]:
    cases = [named(name, CASES) for name in names.split(",")] if names else list(CASES)
    if there_is_a_store():
        return cases
    print("cases with a store are left out: .venv-moto is missing (./scripts/test makes it)")
    return [case for case in cases if not case.needs_store]


def tortured(cases: list[Case], chosen: argparse.Namespace, base: Path) -> Tally:
    tally = Tally()
    kinds = [named(name, KINDS) for name in chosen.kinds.split(",")] if chosen.kinds else list(KINDS)
    totals = {**vars(chosen), "kills": chosen.kills - chosen.kills // PROCESSES}
    totals["processes"] = chosen.kills // PROCESSES
    fitting = {name: [case for case in cases if any(k.option == name for k in kinds_of(case))] for name in SHARED}
    for case in cases:
        started, own = time.perf_counter(), Tally()
        (base / case.name).mkdir()
        torturer = Torturer(case, base / case.name, own, chosen.seed)
        for kind in kinds_of(case):
            times = totals[kind.option]
            if kind.option in SHARED:
                among = fitting[kind.option]
                times = shares(times, len(among))[among.index(case)]
            if kind in kinds:
                torturer.try_times(kind, times)
        tally.add(own)
        print(
            f"{case.name}: {own.tried():,} tried, {own.count(LOST)} lost, {time.perf_counter() - started:.0f} s",
            *(f"\n  LOST {loss}" for loss in own.losses),
            flush=True,
        )
    return tally


def replayed(place: str, seed: int, base: Path) -> Tally:
    case, kind, number = place.split("/")
    tally = Tally()
    torturer = Torturer(named(case, CASES), base, tally, seed)
    torturer.try_one(named(kind, kinds_of(torturer.case)), int(number))
    print(*(f"LOST {loss}\n" for loss in tally.losses), sep="")
    return tally


def main() -> int:
    chosen = options()
    print(f"{machine_line()}; seed {chosen.seed}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as base:
        if chosen.replay:
            tally = replayed(chosen.replay, chosen.seed, Path(base))
        else:
            tally = tortured(chosen_cases(chosen.cases), chosen, Path(base))
    print(f"\n{tally.table()}\n\nThe most expensive kills:")
    for moment in tally.worst():
        print(f"- {moment}")
    print(f"\n{tally.tried():,} tried in {time.perf_counter() - began:.0f} s, {tally.count(LOST)} lost")
    return 1 if tally.count(LOST) else 0


if __name__ == "__main__":
    sys.exit(main())
