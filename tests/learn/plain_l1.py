"""The problem (1/m) Σ log(1 + e^{-y s}) + l1·‖w‖₁, and its optimum by proximal gradient steps over all rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def objective(weights: Vector, x: Vector, labels: Vector, l1: float) -> float:
    """The first weight is that of the intercept, which l1 leaves alone."""
    return float(np.logaddexp(0.0, -labels * (x @ weights)).mean() + l1 * np.abs(weights[1:]).sum())


def optimum(x: Vector, labels: Vector, l1: float) -> Vector:
    weights, step = np.zeros(x.shape[1]), 4.0 / np.linalg.eigvalsh(x.T @ x / len(x))[-1]
    for _ in range(5000):
        slopes = -labels / (1.0 + np.exp(labels * (x @ weights)))
        moved = weights - step * (slopes @ x) / len(x)
        weights = np.concatenate([moved[:1], np.sign(moved[1:]) * np.maximum(0.0, np.abs(moved[1:]) - step * l1)])
    return weights
