"""Figures 1 and 2 of the paper as they stand: each step computes all coordinates of w, which costs O(n)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numba import njit

from scripts.papers.pgs.climbs import Judge, Look, pieces
from scripts.papers.pgs.rows import Numbers, Rows


@njit
def _steps(bounds, indices, values, labels, numbers, batch, steps, sigma, p, dual, w):  # type: ignore[no-untyped-def]
    """Steps of logistic regression with t0 = 1; returns how many there were in all."""
    q = p / (p - 1.0)
    for first in range(0, numbers.size, batch):
        last = min(first + batch, numbers.size)
        slopes = np.empty(last - first)
        for place in range(first, last):
            row = numbers[place]
            score = 0.0
            for entry in range(bounds[row], bounds[row + 1]):
                score += w[indices[entry] + 1] * values[entry]
            slopes[place - first] = -labels[row] / (1.0 + np.exp(labels[row] * score)) / (last - first)
        for place in range(first, last):
            row = numbers[place]
            for entry in range(bounds[row], bounds[row + 1]):
                dual[indices[entry] + 1] -= slopes[place - first] * values[entry]
        steps += 1
        divisor = (steps + 1.0) * sigma
        if p == 2.0:
            for i in range(w.size):
                w[i] = dual[i] / divisor
            continue
        total = 0.0
        for i in range(w.size):
            if dual[i] != 0.0:
                total += (abs(dual[i]) / divisor) ** q
        factor = (p - 1.0) * total ** (2.0 / q - 1.0) if total > 0.0 else 0.0
        for i in range(w.size):
            if dual[i] != 0.0:
                w[i] = factor * (abs(dual[i]) / divisor) ** (q - 1.0) * np.sign(dual[i])
    return steps


def printed_climb(
    rows: Rows,
    parts: Iterator[Numbers],
    batch: int,
    p: float,
    sigma: float,
    looks: list[int],
    judge: Judge,
    most: float,
) -> list[Look]:
    """Until the last look, or for about `most` seconds."""
    dual, w = np.zeros(rows.features + 1), np.zeros(rows.features + 1)
    arrays = rows.bounds, rows.indices, rows.values, rows.labels
    _steps(*arrays, np.zeros(0, np.int64), batch, 0, sigma, p, dual, w)  # compile
    found: list[Look] = []
    steps, seconds = 0, 0.0
    for taken, look in pieces(parts, looks):
        began = time.thread_time()
        steps = _steps(*arrays, np.concatenate(taken), batch, steps, sigma, p, dual, w)
        seconds += time.thread_time() - began
        found.append((look, seconds, [judge(w, 0.0)]))
        if seconds > most:
            break
    return found
