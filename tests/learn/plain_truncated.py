"""Truncated gradient, slow: all weights shrink in every step."""

from __future__ import annotations

import numpy as np

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, loss_slope


class PlainTruncated:
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.weights: Vector = np.zeros(features + 1)

    def step(self, rows: list[PlainRow]) -> None:
        s, gradient = self.spec, np.zeros_like(self.weights)
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, float(self.weights @ row.x), row.y)
            gradient += slope * row.x / len(rows)
        moved = self.weights - s.own.step * gradient
        shrunk = np.sign(moved) * np.maximum(0.0, np.abs(moved) - s.own.step * s.own.l1)
        self.weights = np.concatenate([moved[:1], shrunk[1:]])
