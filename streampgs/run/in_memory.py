"""Training on rows in memory, without a folder: the same models, steps and choices as in a run, and no checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streampgs.data.memory import MemoryRows, MemorySource
from streampgs.data.row_form import RowForm
from streampgs.engine.worker import Worker
from streampgs.learn.lane_spec import LaneSpec
from streampgs.losses import Vector
from streampgs.options import Limits
from streampgs.order.cursor import Cursor
from streampgs.reading.window import Window
from streampgs.run.loop import Loop
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.report import StopRequest
from streampgs.run.saver import NothingSaved
from streampgs.stage import Bundle


class MemoryTraining:
    """Models that are trained on rows in memory: on one table for some epochs, or on one table after the other."""

    def __init__(self, form: RowForm) -> None:
        self.models, self.meter, self.cursor = Models(form), Meter(), Cursor(())

    def train(self, rows: MemoryRows, limits: Limits, epoch_rows: int | None = None) -> None:
        """`epoch_rows`: the number of rows for which sigma is chosen, if more tables follow."""
        options = self.models.form.options
        source = MemorySource(rows, options.seed, whole_table=epoch_rows is None)
        source.epoch_rows = len(rows) if epoch_rows is None else epoch_rows
        worker = Worker(source, self.cursor)
        self.meter.watch(source)
        loop = Loop(self.models, self.meter, worker, NothingSaved(), limits, StopRequest(), None)
        source.prepare(limits.epochs)

        def prepare(window: Window) -> None:
            self.models.prepare(window, source.epoch_rows, self.meter.rows)

        def judge(window: Window, row: int) -> None:
            self.models.judge(window, row, self.meter.rows, source.epoch_rows)

        loop.run(prepare, judge, lambda: None)
        self.cursor = worker.cursor

    # Results.

    @property
    def leader(self) -> LaneSpec:
        """The best candidate's spec for its first target."""
        return self.models.lanes.specs[self.models.race.leading_lanes().start]

    def predictor(self) -> tuple[Vector, Vector]:
        """A row of weights for each target, and the constants."""
        found = [self.models.lanes.predictor(lane) for lane in self.models.race.leading_lanes()]
        return np.stack([weights for weights, _ in found]), np.array([constant for _, constant in found])

    # State, for training that continues later.

    def state(self) -> dict[str, Bundle]:
        stages = [*self.models.stages(), self.meter]
        found = {stage.name: _copied(stage.state()) for stage in stages}
        return {**found, "cursor": Bundle({"epoch": self.cursor.epoch})}

    @staticmethod
    def restored(form: RowForm, sections: dict[str, Bundle]) -> MemoryTraining:
        training = MemoryTraining(form)
        for stage in (training.models.lanes, training.models.race, training.models, training.meter):
            stage.restore(_copied(sections[stage.name]))
        training.cursor = replace(training.cursor, epoch=sections["cursor"].values["epoch"])
        return training


def _copied(bundle: Bundle) -> Bundle:
    """Arrays of a state may be views of arrays that the next step changes."""
    joined = {name: np.concatenate(parts) for name, parts in bundle.joined.items()}
    return Bundle(bundle.values, {name: array.copy() for name, array in bundle.arrays.items()} | joined)
