"""Laws of every registered metric. A new metric is tested without being listed here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from streampgs.losses import LOSSES
from streampgs.metrics import METRICS, Batch, Metrics, RocArea, Task

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


def result_of(metric, *batches: Batch):
    found = metric.sums()
    for batch in batches:
        found.add(batch)
    return found.result()


@every_metric
def test_batches_may_be_split_anywhere(metric, task):
    whole = batch_of(task)
    cuts = [0, 0, 1, 17, 1_000, ROWS, ROWS]
    parts = [part(whole, first, stop) for first, stop in pairwise(cuts)]
    assert result_of(metric, *parts) == pytest.approx(result_of(metric, whole), rel=1e-11)


@every_metric
def test_batches_may_be_added_in_any_order(metric, task):
    whole = batch_of(task)
    parts = [part(whole, first, first + 1_000) for first in range(0, ROWS, 1_000)]
    found = [result_of(metric, *(parts[number] for number in order)) for order in ((0, 1, 2), (2, 0, 1))]
    assert found == pytest.approx([result_of(metric, whole)] * 2, rel=1e-11)


@every_metric
def test_a_weight_counts_like_copies_of_the_row(metric, task):
    whole = batch_of(task)
    counts = np.random.default_rng(6).integers(0, 4, ROWS)
    weighted = Batch(task, whole.scores, whole.labels, counts.astype(float))
    copied = Batch(
        task, *(np.repeat(one, counts, axis=0) for one in (whole.scores, whole.labels)), np.ones(counts.sum())
    )
    assert result_of(metric, weighted) == pytest.approx(result_of(metric, copied), rel=1e-11)


@every_metric
def test_rows_of_weight_zero_and_no_rows_give_no_value(metric, task):
    whole = batch_of(task)
    assert metric.sums().result() is None
    assert result_of(metric, part(whole, 0, 0)) is None
    assert result_of(metric, Batch(task, whole.scores, whole.labels, np.zeros(ROWS))) is None


@every_metric
def test_a_metric_keeps_no_reference_to_its_batch(metric, task):
    whole = batch_of(task)
    found = metric.sums()
    found.add(whole)
    expected = found.result()
    for array in (whole.scores, whole.labels, whole.weights):
        array[:] = 0.0
    assert found.result() == expected


# Comparison with scikit-learn, whose functions take predictions (or scores, or probabilities) and labels.


def sklearn_result(name: str, batch: Batch) -> float:
    task, labels, weights = batch.task, batch.labels, batch.weights
    match name:
        case "loss":
            scores = batch.scores if task.classes > 2 else batch.scores[:, np.newaxis]
            meant = [np.where(labels == k, 1.0, -1.0) for k in range(task.classes)] if task.classes > 2 else [labels]
            values = [task.loss.values(scores[:, k], meant[k], task.shape) for k in range(len(meant))]
            return float(np.average(np.mean(values, axis=0), weights=weights))
        case "accuracy":
            return sklearn_metrics.accuracy_score(labels, batch.predictions, sample_weight=weights)
        case "auc":
            return sklearn_metrics.roc_auc_score(labels, batch.scores, sample_weight=weights)
        case "log_loss":
            return sklearn_metrics.log_loss(labels, task.probabilities(batch.scores), sample_weight=weights)
        case "mse":
            return sklearn_metrics.mean_squared_error(labels, batch.predictions, sample_weight=weights)
        case "r2":
            return sklearn_metrics.r2_score(labels, batch.predictions, sample_weight=weights)
        case "mae":
            return sklearn_metrics.mean_absolute_error(labels, batch.predictions, sample_weight=weights)
        case "pinball":
            return sklearn_metrics.mean_pinball_loss(labels, batch.scores, sample_weight=weights, alpha=task.shape)
        case "deviance":
            return sklearn_metrics.mean_poisson_deviance(labels, batch.predictions, sample_weight=weights)
    pytest.skip("scikit-learn has no such metric")


@every_metric
def test_agrees_with_scikit_learn(metric, task):
    batch = batch_of(task)
    assert result_of(metric, batch) == pytest.approx(sklearn_result(metric.name, batch), rel=1e-9)


@every_task
def test_every_task_has_its_loss_and_a_metric_that_does_not_depend_on_the_loss(task):
    batch = batch_of(task)
    found = Metrics(task)
    found.add(batch.scores, batch.labels, batch.weights)
    results = found.results()
    assert list(results) == [name for name, metric in METRICS.items() if metric.applies(task)]
    assert "loss" in results
    assert ("accuracy" in results) == (task.classes > 0)
    assert ("mse" in results) == (task.classes == 0)


def test_names_are_keys_and_no_title_is_used_twice():
    assert all(name == metric.name for name, metric in METRICS.items())
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


# Additional laws of single metrics.

LOGISTIC = TASKS["logistic-2"]


def test_deviance_is_twice_the_poisson_loss_below_the_largest_rate():
    batch = batch_of(Task(LOSSES["poisson"], 1e6, 0))
    assert result_of(METRICS["deviance"], batch) == pytest.approx(2.0 * result_of(METRICS["loss"], batch), rel=1e-12)


def test_r2_is_accurate_for_labels_that_are_large_and_close_together():
    task, random = TASKS["squared-0"], np.random.default_rng(7)
    labels = 1e9 + random.normal(size=ROWS)
    batch = Batch(task, labels + random.normal(0.0, 0.5, ROWS), labels, np.ones(ROWS))
    expected = 1.0 - np.mean((batch.scores - labels) ** 2) / np.var(labels - 1e9)
    parts = [part(batch, first, first + 100) for first in range(0, ROWS, 100)]
    assert result_of(METRICS["r2"], *parts) == pytest.approx(expected, rel=1e-6)


def test_r2_of_equal_labels_has_no_value():
    batch = Batch(TASKS["squared-0"], np.arange(5.0), np.full(5, 3.0), np.ones(5))
    assert result_of(METRICS["r2"], batch) is None


def test_area_of_one_class_has_no_value():
    assert result_of(METRICS["auc"], Batch(LOGISTIC, np.arange(5.0), np.ones(5), np.ones(5))) is None


def test_area_by_bins_is_close_to_the_exact_area():
    """Scores of rows that arrive after the bins are fixed may even be outside the bins."""
    random = np.random.default_rng(8)
    found = RocArea(exact_rows=2_000)
    all_scores, all_labels = [], []
    for number in range(20):
        labels = np.where(random.random(1_000) < 0.4, 1.0, -1.0)
        scores = labels + random.normal(0.05 * number, 2.0, 1_000)
        found.add(Batch(LOGISTIC, scores, labels, np.ones(1_000)))
        all_scores.append(scores)
        all_labels.append(labels)
    expected = sklearn_metrics.roc_auc_score(np.concatenate(all_labels), np.concatenate(all_scores))
    assert found.result() == pytest.approx(expected, abs=1e-4)
    assert found._edges is not None


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-4, -4.3), (1e-12, 0.0), (1e6, 1e3)])
@pytest.mark.parametrize("exact_rows", [10**9, 4_000])
def test_area_is_accurate_at_every_scale_of_the_scores(scale, shift, exact_rows):
    random = np.random.default_rng(4)
    labels = np.where(random.random(20_000) < 0.1, 1.0, -1.0)
    scores = shift + scale * np.round(random.normal(size=20_000) + (labels > 0), 4)
    weights = random.uniform(0.5, 2.0, 20_000)
    found = RocArea(exact_rows)
    for rows in np.array_split(np.arange(20_000), 13):
        found.add(Batch(LOGISTIC, scores[rows], labels[rows], weights[rows]))
    expected = sklearn_metrics.roc_auc_score(labels, scores, sample_weight=weights)
    assert found.result() == pytest.approx(expected, abs=1e-9 if exact_rows > 20_000 else 1e-3)
