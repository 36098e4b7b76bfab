"""The kinds of attempts, and which cases each of them fits. A new case gets all kinds that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.torture.cases import BUCKET, DISK, FOLLOWED, FOLLOWED_BUCKET, Case
from tests.faults.torture.damage import Damager
from tests.faults.torture.follow_trials import FollowSubject, FollowTrials
from tests.faults.torture.kills import Killer
from tests.faults.torture.reader_trials import ReaderTrials
from tests.faults.torture.store_trials import StoreTrials
from tests.faults.torture.subjects import BucketSubject, Subject
from tests.faults.torture.tally import Tally
from tests.faults.torture.trials import Trials

_RUNS = (DISK, BUCKET)
_FRUITLESS = 4
"""Some attempts count nothing, for example if a run ends before the kill."""

Attempt = Callable[[int, Random], None]


@dataclass(frozen=True)
class Kind:
    name: str
    option: str
    """The option that gives the number of attempts."""
    makes: Callable[[Any, Tally], Any]
    """Makes what tries it on a subject, once for all kinds of the same maker."""
    attempt: Callable[[Any], Attempt]
    places: tuple[str, ...] = _RUNS


_SUBJECTS: dict[str, Callable[[Case, Path], Any]] = {
    DISK: Subject,
    BUCKET: BucketSubject,
    FOLLOWED: FollowSubject,
    FOLLOWED_BUCKET: FollowSubject,
}
KINDS = (
    Kind("kills", "kills", Killer, lambda killer: killer.kill),
    Kind("processes", "processes", Killer, lambda killer: killer.kill_processes),
    Kind("damage", "corruptions", Damager, lambda damager: damager.damage),
    Kind("sizes", "trials", Trials, lambda trials: trials.sizes),
    Kind("descriptors", "trials", Trials, lambda trials: trials.descriptors),
    Kind("memory", "trials", Trials, lambda trials: trials.memory),
    Kind("clocks", "trials", Trials, lambda trials: trials.clocks),
    Kind("shrinking", "trials", Trials, lambda trials: trials.shrinking, (DISK,)),
    Kind("two_trainers", "trials", Trials, lambda trials: trials.two_trainers),
    Kind("readers", "trials", ReaderTrials, lambda trials: trials.read),
    Kind("flaky_store", "trials", StoreTrials, lambda trials: trials.flaky, (BUCKET,)),
    Kind("lost_store", "trials", StoreTrials, lambda trials: trials.gone, (BUCKET,)),
    Kind("lying_store", "trials", StoreTrials, lambda trials: trials.lying, (BUCKET,)),
    Kind("late_listing", "trials", StoreTrials, lambda trials: trials.late, (BUCKET,)),
    Kind("follow", "follows", FollowTrials, lambda trials: trials.follow, (FOLLOWED, FOLLOWED_BUCKET)),
    Kind("changing_objects", "trials", StoreTrials, lambda trials: trials.changing, (BUCKET,)),
)


def kinds_of(case: Case) -> list[Kind]:
    return [kind for kind in KINDS if case.place in kind.places]


class Torturer:
    """Tries kinds of attempts on one case. An attempt follows from seed, case, kind and number."""

    def __init__(self, case: Case, folder: Path, tally: Tally, seed: int = 1) -> None:
        self.case, self.tally, self.seed = case, tally, seed
        self.subject = _SUBJECTS[case.place](case, folder)
        self._made: dict[Any, Any] = {}

    def try_times(self, kind: Kind, times: int) -> None:
        """Until so many attempts are counted."""
        begun = self.tally.tried()
        for number in range(_FRUITLESS * times):
            if self.tally.tried() - begun >= times:
                return
            self.try_one(kind, number)

    def try_one(self, kind: Kind, number: int) -> None:
        place = f"{self.case.name}/{kind.name}/{number}"
        self.tally.replay = f"python -m scripts.checks.torture --seed {self.seed} --replay {place}"
        self.subject.attempt = place
        if kind.makes not in self._made:
            self._made[kind.makes] = kind.makes(self.subject, self.tally)
        maker = self._made[kind.makes]
        maker.tally = self.tally
        kind.attempt(maker)(number, Random(f"{self.seed}/{place}"))


def named(name: str, among: Iterable[Any]) -> Any:
    found = {one.name: one for one in among}
    if name not in found:
        raise SystemExit(f"'{name}' is none of {', '.join(found)}")
    return found[name]
