"""The quality of default options against scikit-learn's, on small tables and on labels that are rare or far from zero.

    python -m scripts.bench.small_tables [tables] [rates] [means] [--splits 10] [--seeds 3] [--rows 200,2000,20000,200000]

tables: held-out accuracy or R², log loss and calibration on known tables, over random splits of three quarters to one;
LogisticRegression and Ridge with their defaults, on the features as they are and standardized.
rates: held-out log loss where few or most rows are positive, as a ratio to that of LogisticRegression and of the constant.
means: held-out loss of regressions whose labels are far from zero, as a ratio to the best of scikit-learn's.

Prints Markdown tables. a9a and magic need the data sets in ../shared/data; without them they are left out.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, LogisticRegression, QuantileRegressor, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scripts.machine import machine_line
from streampgs import StreamClassifier, StreamRegressor

Array = NDArray[Any]
SETS = Path(__file__).resolve().parents[3] / "shared" / "data"
TEST_ROWS = 20_000
BINS = 15
QUANTILE_ROWS = 3000  # scikit-learn's linear program is slow
RATES = (0.001, 0.01, 0.05, 0.5, 0.95, 0.999)
MEANS = (0.0, 100.0, 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure; all if nothing is named")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", default="200,2000,20000,200000")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(machine_line())
    for name in arguments.parts or PARTS:
        print(f"\n### {name}\n")
        PARTS[name](arguments)


def fitted(estimator: Any, x: Array, y: Array) -> tuple[Any, float]:
    """The estimator, and the seconds that it took."""
    began = time.perf_counter()
    estimator.fit(x, y)
    return estimator, time.perf_counter() - began


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print(
            "| " + " | ".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row) + " |",
            flush=True,
        )


# Known tables.


def tables(arguments: argparse.Namespace) -> None:
    header = ["table (rows)", "streampgs", "sklearn", "sklearn, standardized", "log loss", "sklearn", "standardized"]
    print_table(
        [*header, "calibration error", "s a fit", "sklearn"], (_table_row(name, arguments) for name in known_tables())
    )


def known_tables() -> list[str]:
    own = ["iris", "wine", "digits", "breast_cancer", "diabetes"]
    return own + ([name for name in ("magic", "a9a") if SETS.is_dir()])


def load(name: str) -> tuple[Array, Array]:
    if name == "magic":
        with gzip.open(SETS / "magic04.data.gz", "rt") as file:
            cells = [line.strip().split(",") for line in file if line[0].isdigit() or line[0] == "-"]
        cells = [row for row in cells if row[-1] in ("g", "h")]
        return np.array([row[:-1] for row in cells], float), np.array([row[-1] == "g" for row in cells], int)
    if name == "a9a":
        x, y = datasets.load_svmlight_file(str(SETS / "a9a.gz"), n_features=123)
        return x.toarray(), (y > 0).astype(int)
    found = getattr(datasets, f"load_{name}")()
    return found.data, found.target.astype(float) if name == "diabetes" else found.target


def _table_row(name: str, arguments: argparse.Namespace) -> list[Any]:
    x, y = load(name)
    regression = name == "diabetes"
    measured = [_split(x, y, seed, regression) for seed in range(arguments.splits)]
    means = [float(np.mean(column)) if None not in column else "" for column in zip(*measured, strict=True)]
    return [f"{name} ({len(x):,})", *means]


def _split(x: Array, y: Array, seed: int, regression: bool) -> list[float | None]:
    train, test, labels, truth = train_test_split(
        x, y, test_size=0.25, random_state=seed, stratify=None if regression else y
    )
    own, seconds = fitted(StreamRegressor() if regression else StreamClassifier(), train, labels)
    peer, peer_seconds = fitted(Ridge() if regression else LogisticRegression(max_iter=3000), train, labels)
    scaled = make_pipeline(StandardScaler(), type(peer)(**peer.get_params())).fit(train, labels)
    scores = [each.score(test, truth) for each in (own, peer, scaled)]  # accuracy, or R²
    if regression:
        return [*scores, None, None, None, None, seconds, peer_seconds]
    found = [each.predict_proba(test) for each in (own, peer, scaled)]
    losses = [log_loss(truth, probabilities) for probabilities in found]
    return [*scores, *losses, calibration_error(found[0], truth), seconds, peer_seconds]


def calibration_error(probabilities: Array, truth: Array) -> float:
    """Of the predicted class: the mean distance of its probability from its frequency, in bins of equal width."""
    top, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    return float(sum(abs(top[bins == b].sum() - right[bins == b].sum()) for b in range(BINS)) / len(truth))


# Rare labels.


def rates(arguments: argparse.Namespace) -> None:
    header = [
        "rows",
        "share of positives",
        "log loss",
        "/ LogisticRegression",
        "/ constant",
        "mean prediction / mean label",
    ]
    sizes = [int(rows) for rows in arguments.rows.split(",")]
    print_table(header, (row for rows in sizes for rate in RATES for row in _rate_row(rows, rate, arguments.seeds)))


def _rate_row(rows: int, rate: float, seeds: int) -> list[list[Any]]:
    measured = [found for seed in range(seeds) if (found := _with_rate(rows, rate, seed)) is not None]
    if not measured:
        return []
    own, peer, constant, predicted, mean = np.mean(measured, axis=0).tolist()
    return [[f"{rows:,}", rate, own, own / peer, own / constant, _rarer(predicted) / _rarer(mean)]]


def _rarer(share: float) -> float:
    return min(share, 1.0 - share)


def _with_rate(rows: int, rate: float, seed: int) -> list[float] | None:
    random = np.random.default_rng(seed)
    x, scores = _features(random, rows)
    constant = brentq(lambda b: expit(scores + b).mean() - rate, -60.0, 60.0)
    y = (random.random(len(x)) < expit(scores + constant)).astype(int)
    train, labels, test, truth = x[:rows], y[:rows], x[rows:], y[rows:]
    if len(set(labels.tolist())) < 2:
        return None
    model = StreamClassifier().fit(train, labels)
    own = model.predict_proba(test)[:, 1]
    peer = LogisticRegression(max_iter=3000).fit(train, labels).predict_proba(test)[:, 1]
    share = labels.mean()
    losses = [log_loss(truth, p) for p in (own, peer, np.full(TEST_ROWS, share))]
    return [*losses, float(model.predict_proba(train)[:, 1].mean()), float(share)]


def _features(random: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Ten columns of sizes from 0.1 to 10, and scores to which all of them add as much."""
    sizes = np.logspace(-1, 1, 10)
    x = random.normal(size=(rows + TEST_ROWS, 10)) * sizes
    return x, x @ (random.normal(size=10) / sizes)


