"""A run as its newest undamaged checkpoint holds it, for everybody who only reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streampgs.base.checks import understanding
from streampgs.base.errors import RunError
from streampgs.data.feature_maps import FeatureMap, MapStage
from streampgs.data.shards import catalog_at
from streampgs.engine.worker import clipped_in, cursor_in
from streampgs.learn.lanes import Lanes
from streampgs.order.arrivals import owed_until
from streampgs.order.cursor import Cursor
from streampgs.run.checkpoint import Checkpoint, read_checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.lineages import Lineages
from streampgs.run.meter import Meter
from streampgs.run.record import RunRecord
from streampgs.run.spool import rows_in_spool
from streampgs.run.words import resume_command
from streampgs.selection.race import Race
from streampgs.table.catalog import Catalog


@dataclass(frozen=True)
class SavedRun:
    folder: RunFolder
    checkpoint: Checkpoint
    record: RunRecord
    """As of the checkpoint."""
    race: Race
    lineages: Lineages
    meter: Meter
    cursor: Cursor
    stream_rows: int | None
    """How many rows of the stream have reached the disk; None for a run on shards."""
    clipped: dict[str, int]
    """How many values of each column were clipped."""
    map: FeatureMap | None
    """None: the model takes the features of the rows."""

    @property
    def paused(self) -> str | None:
        """Where training was paused, if an epoch is the only limit and is not reached."""
        limits, epoch = self.record.limits, self.cursor.epoch
        others = (limits.rows, limits.seconds, limits.target_accuracy, limits.target_gap)
        converged = self.race.lanes.have_converged()
        if limits.epochs is None or any(others) or converged or self._is_near_the_optimum:
            return None
        last = max(limits.epochs, owed_until(self.cursor))
        if epoch >= last:
            return None
        of_epochs = f" of {last}" if limits.relative_gap is None else ""
        return f"training was paused in epoch {epoch + 1}{of_epochs}; continue with: {resume_command(self.folder.path)}"

    @property
    def _is_near_the_optimum(self) -> bool:
        """The gap at which a solver of columns stops if no other limit is given."""
        limit, gap = self.record.limits.relative_gap, self.race.lanes.relative_gap()
        return limit is not None and gap is not None and gap <= limit and self.cursor.begins_epoch

    def catalog(self) -> Catalog:
        """The shards that were known."""
        catalog = self.folder.catalog()
        with understanding(self.checkpoint.path):
            return catalog_at(self.checkpoint.sections["worker"], self.cursor, catalog)


def saved_run(run: Path, path: Path | None = None) -> SavedRun:
    """`path`: of a checkpoint of the run; None: the newest undamaged one."""
    folder = RunFolder(run)
    record = folder.run_record()
    checkpoint = folder.newest_checkpoint() if path is None else read_checkpoint(path)
    if checkpoint is None:
        resume = resume_command(run, record.spool is not None)
        ignored = f"; the name of '{folder.lookalikes()[0]}' is not that of a checkpoint" if folder.lookalikes() else ""
        raise RunError(f"run '{run}' has no model yet{ignored}", f"train it first: {resume}")
    race, meter, maps = Race(Lanes()), Meter(), MapStage()
    if maps.name in checkpoint.sections:
        checkpoint.restore(maps)
    lineages = Lineages(race, record.options.seed, 1)
    lineages.restore_all(checkpoint)
    checkpoint.restore(meter)
    with understanding(checkpoint.path):
        worker = checkpoint.sections["worker"]
        return SavedRun(
            folder,
            checkpoint,
            record.as_of(checkpoint.sections["run"]),
            race,
            lineages,
            meter,
            cursor_in(worker),
            None if record.spool is None else rows_in_spool(folder.spool),
            clipped_in(worker),
            maps.map,
        )
