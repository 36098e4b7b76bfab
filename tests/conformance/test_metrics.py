"""Laws of every registered metric. A new metric is tested without being listed here."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

from streampgs.losses import LOSSES
from streampgs.model.metrics import METRICS, Batch, Metric, Metrics, Size, Task
from streampgs.model.metrics.baseline import Labels
from streampgs.model.metrics.classes import Ranks

ROWS = 3_000
CLASSES = {True: (2, 5), False: (0,)}

TASKS = {
    f"{name}-{classes}": Task(loss, loss.shape(np.array([0.5, 1.0, 4.0])), classes)
    for name, loss in LOSSES.items()
    for classes in CLASSES[loss.classifies]
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_metric = pytest.mark.parametrize(
    ("metric", "task"),
    [
        pytest.param(metric, task, id=f"{metric.name}-{name}")
        for metric in METRICS.values()
        for name, task in TASKS.items()
        if metric.applies(task)
    ],
)


def batch_of(task: Task, rows: int = ROWS, seed: int = 5) -> Batch:
    """Scores have ties, and some rows have weight 0."""
    random = np.random.default_rng(seed)
    scores = np.round(random.normal(0.0, 1.5, (rows, task.classes) if task.classes > 2 else rows), 2)
    weights = np.where(random.random(rows) < 0.1, 0.0, random.uniform(0.0, 3.0, rows))
    if task.classes > 2:
        labels = (scores + random.normal(0.0, 2.0, scores.shape)).argmax(axis=1).astype(float)
    elif task.classes == 2:
        labels = np.where(scores + random.normal(0.0, 2.0, rows) > 0.3, 1.0, -1.0)
    else:
        labels = np.maximum(np.round(task.loss.prediction(scores) + random.normal(size=rows)), task.loss.lowest_label)
    return Batch(task, scores, labels, weights)


def part(batch: Batch, first: int, stop: int) -> Batch:
    return Batch(batch.task, batch.scores[first:stop], batch.labels[first:stop], batch.weights[first:stop])


def value_of(metric: Metric, task: Task, *batches: Batch, size: Size = Size()) -> Any:
    sums = metric.sums(task, size)
    for batch in batches:
        sums.add(batch)
    return metric.value(sums)


def close(found: Any, expected: Any, rel: float = 1e-11) -> bool:
    """Numbers, None, and lists and dictionaries of them."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name], rel) for name in expected)
    if isinstance(expected, list | tuple | np.ndarray):
        return len(found) == len(expected) and all(close(*pair, rel) for pair in zip(found, expected, strict=True))
    if found is None or expected is None:
        return found is expected
    return bool(found == pytest.approx(expected, rel=rel, abs=1e-15))


@every_metric
def test_batches_may_be_split_anywhere_and_added_in_any_order(metric, task):
    whole = batch_of(task)
    parts = [part(whole, first, stop) for first, stop in pairwise([0, 0, 1, 17, 1_000, ROWS, ROWS])]
    for order in (parts, parts[::-1]):
        assert close(value_of(metric, task, *order), value_of(metric, task, whole))


@every_metric
def test_a_weight_counts_like_copies_of_the_row(metric, task):
    whole = batch_of(task)
    counts = np.random.default_rng(6).integers(0, 4, ROWS)
    weighted = Batch(task, whole.scores, whole.labels, counts.astype(float))
    copied = Batch(
        task, *(np.repeat(one, counts, axis=0) for one in (whole.scores, whole.labels)), np.ones(counts.sum())
    )
    assert close(value_of(metric, task, weighted), value_of(metric, task, copied))


@every_metric
def test_rows_of_weight_zero_and_no_rows_give_no_value(metric, task):
    whole = batch_of(task)
    assert value_of(metric, task) is None
    assert value_of(metric, task, part(whole, 0, 0)) is None
    assert value_of(metric, task, Batch(task, whole.scores, whole.labels, np.zeros(ROWS))) is None


