"""EG± by dual averaging, literal: the exponentials as they stand, and every iterate is kept."""

from __future__ import annotations

import numpy as np

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, loss_slope


class PlainEntropic:
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.dual: Vector = np.zeros(features + 1)
        self.iterates: list[Vector] = [np.zeros(features + 1)]

    def step(self, rows: list[PlainRow]) -> None:
        s, w = self.spec, self.iterates[-1]
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, float(w @ row.x), row.y)
            self.dual = self.dual - slope * row.x / len(rows)
        theta = self.dual / ((len(self.iterates) + s.own.t0) * s.sigma)
        seen = self.dual[1:] != 0.0
        total = 2.0 + 2.0 * np.cosh(theta[1:])[seen].sum()
        self.iterates.append(np.concatenate([theta[:1], s.own.ball * 2.0 * np.sinh(theta[1:]) / total]))

    def average(self) -> Vector:
        t = len(self.iterates) - 1
        power_of_two = 1 << (t.bit_length() - 1)
        first = power_of_two // 2 if t < 1.5 * power_of_two else power_of_two
        return np.asarray(np.mean(self.iterates[first:-1], axis=0))
