"""Composite dual averaging, slow: all weights are computed in every step, and every iterate is kept."""

from __future__ import annotations

import numpy as np

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, loss_slope


class PlainComposite:
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.dual: Vector = np.zeros(features + 1)
        self.iterates: list[Vector] = [np.zeros(features + 1)]

    def step(self, rows: list[PlainRow]) -> None:
        s, w = self.spec, self.iterates[-1]
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, float(w @ row.x), row.y)
            self.dual = self.dual - slope * row.x / len(rows)
        t = len(self.iterates)
        threshold = np.full(len(w), (t + s.own.l1_steps) * s.own.l1)
        threshold[0] = 0.0
        shrunk = np.sign(self.dual) * np.maximum(0.0, np.abs(self.dual) - threshold)
        self.iterates.append(shrunk / ((t + s.own.t0) * s.sigma))

    def average(self) -> Vector:
        """The mean of the w from which the covered steps started; zero where w was zero in more than three quarters."""
        t = len(self.iterates) - 1
        power_of_two = 1 << (t.bit_length() - 1)
        first = power_of_two // 2 if t < 1.5 * power_of_two else power_of_two
        first = 0 if self.spec.own.returns == "average" else first
        covered = np.array(self.iterates[first:-1])
        kept = (covered != 0.0).mean(axis=0) >= 0.25
        kept[0] = True
        return np.where(kept, covered.mean(axis=0), 0.0)
