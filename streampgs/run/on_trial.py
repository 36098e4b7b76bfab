"""A resume on trial: how a run remembers the checkpoint to which it returns if the trial fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from streampgs.base.errors import OptionError, counted
from streampgs.data.refresh import listed
from streampgs.options.commands import Growth
from streampgs.run.checkpoint import Checkpoint, rows_in_name
from streampgs.run.folder import RunFolder
from streampgs.run.lineages import summary_of
from streampgs.run.record import RunRecord
from streampgs.run.report import PAUSED, REJECTED, Report
from streampgs.run.trainer import Trainer
from streampgs.run.undo import undo


class Trial(Protocol):
    def begin(self, run: Path, checkpoint: Path, usual: Sequence[str]) -> None:
        """Measure the model of this checkpoint. `usual`: the validation data of the run."""

    def end(self, run: Path, drift: bool | None, shards: Mapping[str, float]) -> tuple[dict[str, Any], str]:
        """Measure the model of the newest checkpoint. The facts, of which `failed` has the conditions that hold; and the
        main ones in words. `drift`: of the new rows; None: they were not judged. `shards`: what is known of new shards."""


def refuse_trial(record: RunRecord, growth: Growth) -> None:
    if record.spool is not None:
        raise OptionError(
            "--validation or --fail-if when a stream is resumed",
            "leave them out; `streampgs evaluate` measures the model",
        )
    if growth.follow:
        raise OptionError("--validation or --fail-if together with --follow", "give one of them")


def begun(trial: Trial | None, folder: RunFolder, record: RunRecord, newest: Checkpoint | None) -> RunRecord:
    """The record of a resume that is on trial. If it was killed before, the model is still compared with the one from
    before the kill. A resume without a trial accepts the model as it is."""
    if trial is None:
        return replace(record, trial=None, on_trial={})
    if newest is None:
        raise OptionError(
            f"--validation or --fail-if: run '{folder.path}' has no model yet", "leave them out this time"
        )
    earlier = [path for path in folder.checkpoints() if rows_in_name(path) == record.trial]
    base = earlier[0] if earlier else newest.path
    trial.begin(folder.path, base, record.options.validation)
    return replace(record, trial=rows_in_name(base), on_trial=record.on_trial if earlier else {})


def ended(trial: Trial | None, trainer: Trainer, report: Report) -> Report:
    """Measure the model, and undo the resume if the trial has failed. A resume that was paused stays on trial."""
    if trial is None or report.outcome == PAUSED:
        return report
    base, folder = trainer.data.record.trial, trainer.folder
    if base is None or report.rows == base:
        trainer.accept()
        return report
    judged = (summary_of(trainer.models.lineages, base) or {}).get("judged")
    drift = None if judged is None else judged["drift"] is not None
    found, text = trial.end(folder.path, drift, trainer.data.record.on_trial)
    trainer.session.note(text)
    if not found["failed"]:
        trainer.accept()
        return replace(report, validation=found, notes=[*trainer.session.notes])
    undone = undo(folder, str(base), rejects=True, failed=found["failed"])
    assert undone is not None
    note = f"{' and '.join(found['failed'])}: the run was left as it was, after {counted(undone.rows, 'row')}"
    if undone.rejected:
        note += f"; left out from now on: {listed(undone.rejected)}; to train on new shards again: --accept-rejected"
    trainer.session.note(note)
    return replace(
        report,
        found=replace(report.found, rejected_shards=[*undone.rejected]),
        validation=found,
        outcome=REJECTED,
        rows=undone.rows,
        t=undone.steps,
        checkpoint=str(folder.checkpoints()[-1]),
        notes=[*trainer.session.notes],
    )