@every_task
@pytest.mark.parametrize("unknown", [False, True])
def test_rows_are_freed_as_soon_as_they_are_added(task, unknown):
    """The cyclic garbage collector hardly ever runs: a few objects can hold gigabytes of scores."""
    metrics, batch = Metrics(task), batch_of(task)
    labels = np.where(np.arange(ROWS) % 9 == 0, np.nan, batch.labels) if unknown and task.classes > 2 else batch.labels
    freed, scores, weights = weakref.ref(batch.scores), batch.scores, batch.weights
    gc.disable()
    try:
        metrics.add(scores, labels, weights)
        del batch, scores
        assert freed() is None
    finally:
        gc.enable()


# Comparison with scikit-learn, whose functions take predictions (or scores, or probabilities) and labels.


def sklearn_result(name: str, batch: Batch) -> Any:
    task, labels, weights = batch.task, batch.labels, batch.weights
    chosen = batch.chosen if task.classes else batch.predictions
    numbers = batch.numbers if task.classes else labels
    listed = np.arange(task.classes)
    values = (batch.probabilities if task.estimates else batch.scores) if task.classes > 2 else batch.scores
    of_classes = {"average": "binary" if task.classes == 2 else "macro", "sample_weight": weights}
    match name:
        case "loss":
            scores = batch.scores if task.classes > 2 else batch.scores[:, np.newaxis]
            meant = [np.where(labels == k, 1.0, -1.0) for k in range(task.classes)] if task.classes > 2 else [labels]
            losses = [task.loss.values(scores[:, k], meant[k], task.shape) for k in range(len(meant))]
            return float(np.average(np.mean(losses, axis=0), weights=weights))
        case "accuracy":
            return sklearn_metrics.accuracy_score(numbers, chosen, sample_weight=weights)
        case "base_rate":
            return np.average(numbers, weights=weights)
        case "precision" | "macro_precision":
            return sklearn_metrics.precision_score(numbers, chosen, zero_division=0, **of_classes)
        case "recall" | "macro_recall":
            return sklearn_metrics.recall_score(numbers, chosen, zero_division=0, **of_classes)
        case "f1" | "macro_f1":
            return sklearn_metrics.f1_score(numbers, chosen, zero_division=0, **of_classes)
        case "per_class":
            columns = sklearn_metrics.precision_recall_fscore_support(numbers, chosen, sample_weight=weights)
            return [
                dict(zip(("precision", "recall", "f1", "support"), row, strict=True))
                for row in zip(*columns, strict=True)
            ]
        case "confusion":
            return sklearn_metrics.confusion_matrix(numbers, chosen, sample_weight=weights, labels=listed)
        case "auc":
            return sklearn_metrics.roc_auc_score(labels, batch.scores, sample_weight=weights)
        case "average_precision":
            return sklearn_metrics.average_precision_score(labels, batch.scores, sample_weight=weights)
        case "class_auc":
            return [sklearn_metrics.roc_auc_score(labels == k, values[:, k], sample_weight=weights) for k in listed]
        case "macro_auc":
            return np.mean(sklearn_result("class_auc", batch))
        case "log_loss":
            return sklearn_metrics.log_loss(labels, task.probabilities(batch.scores), sample_weight=weights)
        case "brier":
            return sklearn_metrics.brier_score_loss(labels, batch.probabilities, sample_weight=weights)
        case "calibration_error":
            return plain_calibration_error(batch)
        case "mean_probability":
            return np.average(batch.probabilities, weights=weights)
        case "mean_label" | "mean_prediction":
            return np.average(labels if name == "mean_label" else batch.predictions, weights=weights)
        case "mse":
            return sklearn_metrics.mean_squared_error(labels, batch.predictions, sample_weight=weights)
        case "rmse":
            return sklearn_metrics.root_mean_squared_error(labels, batch.predictions, sample_weight=weights)
        case "r2":
            return sklearn_metrics.r2_score(labels, batch.predictions, sample_weight=weights)
        case "mae":
            return sklearn_metrics.mean_absolute_error(labels, batch.predictions, sample_weight=weights)
        case "pinball":
            return sklearn_metrics.mean_pinball_loss(labels, batch.scores, sample_weight=weights, alpha=task.shape)
        case "deviance":
            return sklearn_metrics.mean_poisson_deviance(labels, batch.predictions, sample_weight=weights)
    raise AssertionError(f"compare {name} with scikit-learn here")


