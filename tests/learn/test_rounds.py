"""Workers in rounds: calls and checkpoints change no bit, gradients are summed, and training is as good as in sequence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streampgs.engine import engine
from streampgs.losses import LOSSES

from .windows import Training, settings, started, window

FEATURES = 12
ROWS = 3000


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of tens of rows, so that a few thousand rows have many rounds."""
    monkeypatch.setattr(engine, "_SMALLEST_SHARE", 8)
    monkeypatch.setattr(engine, "_USUAL_SHARE", 40)
    monkeypatch.setattr(engine, "_SEEN_BEFORE", 4)


def reached(solver: Training, rows, edges: list[int]) -> list[int]:
    """The rows at which calls that should stop at `edges` stop."""
    places, row = [], 0
    for edge in edges:
        if row < edge:
            row = solver.advance(rows, row, edge, ROWS)
        places.append(row)
    return places


def test_a_call_finishes_its_round_beyond_the_requested_row():
    rows = window(ROWS, FEATURES, "sparse")
    solver = started(settings("hinge", 2.0, "sparse"), FEATURES, 2)
    places = reached(solver, rows, [100, 1000, 1001, 2000, 2999])
    assert all(place >= edge for place, edge in zip(places, [100, 1000, 1001, 2000, 2999], strict=True))
    assert places[0] == 100  # before the first round, one worker trains alone
    assert places != [100, 1000, 1001, 2000, 2999]
    assert solver.steps == places[-1]


@pytest.mark.parametrize(("p", "workers"), [(2.0, 2), (2.0, 5), (1.8, 3)])
def test_the_dual_sums_all_gradients_and_the_average_covers_all_iterates(p, workers):
    """One round is recomputed: each worker starts from the same state, and its gradients count once for each worker."""
    rows = window(ROWS, FEATURES, "dense")
    chosen = settings("logistic", p, "dense", "average", sigma=0.05)
    solver = started(chosen, FEATURES, workers)
    row = solver.advance(rows, 0, engine.first_round(workers, FEATURES), ROWS)
    start, t = solver.dual().copy(), solver.steps
    iterates = solver.weights() * t
    share = engine.share_of(t, workers, FEATURES)
    x = np.column_stack([np.full(ROWS, chosen.intercept), rows.values.reshape(ROWS, FEATURES).astype(float)])
    slope_of = LOSSES["logistic"].slope
    q = p / (p - 1.0)
    ends, total = [], np.zeros_like(start)
    for worker in range(workers):
        dual = start.copy()
        for h in range(share):
            theta = dual / ((t + workers * h + chosen.own.t0) * chosen.sigma)
            size = float(np.sum(np.abs(theta) ** q)) ** (1.0 / q)
            w = (p - 1.0) * size ** (2.0 - q) * np.abs(theta) ** (q - 1.0) * np.sign(theta)
            total += w
            r = row + worker * share + h
            dual -= workers * slope_of(float(w @ x[r]), float(rows.labels[r]), 0.0) * x[r]
        ends.append(dual)
    after = solver.advance(rows, row, row + 1, ROWS)
    assert after == row + workers * share
    np.testing.assert_allclose(solver.dual(), np.mean(ends, axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(solver.weights() * solver.steps, iterates + total, rtol=1e-7, atol=1e-9)


def test_rounds_reach_nearly_the_same_loss_as_training_in_sequence():
    rows = window(ROWS, FEATURES, "dense")
    losses = []
    for workers in (1, 4):
        solver = started(settings("logistic", 2.0, "dense", sigma=1e-3, t0=500.0), FEATURES, workers)
        for _ in range(3):
            solver.advance(rows, 0, ROWS)
        weights = solver.weights()
        scores = rows.values.reshape(ROWS, FEATURES) @ weights[1:] + weights[0] * 0.1
        losses.append(float(np.logaddexp(0.0, -scores * rows.labels).mean()))
    assert losses[1] < losses[0] * 1.02
    assert losses[1] < 0.8 * math.log(2.0)


@pytest.mark.parametrize("returns", ["suffix", "average", "last", "random"])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_weights_of_some_coordinates_equal_those_of_all(p, returns):
    rows = window(ROWS, FEATURES, "sparse")
    solver = started(settings("hinge", p, "sparse", returns), FEATURES)
    chosen = np.array([0, 3, 4, 11])
    for stop in (0, 1, 90, 400):
        solver.advance(rows, solver.steps, stop)
        np.testing.assert_array_equal(solver.weights(0, chosen), solver.weights()[chosen])
