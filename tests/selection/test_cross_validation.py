"""Cross-validation: no row is judged by a model that has seen it, every row counts once, and candidates do not disturb each
other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from streampgs import StreamClassifier
from streampgs.data.row_form import RowForm
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import SIGMA_LADDER, WHOLE_LADDER, PgsOptions
from streampgs.options.commands import ModelOptions
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import WindowSpan
from streampgs.reading.window import Window
from streampgs.run.models import Models
from streampgs.selection import cross_validation
from streampgs.selection.cross_validation import CrossValidation, sampled_rows
from streampgs.selection.grid import enter_first

EPOCHS = 4
START = Cursor((Arrival(0, 0, 1, 1),))


def window_of(x: Any, labels: Any, weights: Any = ()) -> Window:
    window = Window()
    x = np.asarray(x, np.float32)
    window.starts = np.arange(len(x)) * x.shape[1]
    window.stops = window.starts + x.shape[1]
    window.values, window.features = x.ravel(), x.shape[1]
    window.labels, window.weights = np.asarray(labels, float), np.asarray(weights, float)
    window.span = WindowSpan(START, replace(START, epoch=1), 0)
    return window


def lane(sigma: float = 1e-3, t0: float = 100.0, loss: str = "logistic", **target: Any) -> LaneSpec:
    own = PgsOptions(t0, None, "suffix")
    return LaneSpec("pgs", loss, 0.0, PNorm(2.0), sigma, Target("", **target), 0, 1, 0.5, "dense", own)


def search(window: Window, targets: int = 1, validation: Window | None = None, seed: int = 0) -> CrossValidation:
    features = window.features
    names = [Target(str(number)) for number in range(targets)]
    return CrossValidation(window, validation, names, features, seed, EPOCHS)


def noisy_rows(rows: int, features: int = 5, seed: int = 0, noise: float = 1.0) -> Window:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, features))
    return window_of(x, np.where(x[:, 0] + noise * random.normal(size=rows) > 0.0, 1.0, -1.0))


def test_a_row_is_judged_by_models_that_have_not_seen_it():
    """Each row has a feature of its own, so a model that has seen a row predicts its label, whatever it is."""
    rows = 60
    labels = np.where(np.random.default_rng(1).random(rows) < 0.5, 1.0, -1.0)
    spec = replace(lane(), intercept=0.0)
    (judged,) = search(window_of(np.eye(rows), labels)).judgements([[spec]])
    assert judged.loss == pytest.approx(np.log(2.0), rel=1e-12)
    # The same rows twice: now most rows have been seen.
    again = np.roll(np.arange(rows), 1)  # in another fold
    twice = window_of(np.concatenate([np.eye(rows), np.eye(rows)[again]]), np.concatenate([labels, labels[again]]))
    assert search(twice).judgements([[spec]])[0].loss < 0.6


@given(rows=st.integers(2, 23), chosen=st.integers(0, 22))
@hypothesis_settings(max_examples=25)
def test_every_row_counts_with_its_weight(rows, chosen):
    chosen %= rows
    labels = np.where(np.arange(rows) % 3 == 0, 1.0, -1.0)
    weights = np.where(np.arange(rows) == chosen, 7.0, 0.0)
    spec = replace(lane(), intercept=0.0, base=0.5)
    (judged,) = search(window_of(np.eye(rows), labels, weights)).judgements([[spec]])
    assert judged.loss == pytest.approx(np.log1p(np.exp(-labels[chosen] * 0.5)), rel=1e-12)


@pytest.mark.parametrize("targets", [1, 3])
def test_candidates_do_not_disturb_each_other(targets):
    """Not even where there are so many that they are trained in turn."""
    window = noisy_rows(90)
    sigmas = [10.0**-k for k in range(1, 7)] * 8
    many = [[lane(sigma) for _ in range(targets)] for sigma in sigmas]
    together = search(window, targets).judgements(many)
    for number in (0, 5, 47):
        (alone,) = search(window, targets).judgements([many[number]])
        assert together[number] == pytest.approx(alone, rel=1e-9)
    assert together[:6] == together[6:12]


@pytest.mark.parametrize(("noise", "low", "high"), [(50.0, 0.03, 1e9), (0.05, 0.0, 0.003)])
def test_noise_asks_for_a_strong_regularizer_and_clean_labels_for_a_weak_one(noise, low, high):
    assert low <= chosen_by_a_run(noisy_rows(400, noise=noise)).sigma <= high


def chosen_by_a_run(window: Window, **options: Any) -> LaneSpec:
    form = RowForm(ModelOptions(loss="logistic", **options), None, "dense")
    models = Models(form)
    models.prepare(window, len(window), 0)
    assert len(models.race.candidates) == len(WHOLE_LADDER)
    assert len(models.race.progress.left) == 1
    assert len(models.race.progress.dropped) == len(WHOLE_LADDER) - 1
    return models.race.leading()


def planned(window: Window, ladder: int = 14, classes: int = 1, by_passes: bool = False) -> CrossValidation:
    options = ModelOptions(classes=tuple(map(float, range(classes))) if classes > 2 else None)
    targets = [Target(str(k), positive=float(k) if classes > 1 else None) for k in range(classes)]
    plain = CrossValidation(window, None, targets, window.features, 0)
    return plain.planned(options, by_passes, {"table": ladder, "sample": 8})


def test_a_part_of_a_table_a_large_table_and_much_work_are_left_to_a_sample():
    window = noisy_rows(100)
    assert planned(window).sampled is None
    assert planned(noisy_rows(200, 6000)).sampled is None
    assert planned(window, ladder=1 << 30).sampled is not None
    assert planned(noisy_rows(1)).sampled is not None
    assert planned(noisy_rows(50_001, 1)).sampled is not None
    window.span = WindowSpan(START, replace(START, position=1), 0)
    assert planned(window).sampled is not None
    window.span = WindowSpan(START, replace(START, epoch=2), 0)
    assert planned(window).sampled is not None


@pytest.mark.parametrize("rows", [150, 1_800, 20_000])
@pytest.mark.parametrize("features", [2, 60])
@pytest.mark.parametrize("classes", [1, 10, 100])
@pytest.mark.parametrize("by_passes", [False, True])
def test_the_search_takes_less_work_than_training_or_a_tenth_of_a_second(rows, features, classes, by_passes):
    window = noisy_rows(rows, features)
    window.labels = np.arange(rows) % classes + 0.0
    found = planned(window, classes=classes, by_passes=by_passes)
    passes = 100 if by_passes else max(3, min(200, -(-200_000 // rows)))
    training = rows * features * classes * passes
    trained = found.sampled or rows * 4 // 5
    assert found.work * trained * features * len(found.targets) <= max(training * max(1, 4 // classes), 1 << 27) * 1.01
    if found.sampled is None and not by_passes:
        assert found.epochs >= 3
    assert found.has_all_classes == (len(found.targets) == classes)


def test_little_work_allows_all_folds_and_half_of_the_epochs():
    found = planned(noisy_rows(150, 4))
    assert (found.folds, found.epochs, found.sampled) == (5, 100, None)
    many = planned(noisy_rows(150, 4), classes=3)
    assert (many.folds, many.epochs, len(many.targets)) == (5, 100, 3)


def test_the_most_frequent_classes_stand_for_all():
    window = noisy_rows(1000)
    window.labels = np.repeat(np.arange(10.0), [10, 20, 200, 30, 250, 40, 50, 180, 60, 160])
    assert {target.positive for target in planned(window, classes=10).targets} <= {4.0, 2.0, 7.0, 9.0}


def test_early_losers_are_dropped_and_the_best_is_found_as_without_rungs():
    window = noisy_rows(400, 8)
    sigmas = [10.0 ** (-k / 2) for k in range(14)]
    candidates = [[lane(sigma, t0=max(1.0, 2.0 / sigma))] for sigma in sigmas]
    in_full = replace(search(window), epochs=20)
    judged = in_full.judgements(candidates)
    finalists = replace(in_full, early_folds=3).finalists(candidates, by_loss=True)
    assert len(finalists) == 4
    assert all(finalists[number] == judged[number] for number in finalists)
    assert min(finalists, key=lambda n: finalists[n].loss) == min(range(14), key=lambda n: judged[n].loss)


def test_the_search_tells_how_far_it_is():
    shares: list[float] = []
    window = noisy_rows(400, 8)
    found = replace(planned(window), told=shares.append)
    found.finalists([[lane(10.0**-k)] for k in range(14)], by_loss=True)
    assert sum(shares) == pytest.approx(1.0)


# A sample of a large table.


def test_a_sample_is_judged_by_models_that_have_not_seen_it():
    """Each row has a feature of its own."""
    rows = 60
    labels = np.where(np.random.default_rng(1).random(rows) < 0.5, 1.0, -1.0)
    sampled = replace(search(window_of(np.eye(rows), labels)), sampled=40)
    (judged,) = sampled.judgements([[replace(lane(), intercept=0.0)]])
    assert sampled.judged == 20
    assert judged.loss == pytest.approx(np.log(2.0), rel=1e-12)


def test_the_rows_of_a_sample_fit_the_window_and_the_work():
    window = noisy_rows(3000)
    assert sampled_rows(window, 8, False, 1 << 28) == (2000, 50)
    assert sampled_rows(window, 8, True, 1 << 28) == (2000, 30)
    assert sampled_rows(window, 8000, False, 1 << 28) == ((1 << 28) // (6 * 5 * 8000), 6)
    assert sampled_rows(window, 1 << 20, False, 1 << 28) == (512, 6)
    window.span = WindowSpan(START, replace(START, epoch=10), 0)  # 300 different rows
    assert sampled_rows(window, 8, False, 1 << 28)[0] == 200


@given(seed=st.integers(0, 1000), validates=st.booleans())
@hypothesis_settings(max_examples=10)
def test_features_that_no_candidate_is_trained_on_take_no_room(seed, validates):
    """They have larger numbers than the others."""
    random = np.random.default_rng(seed)

    def sparse(rows: int, most: int) -> Window:
        window = window_of(random.normal(size=(rows, 4)), random.choice([-1.0, 1.0], rows))
        window.indices = np.concatenate([np.sort(random.choice(most, 4, replace=False)) for _ in range(rows)])
        window.indices, window.features = window.indices.astype(np.uint32), most
        return window

    spec = replace(lane(), layout="sparse")
    window, others = sparse(90, 20), sparse(30, 60)
    window.indices[60 * 4 :] = random.integers(0, 5000, 30 * 4)
    window.features = 5000
    wide = replace(search(window, validation=others if validates else None), sampled=60)
    narrow = wide.narrowed()
    assert narrow.features <= 20 < wide.features
    assert narrow.judgements([[spec]])[0] == pytest.approx(wide.judgements([[spec]])[0], rel=1e-12)


@pytest.mark.parametrize(("noise", "low", "high"), [(50.0, 0.03, 1e9), (0.05, 0.0, 0.003)])
def test_the_sigma_of_a_sample_depends_on_the_noise_and_on_the_rows_of_the_table(noise, low, high, monkeypatch):
    """Also with more features than the lanes of a race would fit into memory."""
    monkeypatch.setattr(cross_validation, "MOST_CROSS_VALIDATED", 0)
    window, chosen = noisy_rows(1000, noise=noise), []
    for rows, features in ((400, 5), (400_000, 1 << 22)):
        models = Models(RowForm(ModelOptions(loss="logistic"), None, "dense"))
        enter_first(models.race, models.form.options, window, "dense", rows, features)
        assert len(models.race.candidates) == len(SIGMA_LADDER)
        chosen.append(models.race.leading().sigma)
    assert low <= chosen[0] <= high
    assert chosen[1] == pytest.approx(chosen[0] / 1000)


def test_probabilities_are_as_good_on_both_sides_of_the_largest_cross_validated_table(monkeypatch):
    monkeypatch.setattr(cross_validation, "MOST_CROSS_VALIDATED", 4000)
    random = np.random.default_rng(7)
    x, weights = random.normal(size=(24_001, 20)), random.normal(size=20)
    labels = x @ (5.5 * weights / np.linalg.norm(weights)) + random.logistic(size=24_001) > 0.0
    best = log_loss(labels[4001:], LogisticRegression().fit(x[:4001], labels[:4001]).predict_proba(x[4001:]))
    for rows in (4000, 4001):
        fitted = StreamClassifier().fit(x[:rows], labels[:rows])
        assert log_loss(labels[4001:], fitted.predict_proba(x[4001:])) < 1.01 * best
