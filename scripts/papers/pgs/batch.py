"""L-BFGS over rows in memory, the batch method that the paper compares with: each step looks at all rows."""

from __future__ import annotations

import time

import numpy as np
from numba import njit

from scripts.papers.pgs.climbs import Judge, Look
from scripts.papers.pgs.rows import Floats, Numbers, Rows

_MEMORY = 10


@njit
def _mean_loss(bounds, indices, values, labels, numbers, squared, constant, w, gradient):  # type: ignore[no-untyped-def]
    """The mean loss, whose gradient is added."""
    total = 0.0
    for row in numbers:
        y, score = labels[row], w[0] * constant
        for entry in range(bounds[row], bounds[row + 1]):
            score += w[indices[entry] + 1] * values[entry]
        if squared:
            total += (score - y) ** 2
            slope = 2.0 * (score - y)
        else:
            margin = y * score
            total += np.log1p(np.exp(-abs(margin))) + max(0.0, -margin)
            slope = -y / (1.0 + np.exp(margin))
        slope /= numbers.size
        gradient[0] += slope * constant
        for entry in range(bounds[row], bounds[row + 1]):
            gradient[indices[entry] + 1] += slope * values[entry]
    return total / numbers.size


def batch_climb(
    rows: Rows, subset: Numbers, loss: str, p: float, sigma: float, constant: float, iterations: int, judge: Judge
) -> list[Look]:
    """scipy's L-BFGS; each gradient visits every row once. Judging is not in the seconds."""
    from scipy.optimize import minimize

    arrays = rows.bounds, rows.indices, rows.values, rows.labels
    squared, order = loss == "squared", np.sort(subset)
    w = np.zeros(rows.features + 1)
    _mean_loss(*arrays, order[:1], squared, constant, w, w.copy())  # compile
    calls, judging, found = 0, 0.0, list[Look]()

    def objective(w: Floats) -> tuple[float, Floats]:
        nonlocal calls
        calls += 1
        gradient = np.zeros_like(w)
        value = _mean_loss(*arrays, order, squared, constant, w, gradient)
        regularizer, slope = _regularizer(w, p)
        return value + sigma * regularizer, gradient + sigma * slope

    began = time.thread_time()

    def look(w: Floats) -> None:
        nonlocal judging
        seconds = time.thread_time() - began - judging
        found.append((calls * len(order), seconds, [judge(w, constant)]))
        judging = time.thread_time() - began - seconds

    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": _MEMORY, "ftol": 1e-9, "gtol": 1e-9}
    minimize(objective, w, jac=True, method="L-BFGS-B", callback=look, options=options)
    return found


def _regularizer(w: Floats, p: float) -> tuple[float, Floats]:
    """‖w‖_p²/(2(p-1)) and its gradient."""
    if p == 2.0:
        return 0.5 * float(w @ w), w
    powers = np.abs(w) ** (p - 1.0)
    total = float(powers @ np.abs(w))
    if total == 0.0:
        return 0.0, np.zeros_like(w)
    return total ** (2.0 / p) / (2.0 * (p - 1.0)), total ** (2.0 / p - 1.0) / (p - 1.0) * powers * np.sign(w)
