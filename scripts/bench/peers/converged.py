"""The best accuracy of converged linear models: L1-SVM, L2-SVM and logistic regression by LIBLINEAR."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from scripts.bench.peers.rows import accuracy, load_parquet
from scripts.bench.peers.trial import Task, Trial

_PASSES = 300
_FACTOR = 3.0
_MOST_STEPS = 5


def search(task: Task, trial: Trial) -> None:
    """The notes are accuracies by loss and C."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    labels, features = load_parquet(task.parquet, task.features)
    models: dict[str, Callable[[float], Any]] = {
        "hinge": lambda c: LinearSVC(loss="hinge", dual=True, C=c, max_iter=_PASSES),
        "squared hinge": lambda c: LinearSVC(loss="squared_hinge", dual=True, C=c, max_iter=_PASSES),
        "logistic": lambda c: LogisticRegression(solver="liblinear", dual=True, C=c, max_iter=_PASSES),
    }

    def reached(model: Any) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the hinge loss never fully converges
            model.fit(features, labels)
        return accuracy(model.decision_function, task.test, task.features)

    for loss, model in models.items():
        found = climb(lambda c, model=model: reached(model(c)))  # type: ignore[misc]
        trial.notes[loss] = {f"{c:.3g}": value for c, value in found.items()}


def climb(value: Callable[[float], float]) -> dict[float, float]:
    """Values at 1 and at growing factors until they fall; if the first step up does not help, at shrinking factors."""
    found = {1.0: value(1.0)}
    for factor in (_FACTOR, 1 / _FACTOR):
        place = 1.0
        for _ in range(_MOST_STEPS):
            place *= factor
            found[place] = value(place)
            if found[place] < max(found.values()):
                break
        if max(found, key=lambda place: found[place]) != 1.0:
            break
    return found
