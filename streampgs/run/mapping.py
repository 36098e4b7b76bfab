"""Kernel features in a run: found at its first window, and computed whenever rows are trained on or judged."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from streampgs.data.feature_maps import MapStage, found_map
from streampgs.data.row_form import RowForm
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint
from streampgs.selection.race import Race
from streampgs.table.layout import SPARSE


class Mapping(MapStage):
    def restore_from(self, checkpoint: Checkpoint) -> None:
        """Runs without a kernel have none."""
        if self.name in checkpoint.sections:
            checkpoint.restore(self)

    def warm_up(self, form: RowForm) -> None:
        """Compile, or load from the cache, the loops of the map."""
        if form.options.kernel is None:
            return
        window = Window()
        window.rows, window.largest_index = 1, 0
        window.starts, window.stops, window.values = np.zeros(1, np.int64), np.ones(1, np.int64), np.ones(1, np.float32)
        if form.layout == SPARSE:
            window.indices = np.zeros(1, np.uint32)
        warmed = found_map(form.options, form.layout, 1, window)
        warmed.learn(window)
        warmed.mapped(window)

    def inputs(self, features: int) -> int:
        """The features of the rows as they are read, for a model of so many."""
        return features if self.map is None else self.map.record.inputs

    def features_of(self, form: RowForm) -> int | None:
        """Those of the model, where they are known before its next row."""
        if self.map is None:
            return form.feature_count
        self.grow(form.feature_count or 0)
        return self.map.width

    def of(self, form: RowForm, window: Window, race: Race, count: Callable[[int, float], None]) -> Window:
        """The rows as the solver takes them, until the next call. `count`: takes note of the time, see Meter.add."""
        if form.options.kernel is None:
            return window
        began, known = time.perf_counter(), form.feature_count or 0
        if not len(race.lanes):
            self.map = found_map(form.options, form.layout, known, window)
        self.grow(max(known, window.largest_index + 1))
        assert self.map is not None
        if self.map.learn(window) and race.validation is not None:
            race.validation = self.validation(form, 0)
        mapped = self.map.mapped(window, reuse=True)
        count(0, began)
        return mapped

    def validation(self, form: RowForm, features: int) -> Window | None:
        window = form.validation(self.inputs(features))
        return window if window is None or self.map is None else self.map.mapped(window)
