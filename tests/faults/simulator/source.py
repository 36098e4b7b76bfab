"""The windows of a simulated run: planned by the product, filled with the numbers of their rows."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from streampgs.data.shards import ShardSource
from streampgs.encoding.encoding import Encoding
from streampgs.formats.registry import open_shard
from streampgs.kernels.randomness import shuffled
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import WindowPlan
from streampgs.reading.loader import _row_numbers
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import Window
from tests.faults.simulator.learner import Visits
from tests.faults.simulator.shards import Content, label_of


class SimulatedSource(ShardSource):
    reads_files: ClassVar[bool] = True
    """Whether the shards must still be there. Without it labels are those of the first reading."""
    known: ClassVar[dict[str, Content]] = {}
    """The content of each shard that was read, by its digest."""

    def _new_filler(self) -> Any:
        return None

    def prepare(self, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        if stop.reason is not None or (self._last_epoch is not None and cursor.epoch >= self._last_epoch):
            return None
        plan = self._schedule.window(cursor.at_row(0))
        window = Window()
        window.span = plan
        window.starts = np.arange(plan.pieces.rows())
        window.stops = window.starts + 1
        window.indices = np.zeros(len(window), np.uint32)
        window.values = np.ones(len(window), np.float32)
        window.number_rows = partial(_row_numbers, plan, self._catalog)
        self._label(plan, window)
        Visits.epoch = plan.start.epoch
        return window

    def _label(self, plan: WindowPlan, window: Window) -> None:
        labels: list[float] = []
        width = 0
        pieces = plan.pieces
        for group, start, stop in zip(pieces.group, pieces.start, pieces.stop, strict=True):
            number, inside = self._catalog.shard_of(int(group))
            content = self._content(number)
            width = max(width, content.width)
            first = sum(content.rows[:inside])
            labels += [label_of(content, first + int(row)) for row in range(start, stop)]
        encoding = self._rules.columns.encoding
        window.features = encoding.features if isinstance(encoding, Encoding) else width
        window.labels = np.empty(len(window))
        window.labels[shuffled(np.uint64(plan.shuffle_key), len(window))] = self._coded(labels)

    def _content(self, number: int) -> Content:
        shard = self._catalog.shards[number]
        if self.reads_files:
            with open_shard(shard.path, shard.fingerprint) as file:
                self.known[shard.content] = file.content  # type: ignore[attr-defined]
        return self.known[shard.content]

    def _coded(self, labels: list[float]) -> list[float]:
        classes = self._rules.columns.label_specs[0].classes if self._rules.columns.label_specs else None
        return labels if classes is None else [float(classes.index(label)) for label in labels]

    def release(self, window: Window) -> None:
        pass

    def close(self) -> None:
        pass
