"""Accuracy of kernels next to scikit-learn: on MAGIC, on digits and on a generated checkerboard.

    python -m scripts.bench.kernels [--splits 3] [--source DIR]
    python -m scripts.bench.kernels --quick

Prints a Markdown table for each data set: the share of right classes on rows that were not trained on (the mean over random
splits, three quarters for training) and the seconds of a fit. Columns are standardized for all methods. The penalty C of SVC
is chosen among 1, 10 and 100 by cross-validation, and its seconds are those of the last fit. --quick takes few rows of each.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import streampgs
from scripts import real_data
from scripts.machine import machine_line

Table = tuple[NDArray[Any], NDArray[Any]]
Fit = Callable[[NDArray[Any], NDArray[Any]], Any]
_FIELDS, _NOISE = 8, 0.05
_QUICK_ROWS = 1000


def magic(source: Path) -> Table:
    with gzip.open(source / "magic04.data.gz", "rt") as file:
        lines = [line.strip().split(",") for line in file if line.strip().endswith(("g", "h"))]
    return np.array([line[:-1] for line in lines], float), np.array([line[-1] == "g" for line in lines], int)


def digits(source: Path) -> Table:
    rows, labels = load_digits(return_X_y=True)
    return rows, labels


def checkerboard(source: Path) -> Table:
    """Eight by eight fields; one label of twenty is wrong."""
    chance = np.random.default_rng(0)
    points = chance.uniform(0.0, _FIELDS, (12_000, 2))
    wrong = chance.random(len(points)) < _NOISE
    return points, (points.astype(int).sum(axis=1) + wrong) % 2


TABLES: dict[str, tuple[Callable[[Path], Table], float | None]] = {
    "MAGIC": (magic, None),
    "digits": (digits, None),
    "checkerboard": (checkerboard, 10.0),
}
"""With the gamma of standardized columns; None: found by each library in the same way."""


class Ours:
    """A run in a temporary folder."""

    def __init__(self, rows: int | None = None, **options: Any) -> None:
        """`rows`: train on the first ones only."""
        self.options, self.rows = options, rows

    def fit(self, rows: NDArray[Any], labels: NDArray[Any]) -> Ours:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            kept = slice(self.rows)
            streampgs.train(
                rows[kept], labels[kept], run=run, standardize="on", progress=False, classes=sorted(set(labels.tolist())),
                **self.options,
            )  # fmt: skip
            self.model = streampgs.Model.load(run)
        return self

    def score(self, rows: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(np.mean(self.model.predict(rows) == labels))


def methods(gamma: float | None, features: int, many: int) -> dict[str, Any]:
    own = {"gamma": "auto" if gamma is None else gamma}
    theirs: dict[str, Any] = {"gamma": "scale" if gamma is None else gamma}
    exact = {"solver": "kernel", "kernel": "rbf", **own}
    sgd = {"max_iter": 1000, "random_state": 0, "alpha": 1e-6, "average": True}
    few = features // 4
    return {
        "linear, streampgs": Ours(),
        f"rbf, {few} features": Ours(kernel="rbf", kernel_features=few, **own),
        f"rbf, {features} features": Ours(kernel="rbf", kernel_features=features, **own),
        f"rbf, {4 * features} features": Ours(kernel="rbf", kernel_features=4 * features, **own),
        "polynomial of degree 2": Ours(kernel="polynomial", kernel_features=features, **own),
        "polynomial of degree 3": Ours(kernel="polynomial", kernel_features=features, degree=3, **own),
        "`--solver kernel`, all rows are supports": Ours(supports=many, **exact),
        f"`--solver kernel`, {features} supports": Ours(supports=features, **exact),
        f"`--solver kernel`, {few} supports": Ours(supports=few, **exact),
        f"`--solver kernel` on {features} rows only": Ours(features, supports=features, **exact),
        "linear, LogisticRegression": scaled(LogisticRegression(max_iter=1000)),
        f"RBFSampler({features}) + SGDClassifier": scaled(
            RBFSampler(gamma=theirs["gamma"], n_components=features, random_state=0), SGDClassifier("log_loss", **sgd)
        ),
        f"Nystroem({features}) + SGDClassifier": Scaled(
            lambda found: make_pipeline(
                StandardScaler(), Nystroem(gamma=found, n_components=features, random_state=0),
                SGDClassifier("log_loss", **sgd),
            ),
            gamma,
        ),
        "SVC": Best(scaled(SVC(**theirs))),
    }  # fmt: skip


def scaled(*steps: Any) -> Any:
    return make_pipeline(StandardScaler(), *steps)


class Scaled:
    """Nystroem has no gamma='scale': on standardized columns it is 1 / columns."""

    def __init__(self, make: Callable[[float], Any], gamma: float | None) -> None:
        self.make, self.gamma = make, gamma

    def fit(self, rows: NDArray[Any], labels: NDArray[Any]) -> Scaled:
        varying = int((rows.std(axis=0) > 0.0).sum())
        self.model = self.make(1.0 / varying if self.gamma is None else self.gamma).fit(rows, labels)
        return self

    def score(self, rows: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(self.model.score(rows, labels))


class Best:
    """SVC with the best C."""

    def __init__(self, model: Any) -> None:
        self.model = GridSearchCV(model, {"svc__C": [1.0, 10.0, 100.0]}, cv=3)

    def fit(self, rows: NDArray[Any], labels: NDArray[Any]) -> Best:
        self.model.fit(rows, labels)
        return self

    def score(self, rows: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(self.model.score(rows, labels))


def measured(model: Any, rows: NDArray[Any], labels: NDArray[Any], splits: int) -> tuple[float, float]:
    """Accuracy and seconds."""
    scores, seconds = [], []
    for split in range(splits):
        train, test, train_labels, test_labels = train_test_split(
            rows, labels, test_size=0.25, random_state=split, stratify=labels
        )
        began = time.perf_counter()
        model.fit(train, train_labels)
        took = time.perf_counter() - began
        seconds.append(model.model.refit_time_ if isinstance(model, Best) else took)
        scores.append(model.score(test, test_labels))
    return float(np.mean(scores)), float(min(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--source", type=Path, default=real_data.SOURCE, help="folder of magic04.data.gz")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine_line())
    for name in chosen.tables.split(","):
        load, gamma = TABLES[name]
        rows, labels = load(chosen.source)
        order = np.random.default_rng(1).permutation(len(rows))[: _QUICK_ROWS if chosen.quick else None]
        rows, labels = rows[order], labels[order]
        print(f"\n| {name}, {len(rows):,} × {rows.shape[1]} | accuracy | seconds |\n|---|---|---|", flush=True)
        for method, model in methods(gamma, 128 if chosen.quick else chosen.features, 20_000).items():
            accuracy, seconds = measured(model, rows, labels, 1 if chosen.quick else chosen.splits)
            print(f"| {method} | {accuracy:.4f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
