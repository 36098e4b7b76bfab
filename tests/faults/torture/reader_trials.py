"""`evaluate` and `predict` next to a trainer of the same run, which saves all the time; readers are killed, too."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

import streampgs
from tests.faults.torture.forks import CRASHED, Ended, in_child
from tests.faults.torture.store import PASSING, Plan
from tests.faults.torture.subjects import BucketSubject, Subject, be_impatient
from tests.faults.torture.tally import Tally
from tests.faults.torture.trials import judge

_ROUNDS = 4
_NAME = "readers next to a trainer"


class ReaderTrials:
    """A reader sees a complete checkpoint, each at least as new as the one before, or ends with an error. Predictions are
    complete or do not exist."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally

    def read(self, number: int, chance: Random) -> None:
        run, out = self.subject.new_run(), self.subject.folder / "predictions"
        out.mkdir()
        if isinstance(self.subject, BucketSubject) and self.subject.store is not None:
            self.subject.store.follow(Plan(self.subject.attempt, PASSING, chance.choice((0.0, 0.1))))
        trainer = self._start_trainer(run)
        wrong = self._wrong(run, out / "scores.parquet", chance)
        code = os.waitstatus_to_exitcode(os.waitpid(trainer, 0)[1])
        if isinstance(self.subject, BucketSubject) and self.subject.store is not None:
            self.subject.store.follow(Plan())
        if code not in (0, 1):
            wrong = wrong or f"the trainer ended with {code}"
        ended = (
            in_child(lambda: self._read(run, out / "scores.parquet") and None) if not wrong else Ended(CRASHED, wrong)
        )
        left = [path.name for path in out.iterdir() if path.name != "scores.parquet"]
        if left:
            ended = Ended(CRASHED, f"left behind by a killed reader: {left}")
        shutil.rmtree(out)
        judge(self.subject, self.tally, _NAME, run, ended)

    def _start_trainer(self, run: Path) -> int:
        child = os.fork()
        if child == 0:
            code = CRASHED
            try:
                code = in_child(lambda: self.subject.start_or_resume(run, checkpoint_seconds=0.0).stopped_by).code
            finally:
                os._exit(code & 127)
        return child

    def _wrong(self, run: Path, out: Path, chance: Random) -> str:
        newest = 0
        for _ in range(_ROUNDS):
            time.sleep(chance.uniform(0.0, 0.1))
            kill_after = chance.uniform(0.0, 0.3) if chance.random() < 0.4 else None
            ended = in_child(lambda: self._read(run, out), kill_after=kill_after)
            if not (ended.finished or ended.refused or ended.killed):
                return f"a reader: {ended.message}"
            if ended.finished and ended.result < newest:
                return f"a reader saw {ended.result} rows after {newest}"
            newest = ended.result if ended.finished else newest
            if out.exists():
                rows = pq.read_metadata(out).num_rows
                out.unlink()
                if rows != self.subject.case.rows:
                    return f"{rows} predictions of {self.subject.case.rows} rows"
        return ""

    def _read(self, run: Path, out: Path) -> int:
        """In a child: rows of the model that was read."""
        data = str(self.subject.full)
        if isinstance(self.subject, BucketSubject):
            be_impatient()
            os.environ.update(self.subject.environment)
            data = self.subject.source
        model: Any = streampgs.Model.load(run)
        streampgs.predict(model, data, out=out)
        streampgs.evaluate(model, data)
        return int(model.rows)
