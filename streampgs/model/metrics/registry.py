"""The metrics: a line for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import Vector
from streampgs.model.metrics import baseline
from streampgs.model.metrics.baseline import Labels
from streampgs.model.metrics.classes import MOST_LISTED_CLASSES, Calibration, ClassRanks, Confusion, Ranks
from streampgs.model.metrics.sums import FULL, Batch, Mean, Moments, Size, Sums, Task

CLASSES, ORDER, PROBABILITIES, NUMBERS, TRAINING = "Classes", "Order of scores", "Probabilities", "Numbers", "Training"
HEADINGS = (CLASSES, NUMBERS, ORDER, PROBABILITIES, TRAINING)


@dataclass(frozen=True)
class Metric:
    name: str
    """In JSON."""
    title: str
    heading: str
    applies: Callable[[Task], bool]
    """Whether it makes sense for these labels and this loss."""
    sums: Callable[[Task, Size], Sums]
    """The same object for metrics that share their sums."""
    value: Callable[[Any], Any]
    """From these sums: a number, or another JSON value; None if these rows have no value."""
    baseline: Callable[[Labels], float | None] | None = None
    """What the best constant prediction gets."""
    lists_classes: bool = False
    """Whether it needs memory for each class, so that it is left out if there are very many."""


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


def _mean(sums: Mean) -> float | None:
    return sums.value


def _root(sums: Mean) -> float | None:
    return None if sums.value is None else float(np.sqrt(sums.value))


# When a metric applies.


def _always(task: Task) -> bool:
    return True


def _classes(task: Task) -> bool:
    return task.classes > 0


def _two(task: Task) -> bool:
    return task.classes == 2


def _several(task: Task) -> bool:
    return task.classes > 2


def _two_estimated(task: Task) -> bool:
    return _two(task) and task.estimates


def _estimated(task: Task) -> bool:
    return _classes(task) and task.estimates


def _numbers(task: Task) -> bool:
    return task.classes == 0


def _quantile(task: Task) -> bool:
    return task.loss.name == "quantile"


def _counts(task: Task) -> bool:
    return task.loss.name == "poisson"


def _class_values(sums: ClassRanks) -> list[float | None] | None:
    return sums.areas if sums.mean_area is not None else None


_ALL = (
    Metric(
        "accuracy", "share of rows with the right class", CLASSES, _classes, Confusion, lambda sums: sums.accuracy,
        baseline.largest_share,
    ),
    Metric(
        "base_rate", "share of the positive class", CLASSES, _two, Confusion, lambda sums: sums.positive_share,
    ),
    Metric(
        "precision", "share of positive rows among those predicted so", CLASSES, _two, Confusion,
        lambda sums: sums.of_positive(sums.precisions),
    ),
    Metric(
        "recall", "share of the positive rows that are predicted so", CLASSES, _two, Confusion,
        lambda sums: sums.of_positive(sums.recalls),
    ),
    Metric(
        "f1", "harmonic mean of precision and recall", CLASSES, _two, Confusion,
        lambda sums: sums.of_positive(sums.f1s),
    ),
    Metric(
        "macro_precision", "mean of the classes' precision", CLASSES, _several, Confusion,
        lambda sums: sums.mean(sums.precisions),
    ),
    Metric(
        "macro_recall", "mean of the classes' recall", CLASSES, _several, Confusion,
        lambda sums: sums.mean(sums.recalls),
    ),
    Metric(
        "macro_f1", "mean of the classes' F1", CLASSES, _several, Confusion, lambda sums: sums.mean(sums.f1s),
    ),
    Metric(
        "per_class", "precision, recall, F1 and rows of each class", CLASSES, _several, Confusion,
        lambda sums: sums.per_class, lists_classes=True,
    ),
    Metric(
        "confusion", "rows of each class by predicted class", CLASSES, _classes, Confusion, lambda sums: sums.matrix,
        lists_classes=True,
    ),
    Metric("r2", "1 − mse / variance of the labels", NUMBERS, _numbers, Moments, lambda sums: sums.r_squared, baseline.zero),
    Metric("rmse", "root of the mean squared error", NUMBERS, _numbers, _SQUARES, _root, baseline.deviation),
    Metric("mse", "mean squared error", NUMBERS, _numbers, _SQUARES, _mean, baseline.variance),
    Metric("mae", "mean absolute error", NUMBERS, _numbers, _ABSOLUTE, _mean, baseline.absolute),
    Metric("pinball", "mean pinball loss", NUMBERS, _quantile, _mean_of(_pinball_losses), _mean, baseline.pinball),
    Metric("deviance", "mean Poisson deviance", NUMBERS, _counts, _mean_of(_poisson_deviances), _mean, baseline.deviance),
    Metric("mean_label", "mean label", NUMBERS, _numbers, _mean_of(lambda batch: batch.labels), _mean),
    Metric("mean_prediction", "mean prediction", NUMBERS, _numbers, _mean_of(lambda batch: batch.predictions), _mean),
    Metric("auc", "area under the ROC curve", ORDER, _two, Ranks, lambda sums: sums.area, baseline.one_half),
    Metric(
        "average_precision", "area under the precision-recall curve", ORDER, _two, Ranks,
        lambda sums: sums.average_precision, baseline.positive_share,
    ),
    Metric(
        "macro_auc", "mean of the classes' area under the ROC curve", ORDER, _several, ClassRanks,
        lambda sums: sums.mean_area, baseline.one_half, lists_classes=True,
    ),
    Metric("class_auc", "area under the ROC curve of each class", ORDER, _several, ClassRanks, _class_values, lists_classes=True),
    Metric(
        "log_loss", "minus the mean log probability of the right class", PROBABILITIES, _estimated,
        _mean_of(_log_losses), _mean, baseline.entropy,
    ),
    Metric(
        "brier", "mean squared error of the probability", PROBABILITIES, _two_estimated, _BRIER,
        _mean, baseline.brier,
    ),
    Metric(
        "calibration_error", "mean distance between probability and share, in 15 bins", PROBABILITIES, _estimated,
        Calibration, lambda sums: sums.error,
    ),
    Metric(
        "mean_probability", "mean probability of the positive class", PROBABILITIES, _two_estimated,
        _mean_of(lambda batch: batch.probabilities), _mean,
    ),
    Metric("loss", "mean of the loss that training minimizes", TRAINING, _always, _TRAINED, _mean, baseline.loss),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


class Metrics:
    """All metrics that apply to a task."""

    def __init__(self, task: Task, size: Size = FULL, most_listed: int = MOST_LISTED_CLASSES) -> None:
        """`most_listed`: with more classes, results that list all classes are left out."""
        self.task = task
        left_out = task.classes > most_listed
        self._metrics = [
            metric for metric in METRICS.values() if metric.applies(task) and not (left_out and metric.lists_classes)
        ]
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
        found: dict[str, Any] = {metric.name: metric.value(self._sums[metric.sums]) for metric in self._metrics}
        found["baseline"] = {
            metric.name: metric.baseline(self._labels) for metric in self._metrics if metric.baseline is not None
        }
        return found