def plain_calibration_error(batch: Batch) -> float:
    """Row by row, from the definition."""
    rows: dict[int, list[tuple[float, float, float]]] = {}
    for row, weight in enumerate(batch.weights):
        found = batch.probabilities[row]
        if batch.task.classes == 2:
            probability, happened = found, float(batch.labels[row] > 0)
        else:
            probability, happened = max(found), float(batch.labels[row] == np.argmax(batch.scores[row]))
        rows.setdefault(min(14, int(probability * 15)), []).append((weight, probability, happened))
    apart = 0.0
    for of_bin in rows.values():
        weight = sum(w for w, _, _ in of_bin)
        if weight:
            share = sum(w * h for w, _, h in of_bin) / weight
            apart += weight * abs(sum(w * p for w, p, _ in of_bin) / weight - share)
    return apart / sum(batch.weights)


@every_metric
def test_agrees_with_scikit_learn(metric, task):
    batch = batch_of(task)
    assert close(value_of(metric, task, batch), sklearn_result(metric.name, batch), rel=1e-9)


ROWS_OF_TWO_CLASSES = st.lists(
    st.tuples(st.integers(-6, 6), st.booleans(), st.sampled_from([0.0, 0.25, 1.0, 3.0])), min_size=2, max_size=40
)


@given(ROWS_OF_TWO_CLASSES)
def test_few_rows_with_ties_and_weights_agree_with_scikit_learn(rows):
    task = TASKS["logistic-2"]
    scores, positive, weights = map(np.array, zip(*rows, strict=True))
    labels = np.where(positive, 1.0, -1.0)
    counted = weights > 0.0
    if len(np.unique(labels[counted])) < 2:
        return
    batch = Batch(task, scores / 2.0, labels, weights)
    alone = Batch(task, batch.scores[counted], labels[counted], weights[counted])
    for metric in METRICS.values():
        if metric.applies(task):
            found, expected = value_of(metric, task, batch), sklearn_result(metric.name, alone)
            undefined = metric.name == "precision" and not alone.chosen.any()
            assert found is None if undefined else close(found, expected, rel=1e-9), metric.name


# The best constant prediction.


def constant_batch(name: str, batch: Batch) -> Batch:
    """The batch with the scores of the best constant, from scikit-learn's dummy models."""
    task, rows = batch.task, np.zeros((len(batch.labels), 1))
    if task.classes:
        dummy = DummyClassifier(strategy="prior").fit(rows, batch.numbers, batch.weights)
        shares = dummy.predict_proba(rows)
        odds = np.log(shares / (1.0 - shares))
        if task.loss.name == "modified-huber":
            odds = 2.0 * shares - 1.0
        return Batch(task, odds if task.classes > 2 else odds[:, 1], batch.labels, batch.weights)
    strategy = {"mae": "median", "pinball": "quantile"}.get(name, "mean")
    quantile = task.shape if strategy == "quantile" else None
    dummy = DummyRegressor(strategy=strategy, quantile=quantile).fit(rows, batch.labels, batch.weights)
    found = dummy.predict(rows)
    return Batch(
        task, np.log(found) if task.loss.name == "poisson" and name != "mae" else found, batch.labels, batch.weights
    )


@pytest.mark.parametrize(
    ("metric", "task"),
    [
        pytest.param(metric, task, id=f"{metric.name}-{name}")
        for metric in METRICS.values()
        for name, task in TASKS.items()
        if metric.applies(task) and metric.baseline is not None and metric.name != "loss"
    ],
)
def test_the_baseline_is_the_metric_of_the_best_constant(metric, task):
    batch = batch_of(task)
    labels = Labels(task)
    for first in range(0, ROWS, 700):
        labels.add(part(batch, first, first + 700))
    if metric.name == "mae" and task.loss.name == "poisson":
        task = TASKS["absolute-0"]  # the constant is a count; its logarithm may not exist
        batch = Batch(task, batch.scores, batch.labels, batch.weights)
    constant = constant_batch(metric.name, batch)
    assert close(metric.baseline(labels), sklearn_result(metric.name, constant), rel=1e-9)


