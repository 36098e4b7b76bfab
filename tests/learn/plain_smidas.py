"""SMIDAS, slow: Algorithm 3 of the paper, with dense vectors. θ shrinks every K steps, and before weights are read."""

from __future__ import annotations

import numpy as np

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, link, loss_slope


class PlainSmidas:
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.dual: Vector = np.zeros(features + 1)
        self.steps = self.shrunk = 0

    def step(self, rows: list[PlainRow]) -> None:
        s, weights, gradient = self.spec, self._weights(self.dual), np.zeros_like(self.dual)
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, float(weights @ row.x), row.y)
            gradient += slope * row.x / len(rows)
        self.dual = self.dual - s.own.step * gradient
        self.steps += 1
        if self.steps % s.own.shrink_every == 0:
            self.dual, self.shrunk = self._settled(), self.steps

    def _settled(self) -> Vector:
        amount = (self.steps - self.shrunk) * self.spec.own.step * self.spec.own.l1
        shrunk = np.sign(self.dual) * np.maximum(0.0, np.abs(self.dual) - amount)
        return np.concatenate([self.dual[:1], shrunk[1:]])

    def _weights(self, dual: Vector) -> Vector:
        """The paper's link has no factor p - 1."""
        p = self.spec.norm.p
        return link(dual, p) / (p - 1.0)

    @property
    def weights(self) -> Vector:
        return self._weights(self._settled())
