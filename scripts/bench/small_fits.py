"""Milliseconds that a fit of small data sets takes, after compilation, next to the estimators of scikit-learn.

    python -m scripts.bench.small_fits [--repeats 20]

Prints a Markdown table: the CPU time of the fastest of some fits with default options (other processes disturb it less than
the time on the clock), and the score on held-out rows (the mean of five splits; accuracy or R²). scikit-learn's models stand
behind a StandardScaler, as streampgs standardizes columns too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streampgs import StreamClassifier, StreamRegressor

CLASSES: dict[str, Callable[..., Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
NUMBERS: dict[str, Callable[..., Any]] = {"diabetes": datasets.load_diabetes}


def milliseconds(estimator: Any, X: Any, y: Any, repeats: int) -> float:
    estimator.fit(X, y)  # compiles
    found = []
    for _ in range(repeats):
        began = time.process_time()
        estimator.fit(X, y)
        found.append(time.process_time() - began)
    return 1e3 * min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    print("| data | rows × columns | streampgs CPU ms | scikit-learn CPU ms | streampgs score | scikit-learn score |")
    print("|---|---|---|---|---|---|")
    for name, load in (CLASSES | NUMBERS).items():
        X, y = load(return_X_y=True)
        own, other = (StreamRegressor(), Ridge()) if name in NUMBERS else (StreamClassifier(), LogisticRegression())
        models = own, make_pipeline(StandardScaler(), other)
        times = [milliseconds(model, X, y, repeats) for model in models]
        scores = [cross_val_score(model, X, y, cv=5).mean() for model in models]
        cells = [f"{each:.1f}" for each in times] + [f"{each:.3f}" for each in scores]
        print(f"| {name} | {X.shape[0]:,} × {X.shape[1]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
