"""The constant of the returned model minimizes the loss, where the rows say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streampgs.learn.lane_spec import Target
from streampgs.losses import LOSSES
from streampgs.selection.judge import Judge, centring_rows

from .test_race import FEATURES, StandIn, candidate, window_of

ROWS = 4000


def best_constant(
    loss: str, shift: float, rows: int = ROWS, all_rows: bool = False, **changes: Any
) -> tuple[float, Any]:
    """For a model whose scores are too low by `shift`, and the mean loss as a function of a constant."""
    random = np.random.default_rng(3)
    x, declared = random.normal(size=(rows, FEATURES)), LOSSES[loss]
    weights = np.concatenate([[0.0], random.normal(size=FEATURES)])
    scores = x.astype(np.float32) @ weights[1:]
    if declared.classifies:
        labels = np.where(random.random(rows) < 1.0 / (1.0 + np.exp(-scores - shift)), 1.0, -1.0)
    elif declared.lowest_label == 0.0:
        labels = random.poisson(np.exp(scores + shift)).astype(float)
    else:
        labels = scores + shift + random.normal(size=rows)
    shape = declared.shape(labels)
    spec = replace(candidate(loss=loss), shape=shape, **changes)
    window = window_of(x, labels)
    judge = Judge(StandIn([spec], [weights]), [Target("label")], window, np.arange(rows))
    return judge.best_constant(0, all_rows), lambda c: float(np.mean(declared.values(scores + c, labels, shape)))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shift", [0.7, -0.7])
def test_no_other_constant_has_a_smaller_loss(loss, shift):
    found, mean_loss = best_constant(loss, shift)
    assert found * shift > 0.0
    assert mean_loss(found) <= min(mean_loss(c) for c in np.linspace(-2.0, 2.0, 81)) + 1e-3


@pytest.mark.parametrize("loss", ["logistic", "squared", "absolute"])
def test_few_rows_that_say_little_move_the_constant_less_than_they_ask_for(loss):
    found, mean_loss = best_constant(loss, 0.1, rows=60)
    places = np.linspace(-1.0, 1.0, 2001)
    wanted = places[np.argmin([mean_loss(c) for c in places])]
    assert abs(found) <= 0.9 * abs(wanted)
    assert found * wanted >= 0.0


def test_all_rows_of_a_table_decide_however_few():
    found, mean_loss = best_constant("logistic", 0.1, rows=60, all_rows=True)
    places = np.linspace(-1.0, 1.0, 2001)
    assert found == pytest.approx(places[np.argmin([mean_loss(c) for c in places])], abs=0.1)


def test_more_rows_are_used_where_most_labels_are_the_same():
    x = np.zeros((400_000, 1))
    assert centring_rows(window_of(x, np.arange(400_000.0))) == 8192
    rare = np.where(np.arange(400_000) % 10 == 0, 1.0, -1.0)
    assert centring_rows(window_of(x, rare)) == pytest.approx(10 * 8192, rel=1e-3)
    assert centring_rows(window_of(x, np.ones(400_000))) == 1 << 18
