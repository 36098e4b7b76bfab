"""Training on rows in memory, without a folder: the same models, steps and choices as in a run, and no checkpoint."""

from __future__ import annotations

import numpy as np

from streampgs.base.stage import Bundle
from streampgs.data.feature_maps import MapStage
from streampgs.data.memory import MemorySource
from streampgs.data.row_form import RowForm
from streampgs.engine.worker import Worker
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.losses import Vector
from streampgs.options.commands import Limits
from streampgs.order.cursor import Cursor
from streampgs.reading.window import Window
from streampgs.run.loop import Loop
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.report import StopRequest

Sections = dict[str, Bundle]
"""As of a checkpoint."""


class _LoopInMemory(Loop):
    def __init__(self, models: Models, source: MemorySource, cursor: Cursor, limits: Limits) -> None:
        super().__init__(models, Meter(), StopRequest())
        self._source, self._worker, self._limits = source, Worker(source, cursor), limits

    @property
    def worker(self) -> Worker:
        return self._worker

    @property
    def limits(self) -> Limits:
        return self._limits

    def prepare(self, window: Window) -> Window:
        taken = super().prepare(window)
        if taken is not window:
            self._source.values_are(taken.values)
        self.models.race.judge_only_to_choose()
        return taken


class MemoryTraining:
    """Models that are trained on rows in memory: on one table for some epochs, or on one table after the other. It keeps
    no row."""

    def __init__(self, form: RowForm) -> None:
        self.models, self.cursor = Models(form), Cursor(())
        self._rows_done = 0

    def train(self, rows: Rows, limits: Limits, epoch_rows: int | None = None) -> None:
        """`epoch_rows`: the number of rows for which sigma is chosen, if more tables follow."""
        taken = self.models.maps.of(self.models.form, rows, not self.models.started)
        source = MemorySource(taken, self.models.form.options.seed, whole_table=epoch_rows is None)
        source.epoch_rows = len(rows) if epoch_rows is None else epoch_rows
        loop = _LoopInMemory(self.models, source, self.cursor, limits)
        loop.meter.rows = self._rows_done
        source.prepare(limits.epochs)
        loop.run()
        self.cursor, self._rows_done = loop.worker.cursor, loop.meter.rows
        self.models.lineages.renew_engines()

    # Results.

    @property
    def leader(self) -> LaneSpec:
        """The best candidate's spec for its first target."""
        return self.models.lanes.specs[self.models.race.leading_lanes().start]

    def predictor(self) -> tuple[Vector, Vector]:
        """A row of weights for each target, and the constants."""
        returned = self.models.lineages.returned
        found = [returned.predictor(lane) for lane in self.models.race.leading_lanes()]
        weights = [self.models.maps.spread(weights) for weights, _ in found]
        return np.stack(weights), np.array([constant for _, constant in found])

    # Copies and pickles.

    def __getstate__(self) -> tuple[RowForm, Sections, Cursor, int]:
        sections = {stage.name: _copied(stage.state()) for stage in self.models.stages()}
        return self.models.form, sections, self.cursor, self._rows_done

    def __setstate__(self, saved: tuple[RowForm, Sections, Cursor, int]) -> None:
        form, sections, self.cursor, self._rows_done = saved
        self.models = Models(form)
        if MapStage.name in sections:
            self.models.maps.restore(_copied(sections[MapStage.name]))
        for stage in self.models.stages():
            stage.restore(_copied(sections[stage.name]))

    def copied(self, form: RowForm) -> MemoryTraining:
        """A copy that continues with these options."""
        copy = MemoryTraining.__new__(MemoryTraining)
        copy.__setstate__((form, *self.__getstate__()[1:]))
        return copy


def _copied(bundle: Bundle) -> Bundle:
    """Arrays of a state may be views of arrays that the next step changes."""
    return Bundle(bundle.values, {name: array.copy() for name, array in bundle.arrays.items()})
