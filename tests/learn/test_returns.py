"""The returned weights: the last, random ones, the mean of all, or the mean of the later steps."""

from __future__ import annotations

import numpy as np
import pytest

from .windows import dense_window, last_iterate, settings, started, tallies_of, window

FEATURES = 4


def iterates_over(chosen, rows):
    """w_0, …, w_T, read after every step."""
    solver = started(chosen, FEATURES)
    iterates = [last_iterate(solver)]
    for row in range(len(rows)):
        solver.advance(rows, row, row + 1)
        iterates.append(last_iterate(solver))
    return solver, iterates


def test_random_returns_every_iterate_equally_often(assert_uniform):
    total = 12
    rows = window(total, FEATURES)
    _, iterates = iterates_over(settings("huber", 1.1, shape=0.5, returns="random"), rows)
    place_of = {w.tobytes(): t for t, w in enumerate(iterates)}
    assert len(place_of) == total + 1

    counts = np.zeros(total + 1, int)
    pairs = np.zeros((2, 2), int)
    for seed in range(2400):
        solver = started(settings("huber", 1.1, shape=0.5, returns="random", seed=seed), FEATURES)
        solver.advance(rows, 0, total // 2)
        early = place_of[solver.weights().tobytes()]
        solver.advance(rows, total // 2, total)
        late = place_of[solver.weights().tobytes()]
        assert late == early or late > total // 2
        counts[late] += 1
        pairs[int(early > total // 4), int(late > total // 2)] += 1
    # The paper draws from w_1, …, w_T.
    assert counts[0] == 0
    assert_uniform(counts[1:])
    # The first kept iterate does not influence later replacements.
    assert_uniform(pairs)


def test_random_keeps_replacing_in_long_runs(assert_uniform):
    """The step of the last replacement before T is uniform over 1..T, so its logarithm does not stagnate."""
    no_rows = dense_window(np.zeros((4096, FEATURES)), np.ones(4096))
    kept_at = []
    for seed in range(800):
        solver = started(settings("huber", 1.1, shape=0.5, returns="random", seed=seed), FEATURES)
        replaced = []
        while (following := int(solver.state["next_kept"])) <= 4096:
            replaced.append(following)
            solver.advance(no_rows, solver.steps, following)
        assert solver.state["kept_count"] == len(replaced)
        kept_at.append(replaced[-1])
    assert_uniform(np.histogram(kept_at, bins=16, range=(0.5, 4096.5))[0])


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_average_is_the_mean_of_all_iterates(p):
    rows = window(100, FEATURES, seed=1)
    solver, iterates = iterates_over(settings("logistic", p, returns="average"), rows)
    # Step t starts from w_{t-1}: its loss and slope are those of w_{t-1}.
    assert solver.weights() == pytest.approx(np.mean(iterates[:-1], axis=0), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("total", [2, 3, 17, 95, 96, 100])
def test_suffix_is_the_mean_of_the_later_iterates(total):
    rows = window(total, FEATURES, seed=2)
    solver, iterates = iterates_over(settings("logistic", 1.5, returns="suffix"), rows)
    covered = int(tallies_of(solver)[0])
    mean = np.mean(iterates[total - covered : total], axis=0)
    assert solver.weights() == pytest.approx(mean, rel=1e-10, abs=1e-12)
