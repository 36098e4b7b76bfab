"""Results stay accurate for any p, any size of gradients and any number of steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streampgs.base.errors import Diverged
from streampgs.options.solvers import SMALLEST_P

from .plain_pgs import PlainPgs
from .windows import dense_window, last_iterate, settings, started, tallies_of, window

FEATURES = 3
FAR_AWAY = 1e30
"""A target so large that the slope of the absolute loss is -1 for all weights."""

near_one = pytest.mark.parametrize("p", [1.1, 1.01, SMALLEST_P])
gradient_sizes = pytest.mark.parametrize("size", [1e6, 1.0, 1e-6])


def pushes(rows, size, seed=0):
    """Gradients of about `size` and of one sign. Features are similar, because p near 1 amplifies differences."""
    return size * np.random.default_rng(seed).uniform(0.5, 1.5, size=(rows, FEATURES)).astype(np.float32)


def run(p, x, targets):
    chosen = settings("absolute", p, intercept=0.0, sigma=1.0, t0=1.0)
    rows = dense_window(x, targets)
    solver, plain = started(chosen, FEATURES), PlainPgs(chosen, FEATURES)
    for row, plain_row in enumerate(rows.plain_rows(FEATURES, 0.0)):
        solver.advance(rows, row, row + 1)
        plain.step([plain_row])
        yield solver, plain


def assert_close(found, expected, tolerance=1e-9):
    assert np.isfinite(found).all()
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance * float(np.abs(expected).max()))


@near_one
@gradient_sizes
def test_iterates_are_accurate_for_p_near_1(p, size):
    for solver, plain in run(p, pushes(200, size), np.full(200, FAR_AWAY)):
        assert_close(last_iterate(solver), plain.iterates[-1])
    assert_close(solver.dual(), plain.duals[-1])
    assert tallies_of(solver) == pytest.approx(plain.tallies(), rel=1e-9, abs=0.0)
    assert solver.gap() == pytest.approx(plain.gap(), rel=1e-9, abs=1e-9 * size**2)


@pytest.mark.parametrize("p", [1.8, 1.5, 1.3, 1.1, 1.01])
def test_iterates_are_accurate_while_the_dual_shrinks_and_changes_sign(p):
    """λ grows, returns to zero and changes its sign, as with sorted rows. Q must not keep rounding errors from the time
    when it was large."""
    x = pushes(700, 1.0)
    x[400:] *= 400 / 300 * 1.02
    targets = np.where(np.arange(700) < 400, FAR_AWAY, -FAR_AWAY)
    for solver, plain in run(p, x, targets):
        found, expected = last_iterate(solver), plain.iterates[-1]
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max(), f"after {solver.steps} steps"
        assert solver.dual()[1:].max() < 3 * 400


@pytest.mark.parametrize(("loss", "p", "layout"), [("hinge", 2.0, "sparse"), ("hinge", 1.8, "sparse")])
def test_the_running_power_sum_is_accurate(loss, p, layout):
    """The last rebuild is at step 2^18, long before the last step."""
    chosen = settings(loss, p, layout)
    base = window(1000, 50, layout)
    total = (1 << 18) + 200_000
    rows = base.visited(np.random.default_rng(0).integers(0, len(base.starts), total))
    solver = started(chosen, 50)
    solver.advance(rows, 0, total)
    q = p / (p - 1.0)
    exact = math.fsum((np.abs(solver.dual()) / solver.state["power_scale"][0]) ** q)
    assert solver.state["power_sum"][0] == pytest.approx(exact, rel=1e-9)


def after_steps(steps, dual, chosen):
    """A solver that has taken `steps` steps and has this dual vector."""
    solver = started(chosen, len(dual) - 1)
    solver.state["dual"][:, 0] = dual
    solver.state["power_sum"][:] = float(np.sum(np.square(dual)))
    solver.state["steps"][...] = steps
    solver.state["stretch_began"][...] = 1 << (steps.bit_length() - 1)
    solver.state["rebuilds"][...] = steps >> 18
    return solver


@pytest.mark.parametrize(
    ("exact", "tolerance"),
    [
        # Gradients and λ are whole multiples of 2^-20, so float64 adds them exactly.
        (True, 1e-9),
        # Other gradients are rounded when they are added to 1e8. The errors average out over thousands of steps.
        (False, 1e-6),
    ],
)
def test_the_dual_does_not_stagnate_after_a_billion_steps(exact, tolerance):
    total = 4000
    dual = np.array([0.0, 1e8, -1e8, 1.2345e8])
    x = np.random.default_rng(5).uniform(0.5e-3, 1.5e-3, size=(total, FEATURES)).astype(np.float32)
    if exact:
        x = np.round(x * 2.0**20).astype(np.float32) / np.float32(2.0**20)
    labels = np.where(np.arange(total) % 4 == 0, -1.0, 1.0)
    chosen = settings("hinge", 2.0, "dense", sigma=1.0, t0=1.0, intercept=0.0)
    rows = dense_window(x, labels)
    solver = after_steps(10**9, dual, chosen)
    solver.advance(rows, 0, total)

    assert solver.steps == 10**9 + total
    assert tallies_of(solver)[3] > 0.99 * total, "margins must be far below 1, so that every slope is -y"
    for j in range(FEATURES):
        change = math.fsum(float(y) * float(v) for y, v in zip(labels, x[:, j], strict=True))
        whole = math.fsum([dual[j + 1], *(float(y) * float(v) for y, v in zip(labels, x[:, j], strict=True))])
        assert abs(solver.dual()[j + 1] - whole) <= tolerance * abs(change)

        narrow = np.float32(dual[j + 1])
        for y, v in zip(labels, x[:, j], strict=True):
            narrow += np.float32(y) * v
        assert narrow == np.float32(dual[j + 1]), "float32 would not have changed"


@pytest.mark.parametrize("p", [2.0, 1.8])
@pytest.mark.parametrize("size", [1e10, 1e30])
def test_numbers_that_leave_the_range_are_reported_with_a_remedy(p, size):
    chosen = settings("squared", p, sigma=1e-6)
    x = size * np.ones((2000, FEATURES), np.float32)
    solver = started(chosen, FEATURES)
    with pytest.raises(Diverged) as raised:
        solver.advance(dense_window(x, np.ones(2000)), 0, 2000)
    assert "step" in raised.value.found
    assert all(word in raised.value.remedy for word in ("--ball", "--t0", "--sigma", "scale"))


@pytest.mark.parametrize("p", [2.0, 1.8])
def test_a_ball_keeps_weights_in_range_that_diverge_without_it(p):
    chosen = settings("squared", p, sigma=1e-6, radius=1e-8)
    x = 1e10 * window(2000, FEATURES).values.reshape(-1, FEATURES)
    solver = started(chosen, FEATURES)
    solver.advance(dense_window(x, np.ones(2000)), 0, 2000)
    assert np.isfinite(solver.weights()).all()
    assert np.linalg.norm(last_iterate(solver), p) <= 1e-8 * (1.0 + 1e-9)
