"""PGS in the space of a kernel, literal and slow: every iterate is kept. The gradient of a row is put on its largest entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streampgs.learn.lane_spec import LaneSpec
from tests.learn.plain_pgs import PlainRow, Vector, loss_slope


class PlainKernel:
    def __init__(self, settings: LaneSpec, features: int) -> None:
        self.settings = settings
        self.dual = np.zeros(features + 1)
        self.iterates: list[Vector] = [np.zeros(features + 1)]

    def step(self, rows: Sequence[PlainRow]) -> None:
        s, before = self.settings, self.iterates[-1]
        gradient = np.zeros_like(self.dual)
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, float(before @ row.x), row.y) / len(rows)
            gradient[0] += slope * row.x[0]
            if row.x[1:].any():
                nearest = 1 + int(np.argmax(np.abs(row.x[1:])))
                gradient[nearest] += slope * row.x[nearest]
        self.dual -= gradient
        self.iterates.append(self.dual / ((len(self.iterates) + s.own.t0) * s.sigma))

    def average(self) -> Vector:
        """Of the weights from which the later steps started: those since the last power of two, and the stretch before it
        where they are too few."""
        steps = len(self.iterates) - 1
        began = 1 << (steps.bit_length() - 1)
        return np.mean(self.iterates[began // 2 if steps < 1.5 * began else began : -1], axis=0)