# Labels far from zero.


def means(arguments: argparse.Namespace) -> None:
    header = [
        "rows",
        "mean / standard deviation",
        "loss",
        "held out",
        "/ sklearn",
        "/ constant",
        "shift of the mean / deviation",
    ]
    sizes = [int(rows) for rows in arguments.rows.split(",")]
    print_table(header, (_mean_row(rows, mean, loss) for rows in sizes for loss in REGRESSIONS for mean in MEANS))


def _pinball(quantile: float) -> Callable[[Array, Array], float]:
    return lambda p, y: float(np.maximum(quantile * (y - p), (quantile - 1.0) * (y - p)).mean())


def _huber(p: Array, y: Array) -> float:
    miss = np.abs(p - y)
    return float(np.where(miss < 1.35, 0.5 * miss**2, 1.35 * (miss - 0.675)).mean())


REGRESSIONS: dict[str, tuple[Any, dict[str, Any], Callable[[Array, Array], float]]] = {
    "squared": (Ridge(), {}, lambda p, y: float(((p - y) ** 2).mean())),
    "huber": (HuberRegressor(), {}, _huber),
    "absolute": (QuantileRegressor(quantile=0.5, alpha=0.0), {}, _pinball(0.5)),
    "quantile": (QuantileRegressor(quantile=0.9, alpha=0.0), {"quantile": 0.9}, _pinball(0.9)),
}


def _mean_row(rows: int, mean: float, loss: str) -> list[Any]:
    """The peer sees labels of mean 0, as its solvers do not converge otherwise."""
    peer, options, measure = REGRESSIONS[loss]
    random = np.random.default_rng(rows)
    x, scores = _features(random, rows)
    y = scores + random.normal(size=len(x))
    shift = mean * float(y.std())
    truth = y[rows:] + shift
    own = StreamRegressor(loss=loss, **options).fit(x[:rows], y[:rows] + shift).predict(x[rows:])
    few = min(rows, QUANTILE_ROWS) if isinstance(peer, QuantileRegressor) else rows
    fit = make_pipeline(StandardScaler(), peer).fit(x[:few], y[:few])
    constant = np.full(
        TEST_ROWS, np.quantile(y[:rows], options.get("quantile", 0.5)) if loss != "squared" else y[:rows].mean()
    )
    found = measure(own, truth)
    theirs, of_constant = measure(fit.predict(x[rows:]), y[rows:]), measure(constant, y[rows:])
    off = float((own.mean() - shift - fit.predict(x[rows:]).mean()) / y.std())
    return [f"{rows:,}", f"{mean:g}", loss, found, found / theirs, found / of_constant, off]


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"tables": tables, "rates": rates, "means": means}

if __name__ == "__main__":
    sys.exit(main())