@every_task
def test_the_baseline_of_the_loss_is_the_least_of_all_constants(task):
    batch = batch_of(task)
    labels = Labels(task)
    labels.add(batch)
    found = METRICS["loss"].baseline(labels)
    of_scores = task.classes or task.loss.name == "poisson"
    low, high = (-4.0, 4.0) if of_scores else (batch.labels.min(), batch.labels.max())
    targets = (
        [np.where(batch.labels == k, 1.0, -1.0) for k in range(task.classes)] if task.classes > 2 else [batch.labels]
    )
    losses = [
        [np.average(task.loss.values(score, target, task.shape), weights=batch.weights) for target in targets]
        for score in np.linspace(low, high, 401)
    ]
    least = float(np.mean(np.min(losses, axis=0)))
    assert found <= least * (1.0 + 1e-9)
    assert found == pytest.approx(least, rel=0.01)


# Rows of classes that the model does not know.


@pytest.mark.parametrize("name", ["logistic-2", "logistic-5", "hinge-2"])
def test_rows_of_unknown_classes_are_errors_and_have_no_probability(name):
    task = TASKS[name]
    batch = batch_of(task)
    unknown = np.random.default_rng(9).random(ROWS) < 0.2
    found, known = Metrics(task), Metrics(task)
    found.add(batch.scores, np.where(unknown, np.nan, batch.labels), batch.weights)
    known.add(batch.scores[~unknown], batch.labels[~unknown], batch.weights[~unknown])
    share = batch.weights[~unknown].sum() / batch.weights.sum()
    found, known = found.results(), known.results()
    assert found["accuracy"] == pytest.approx(known["accuracy"] * share)
    precision = "precision" if task.classes == 2 else "macro_precision"
    assert found[precision] < known[precision]
    for name in known.keys() & {"recall", "macro_recall", "auc", "macro_auc", "log_loss", "calibration_error", "loss"}:
        assert found[name] == known[name]
    assert found["confusion"] == known["confusion"]


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_a_threshold_changes_predictions_and_no_probability(threshold):
    task = Task(LOSSES["logistic"], 0.0, 2, threshold)
    batch = batch_of(task)
    found, plain = Metrics(task), Metrics(TASKS["logistic-2"])
    for metrics in (found, plain):
        metrics.add(batch.scores, batch.labels, batch.weights)
    chosen = 1.0 / (1.0 + np.exp(-batch.scores)) >= threshold
    found, plain = found.results(), plain.results()
    assert found["recall"] == pytest.approx(
        sklearn_metrics.recall_score(batch.labels > 0, chosen, sample_weight=batch.weights)
    )
    assert {name: found[name] for name in ("auc", "log_loss", "brier")} == {
        name: plain[name] for name in ("auc", "log_loss", "brier")
    }


@every_task
def test_every_task_has_its_loss_and_a_metric_that_does_not_depend_on_the_loss(task):
    batch = batch_of(task)
    found = Metrics(task)
    found.add(batch.scores, batch.labels, batch.weights)
    results = found.results()
    assert list(results) == [*(name for name, metric in METRICS.items() if metric.applies(task)), "baseline"]
    assert "loss" in results
    assert ("accuracy" in results) == (task.classes > 0)
    assert ("mse" in results) == (task.classes == 0)


# Additional laws of single metrics.

LOGISTIC = TASKS["logistic-2"]


def test_areas_by_bins_are_close_to_the_exact_areas():
    """Scores of rows that arrive after the bins are fixed may even be outside the bins."""
    random = np.random.default_rng(8)
    found = Ranks(LOGISTIC, Size(exact_rows=2_000, bins=1 << 17))
    all_scores, all_labels = [], []
    for number in range(20):
        labels = np.where(random.random(1_000) < 0.4, 1.0, -1.0)
        scores = labels + random.normal(0.05 * number, 2.0, 1_000)
        found.add(Batch(LOGISTIC, scores, labels, np.ones(1_000)))
        all_scores.append(scores)
        all_labels.append(labels)
    labels, scores = np.concatenate(all_labels), np.concatenate(all_scores)
    assert found.area == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores), abs=1e-4)
    expected = sklearn_metrics.average_precision_score(labels, scores)
    assert found.average_precision == pytest.approx(expected, abs=1e-3)
    assert found.histogram._edges is not None
