"""Stores that fail: for a moment, for good, with wrong replies, with late listings; and objects that change during a run."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from tests.faults.torture.damage import Paused
from tests.faults.torture.forks import Ended, in_child
from tests.faults.torture.store import LASTING, LISTINGS, LYING, PASSING, FaultyStore, Plan
from tests.faults.torture.subjects import BucketSubject
from tests.faults.torture.tally import Tally
from tests.faults.torture.trials import judge

_LONG_SECONDS = 120.0


class StoreTrials:
    """Disturbs the store under new or paused runs of one case, then resumes them with a sound store."""

    def __init__(self, subject: BucketSubject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally
        self.paused = Paused(subject)
        self.requests = self._requests()

    @property
    def store(self) -> FaultyStore:
        assert self.subject.store is not None
        return self.subject.store

    def _requests(self) -> int:
        """Of an undisturbed run."""
        run = self.subject.new_run()
        self.store.follow(Plan())
        in_child(lambda: str(self.subject.start_or_resume(run).dual_sha256))
        shutil.rmtree(run)
        return self.store.follow(Plan())[0]

    def flaky(self, number: int, chance: Random) -> None:
        """Requests fail now and then."""
        faults = tuple(chance.sample(PASSING, chance.randint(1, 3)))
        share = chance.choice((0.05, 0.2, 0.5))
        self._try("store fails now and then", self._run(chance), Plan(self.subject.attempt, faults, share))

    def gone(self, number: int, chance: Random) -> None:
        """From some request on, all fail."""
        plan = Plan(self.subject.attempt, (chance.choice(LASTING),), 1.0, chance.randrange(self.requests))
        self._try(f"store fails for good, {plan.faults[0]}", self._run(chance), plan)

    def lying(self, number: int, chance: Random) -> None:
        """Wrong bytes in replies of the right form. The store's digests are known only for whole objects, so footers must have
        been read before."""
        faults = tuple(chance.sample(LYING, chance.randint(1, 2)))
        run = self.paused.copied()
        for copy in run.rglob("*.shard"):
            copy.unlink()
        share = chance.choice((0.3, 0.7, 1.0))
        self._try("store gives wrong bytes", run, Plan(self.subject.attempt, faults, share))

    def late(self, number: int, chance: Random) -> None:
        """A resume sees a listing without the newest objects, or without its end."""
        plan = Plan(self.subject.attempt, (chance.choice(("late", "truncate", "shorten")),), 1.0, 0, LISTINGS)
        self._try(f"listing {plan.faults[0]}", self.paused.copied(), plan)

    def changing(self, number: int, chance: Random) -> None:
        """An object is replaced, removed or added while the run trains, and is restored afterwards."""
        shard, other = chance.sample(self.subject.shards, 2)
        what = chance.choice(("replaced", "removed", "added"))
        # Under the name of a shard it would join a resume.
        key = self.subject.key(shard) if what != "added" else f"{self.subject.case.name}/_part-99{shard.suffix}"
        content = "" if what == "removed" else str(other)
        plan = Plan(changes=((chance.randint(1, self.requests), key, content),))
        run = self._run(chance)
        ended = self._disturbed(run, plan)
        if what == "added":
            self.store.delete(key)
        else:
            self.subject.put(shard)
        if ended.refused and what != "added" and shard.name not in ended.message:
            ended = Ended(70, {"found": f"an error that does not name {shard.name}: {ended.message}", "remedy": ""})
        judge(self.subject, self.tally, f"object {what} while in use", run, ended)

    def _run(self, chance: Random) -> Path:
        """A new run, or a paused one with or without its copies."""
        if chance.random() < 0.5:
            return self.subject.new_run()
        run = self.paused.copied()
        if chance.random() < 0.5:
            shutil.rmtree(run / "cache")
        return run

    def _try(self, name: str, run: Path, plan: Plan) -> None:
        judge(self.subject, self.tally, name, run, self._disturbed(run, plan))

    def _disturbed(self, run: Path, plan: Plan) -> Ended:
        self.store.follow(plan)
        try:
            return in_child(
                lambda: str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256), _LONG_SECONDS
            )
        finally:
            self.store.follow(Plan())
