"""The optimum of a small problem: scipy solves the dual problem, and weak duality proves the result.

By Fenchel duality, for any u with one number per row and θ = -(1/(mσ)) Σ u_i x_i,

    D(u) = -(1/m) Σ loss*(u_i) - σ·r*(θ)  ≤  min F  ≤  F(∇r*(θ)),

where r* depends on the ball. D is smooth even for the hinge loss, for which F is not, and has only box constraints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import entr

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import conjugate, link, loss_value, norm
from .windows import Window, radius_of

Vector = NDArray[np.float64]


@dataclass
class Problem:
    """F(w) = σ·‖w‖_p²/(2(p-1)) + mean loss, with the intercept as the first coordinate."""

    settings: LaneSpec
    x: NDArray[np.float64]
    labels: Vector

    @staticmethod
    def of(settings: LaneSpec, rows: Window, features: int) -> Problem:
        x = np.array([row.x for row in rows.plain_rows(features, settings.intercept)])
        return Problem(settings, x, rows.labels)

    def value(self, w: Vector) -> float:
        s = self.settings
        losses = [
            loss_value(s.loss, s.shape, float(score), y) for score, y in zip(self.x @ w, self.labels, strict=True)
        ]
        return s.sigma * norm(w, s.norm.p) ** 2 / (2.0 * (s.norm.p - 1.0)) + math.fsum(losses) / len(losses)

    def optimum(self) -> tuple[Vector, float]:
        """(w, a proven lower bound of F). F(w) is at most a millionth above the bound."""

        def negated_dual(u: Vector) -> tuple[float, Vector]:
            value, slope = self._dual(u)
            return -value, -slope

        classes = self.settings.loss != "squared"
        start = -0.5 * self.labels
        bounds = [(min(0.0, -y), max(0.0, -y)) for y in self.labels] if classes else None
        options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 20_000, "maxfun": 100_000, "maxcor": 50}
        found = minimize(negated_dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        w, least = self._primal(found.x), -float(found.fun)
        assert 0.0 <= self.value(w) - least + 1e-12 <= 1e-6 * least, "the reference is not optimal"
        return w, least

    def _primal(self, u: Vector) -> Vector:
        s = self.settings
        w = link(self._theta(u), s.norm.p)
        length = norm(w, s.norm.p)
        radius = radius_of(s)
        return w * (radius / length) if length > radius else w

    def _theta(self, u: Vector) -> Vector:
        return -(u @ self.x) / (len(u) * self.settings.sigma)

    def _dual(self, u: Vector) -> tuple[float, Vector]:
        s, m = self.settings, len(u)
        conjugates, slopes = self._loss_conjugates(u)
        value = -float(conjugates.mean()) - s.sigma * conjugate(self._theta(u), s.norm.p, radius_of(s))
        return value, (self.x @ self._primal(u) - slopes) / m

    def _loss_conjugates(self, u: Vector) -> tuple[Vector, Vector]:
        """loss*(u_i) = sup over s of u_i·s - loss(s), and its slope. For classes u = -y·share with share in [0, 1]."""
        share = -self.labels * u
        match self.settings.loss:
            case "hinge":
                return -share, self.labels
            case "logistic":
                odds = np.clip(share, 1e-15, 1.0) / np.clip(1.0 - share, 1e-15, 1.0)
                return -(entr(share) + entr(1.0 - share)), -self.labels * np.log(odds)
            case "squared":
                return 0.25 * u * u + u * self.labels, 0.5 * u + self.labels
        raise AssertionError(self.settings.loss)
