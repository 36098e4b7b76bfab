"""Peers that need all rows in memory. All load them in the same way: Parquet, pyarrow, one sparse matrix.

Each point of the curve is a fit from scratch with more effort. A user does not know in advance which effort is enough, so
counting only the smallest effort that reaches the target favours these peers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from scripts.bench.peers.rows import Decide, Rows, accuracy, load_parquet
from scripts.bench.peers.trial import Stopwatch, Task, Trial

_PASSES = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200)


def _fit_with_growing_effort(
    task: Task,
    trial: Trial,
    efforts: Iterable[float],
    fit: Callable[[float], Any],
    decide: Callable[[Any], Decide],
    efforts_are_passes: bool = True,
) -> None:
    for effort in efforts:
        with Stopwatch() as fitting, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit is meant to end before convergence
            model = fit(effort)
        rows = effort * task.rows if efforts_are_passes else None
        score = accuracy(decide(model), task.test, task.features)
        trial.add(trial.loading + fitting, trial.loading.seconds, rows, score)
        if trial.is_over:
            break


def _load(task: Task, trial: Trial) -> Rows:
    with trial.loading:
        return load_parquet(task.parquet, task.features)


def _linear(weights: Any, intercept: Any) -> Decide:
    flat = np.ravel(weights)
    return lambda features: features @ flat + intercept


def sklearn_liblinear(task: Task, trial: Trial) -> None:
    with trial.importing:
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC
    labels, features = _load(task, trial)
    loss, regularization = task.settings["loss"], task.settings["C"]

    def fit(passes: float) -> Any:
        if loss == "logistic":
            model = LogisticRegression(solver="liblinear", dual=True, C=regularization, max_iter=int(passes))
        else:
            model = LinearSVC(loss=loss, dual=True, C=regularization, max_iter=int(passes))
        return model.fit(features, labels)

    _fit_with_growing_effort(task, trial, _PASSES, fit, lambda model: model.decision_function)


_LIBLINEAR_SOLVERS = {"squared_hinge": 1, "hinge": 3, "logistic": 7}
_LIBLINEAR_TOLERANCES = (30.0, 10.0, 3.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def liblinear_official(task: Task, trial: Trial) -> None:
    with trial.importing:
        from liblinear.liblinearutil import parameter, problem, train
    rows = _load(task, trial)
    with trial.preparing:
        problem(rows.labels[:2], rows.features[:2])  # compiles the conversion
    with trial.loading:
        converted = problem(rows.labels, rows.features)
    solver, regularization = _LIBLINEAR_SOLVERS[task.settings["loss"]], task.settings["C"]

    def fit(tolerance: float) -> Any:
        return train(converted, parameter(f"-s {solver} -c {regularization} -B 1 -e {tolerance} -q"))

    def decide(model: Any) -> Decide:
        sign = 1 if model.get_labels()[0] > 0 else -1
        weights = sign * np.ctypeslib.as_array(model.w, (task.features + 1,))
        return _linear(weights[:-1], weights[-1])

    _fit_with_growing_effort(task, trial, _LIBLINEAR_TOLERANCES, fit, decide, efforts_are_passes=False)


def snap_ml(task: Task, trial: Trial) -> None:
    with trial.importing:
        import snapml
    labels, features = _load(task, trial)
    kind = {"hinge": snapml.SupportVectorMachine, "logistic": snapml.LogisticRegression}[task.settings["loss"]]

    def fit(passes: float) -> Any:
        model = kind(regularizer=1 / task.settings["C"], max_iter=int(passes), n_jobs=task.threads, fit_intercept=True)
        return model.fit(features, labels)

    _fit_with_growing_effort(task, trial, _PASSES, fit, lambda model: _linear(model.coef_, model.intercept_))


def cyanure(task: Task, trial: Trial) -> None:
    with trial.importing:
        from cyanure.estimators import Classifier
    labels, features = _load(task, trial)

    def fit(passes: float) -> Any:
        model = Classifier(
            loss=task.settings["loss"],
            penalty="l2",
            lambda_1=1 / (task.settings["C"] * task.rows),
            solver=task.settings["solver"],
            max_iter=int(passes),
            tol=1e-9,
            duality_gap_interval=1000,  # computing the gap costs as much as a pass
            n_threads=task.threads,
            verbose=False,
        )
        return model.fit(features, labels)

    _fit_with_growing_effort(task, trial, _PASSES, fit, lambda model: model.decision_function)


def xgboost_linear(task: Task, trial: Trial) -> None:
    with trial.importing:
        import xgboost
    rows = _load(task, trial)
    with trial.loading:
        matrix = xgboost.DMatrix(rows.features, label=rows.labels > 0)
    options = {
        "booster": "gblinear",
        "objective": "binary:logistic",
        "nthread": task.threads,
        "base_score": 0.5,
        **task.settings,
    }

    def decide(booster: Any) -> Decide:
        return lambda features: booster.predict(xgboost.DMatrix(features), output_margin=True)

    _fit_with_growing_effort(task, trial, _PASSES, lambda passes: xgboost.train(options, matrix, int(passes)), decide)
