"""The metrics: a line for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import Vector
from streampgs.model.metrics import baseline
from streampgs.model.metrics.baseline import Labels
from streampgs.model.metrics.classes import Calibration, ClassRanks, Confusion, Ranks
from streampgs.model.metrics.sums import FULL, Batch, Mean, Moments, Size, Sums, Task

CLASSES, ORDER, PROBABILITIES, NUMBERS, TRAINING = "Classes", "Order of scores", "Probabilities", "Numbers", "Training"
HEADINGS = (CLASSES, NUMBERS, ORDER, PROBABILITIES, TRAINING)


@dataclass(frozen=True)
class Metric:
    name: str
    """In JSON."""
    title: str
    heading: str
    when: str
    """The kind of task that it makes sense for, as `Task.kinds` has it."""
    sums: Callable[[Task, Size], Sums]
    """The same object for metrics that share their sums."""
    attribute: str
    """An attribute of these sums: a number, or another JSON value; None if these rows have no value."""
    baseline: Callable[[Labels], float | None] | None = None
    """What the best constant prediction gets."""
    lists_classes: bool = False
    """Whether it needs memory for each class, so that it is left out if there are very many."""

    def applies(self, task: Task) -> bool:
        return self.when in task.kinds

    def value(self, sums: Sums) -> Any:
        return attrgetter(self.attribute)(sums)


# Values of rows whose mean is a metric.


def _losses(batch: Batch) -> float:
    """The total. For several classes it is the mean of the losses of each class against all others."""
    loss_sum, scores, shape = loss_sum_for(batch.task.loss), batch.scores, batch.task.shape
    if scores.ndim == 1:
        return loss_sum(scores, batch.labels, batch.weights, shape)
    total = 0.0
    for number in range(scores.shape[1]):
        labels = np.where(batch.labels == number, 1.0, -1.0)
        total += loss_sum(np.ascontiguousarray(scores[:, number]), labels, batch.weights, shape)
    return total / int(scores.shape[1])


def _log_losses(batch: Batch) -> Vector:
    """A probability of 0 counts as 2e-16."""
    least = float(np.finfo(np.float64).eps)
    return np.asarray(-np.log(np.clip(batch.label_probabilities, least, 1.0 - least)))


def _misses(batch: Batch) -> Vector:
    return batch.labels - batch.predictions


def _pinball_losses(batch: Batch) -> Vector:
    """At the quantile of the model."""
    misses, quantile = _misses(batch), batch.task.shape
    return np.maximum(quantile * misses, (quantile - 1.0) * misses)


def _poisson_deviances(batch: Batch) -> Vector:
    counts, expected = batch.labels, np.maximum(batch.predictions, np.finfo(np.float64).tiny)
    logarithms = np.log(np.where(counts > 0.0, counts, 1.0) / expected)
    return np.asarray(2.0 * (counts * logarithms - counts + expected))


def _mean_of(values_of: Callable[[Batch], Vector]) -> Callable[[Task, Size], Mean]:
    return partial(Mean, total_of=lambda batch: batch.total(values_of(batch)))


_SQUARES = _mean_of(lambda batch: _misses(batch) ** 2)
_ABSOLUTE = _mean_of(lambda batch: np.abs(_misses(batch)))
_BRIER = _mean_of(lambda batch: (batch.probabilities - (batch.labels > 0.0)) ** 2)
_TRAINED = partial(Mean, total_of=_losses)


_ALL = (
    Metric("accuracy", "share of rows with the right class", CLASSES, "classes", Confusion, "accuracy", baseline.largest_share),
    Metric("base_rate", "share of the positive class", CLASSES, "two classes", Confusion, "positive_share"),
    Metric(
        "precision", "share of positive rows among those predicted so", CLASSES, "two classes", Confusion,
        "positive.precision",
    ),
    Metric("recall", "share of the positive rows that are predicted so", CLASSES, "two classes", Confusion, "positive.recall"),
    Metric("f1", "harmonic mean of precision and recall", CLASSES, "two classes", Confusion, "positive.f1"),
    Metric("macro_precision", "mean of the classes' precision", CLASSES, "several classes", Confusion, "mean.precision"),
    Metric("macro_recall", "mean of the classes' recall", CLASSES, "several classes", Confusion, "mean.recall"),
    Metric("macro_f1", "mean of the classes' F1", CLASSES, "several classes", Confusion, "mean.f1"),
    Metric(
        "per_class", "precision, recall, F1 and rows of each class", CLASSES, "several classes", Confusion, "per_class",
        lists_classes=True,
    ),
    Metric("confusion", "rows of each class by predicted class", CLASSES, "classes", Confusion, "matrix", lists_classes=True),
    Metric("r2", "1 − mse / variance of the labels", NUMBERS, "numbers", Moments, "r_squared", baseline.zero),
    Metric("rmse", "root of the mean squared error", NUMBERS, "numbers", _SQUARES, "root", baseline.deviation),
    Metric("mse", "mean squared error", NUMBERS, "numbers", _SQUARES, "value", baseline.variance),
    Metric("mae", "mean absolute error", NUMBERS, "numbers", _ABSOLUTE, "value", baseline.absolute),
    Metric("pinball", "mean pinball loss", NUMBERS, "quantile", _mean_of(_pinball_losses), "value", baseline.pinball),
    Metric("deviance", "mean Poisson deviance", NUMBERS, "poisson", _mean_of(_poisson_deviances), "value", baseline.deviance),
    Metric("mean_label", "mean label", NUMBERS, "numbers", _mean_of(lambda batch: batch.labels), "value"),
    Metric("mean_prediction", "mean prediction", NUMBERS, "numbers", _mean_of(lambda batch: batch.predictions), "value"),
    Metric("auc", "area under the ROC curve", ORDER, "two classes", Ranks, "area", baseline.one_half),
    Metric(
        "average_precision", "area under the precision-recall curve", ORDER, "two classes", Ranks,
        "average_precision", baseline.positive_share,
    ),
    Metric(
        "macro_auc", "mean of the classes' area under the ROC curve", ORDER, "several classes", ClassRanks,
        "mean_area", baseline.one_half, lists_classes=True,
    ),
    Metric(
        "class_auc", "area under the ROC curve of each class", ORDER, "several classes", ClassRanks, "areas",
        lists_classes=True,
    ),
    Metric(
        "log_loss", "minus the mean log probability of the right class", PROBABILITIES, "estimated classes",
        _mean_of(_log_losses), "value", baseline.entropy,
    ),
    Metric(
        "brier", "mean squared error of the probability", PROBABILITIES, "two estimated classes", _BRIER,
        "value", baseline.brier,
    ),
    Metric(
        "calibration_error", "mean distance between probability and share, in 15 bins", PROBABILITIES, "estimated classes",
        Calibration, "error",
    ),
    Metric(
        "mean_probability", "mean probability of the positive class", PROBABILITIES, "two estimated classes",
        _mean_of(lambda batch: batch.probabilities), "value",
    ),
    Metric("loss", "mean of the loss that training minimizes", TRAINING, "any", _TRAINED, "value", baseline.loss),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


class Metrics:
    """All metrics that apply to a task."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        self.task = task
        lists = task.classes <= size.listed_classes
        self._metrics = [each for each in METRICS.values() if each.applies(task) and (lists or not each.lists_classes)]
        self._labels = Labels(task, size)
        self._sums = {metric.sums: metric.sums(task, size) for metric in self._metrics}

    def add(self, scores: Vector, labels: Vector, weights: Vector) -> None:
        """A label of NaN is a class that the model does not know."""
        batch = Batch(self.task, scores, labels, weights)
        known = batch.known
        for sums in (self._labels, *self._sums.values()):
            sums.add(batch if sums.takes_unknown else known)

    def results(self) -> dict[str, Any]:
        """The metrics by name, and under `baseline` what the best constant prediction gets."""
        found: dict[str, Any] = {each.name: each.value(self._sums[each.sums]) for each in self._metrics}
        found["baseline"] = {
            metric.name: metric.baseline(self._labels) for metric in self._metrics if metric.baseline is not None
        }
        return found
