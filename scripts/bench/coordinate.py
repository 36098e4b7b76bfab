"""Seconds to a duality gap of 1e-4: coordinate descent next to scikit-learn, celer and skglm, everything in memory.

    OMP_NUM_THREADS=1 python -m scripts.bench.coordinate [--sets duke,arcene,a9a,reuters,synthetic] [--losses squared,logistic]
    OMP_NUM_THREADS=1 python -m scripts.bench.coordinate --quick

The problem is (1/n) Σ loss + l1·‖w‖₁ without an intercept; l1 is a share of the smallest value for which all weights are
zero. The gap is relative to the loss of weights 0, and is computed here, in the same way for all: from the weights that a
library returns, with the slopes scaled until they are feasible. A library is called with tolerances 1e-1, 1e-2, … until
its weights have that gap; only the call that succeeded counts. Seconds are those of the processor, the best of some calls,
after compiling. All others get float64 columns (scipy CSC, or a dense array in Fortran order), the format that is fastest
for them; our time to transpose rows to columns and to compute their scores is in a column of its own. "none": the library
does not have the loss.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scripts import real_data
from streampgs.kernels.rows import Rows
from streampgs.learn.coordinate import Coordinate, CoordinateOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID

GAP, MOST_SWEEPS = 1e-4, 2000
TOLERANCES = [10.0**-k for k in range(1, 13)]
_SYNTHETIC_ROWS, _SYNTHETIC_FEATURES = 100_000, 47_236
_MOST_SECONDS = 30.0
Vector = NDArray[np.float64]


# ------------------------------------------------------------------------------------------------------ data


def duke(source: Path) -> tuple[Any, Vector]:
    x, y = _libsvm(source / "duke_west.libsvm.gz")
    return x.toarray(), y


def a9a(source: Path) -> tuple[Any, Vector]:
    return _libsvm(source / "a9a.gz")


def _libsvm(path: Path) -> tuple[Any, Vector]:
    from sklearn.datasets import load_svmlight_file

    with gzip.open(path) as file:
        x, y = load_svmlight_file(file, dtype=np.float32)
    return x, np.sign(y)


def arcene(source: Path) -> tuple[Any, Vector]:
    """Standardized, as the other dense set is."""
    with gzip.open(source / "arcene_train.data.gz", "rt") as file:
        x = np.loadtxt(file)
    deviations = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(deviations > 0.0, deviations, 1.0)
    return x.astype(np.float32), np.loadtxt(source / "arcene_train.labels")


def reuters(source: Path) -> tuple[Any, Vector]:
    import json

    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, labels = [], []
    with gzip.open(source / "reuters21578.jsonl.gz", "rt") as file:
        for story in map(json.loads, file):
            if int(story["id"]) < 14_826 and story["topics"]:
                texts.append(f"{story['title']} {story['body']}")
                labels.append(1.0 if {"earn", "acq"} & set(story["topics"]) else -1.0)
    found = TfidfVectorizer(min_df=2, sublinear_tf=True, dtype=np.float32).fit_transform(texts)
    return found.tocsr(), np.array(labels)


def synthetic(source: Path, rows: int = _SYNTHETIC_ROWS) -> tuple[Any, Vector]:
    """Sparse rows of length 1, 74 entries each, with features whose popularity follows a power law."""
    chance = np.random.default_rng(0)
    features = _SYNTHETIC_FEATURES
    drawn = (features ** chance.random((rows, 74)) - 1.0).astype(np.int64)
    x = sparse.csr_matrix(
        (chance.exponential(size=drawn.size), drawn.ravel(), np.arange(0, drawn.size + 1, 74)), (rows, features)
    )
    x.sum_duplicates()
    x = sparse.diags(1.0 / np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())) @ x
    truth = chance.normal(size=features) * (chance.random(features) < 0.02)
    scores = x @ truth
    return x.astype(np.float32).tocsr(), np.where(
        scores + 0.3 * scores.std() * chance.normal(size=rows) > 0.0, 1.0, -1.0
    )


SETS: dict[str, Callable[[Path], tuple[Any, Vector]]] = {
    "duke": duke,
    "arcene": arcene,
    "a9a": a9a,
    "reuters": reuters,
    "synthetic": synthetic,
}


# ------------------------------------------------------------------------------------------------------ the problem


@dataclass(frozen=True)
class Problem:
    x: Any
    """float64, by columns."""
    y: Vector
    loss: str
    l1: float

    def losses(self, scores: Vector) -> Vector:
        if self.loss == "squared":
            return (scores - self.y) ** 2
        if self.loss == "logistic":
            return np.logaddexp(0.0, -self.y * scores)
        return np.maximum(0.0, 1.0 - self.y * scores) ** 2

    def slopes(self, scores: Vector) -> Vector:
        if self.loss == "squared":
            return 2.0 * (scores - self.y)
        if self.loss == "logistic":
            return -self.y * np.exp(-np.logaddexp(0.0, self.y * scores))
        return -2.0 * self.y * np.maximum(0.0, 1.0 - self.y * scores)

    def conjugates(self, u: Vector) -> Vector:
        """sup over s of u·s - loss(s), for u between 0 and a slope."""
        if self.loss == "logistic":
            share = np.clip(-self.y * u, 1e-300, 1.0)
            rest = np.maximum(1.0 - share, 1e-300)
            return share * np.log(share) + rest * np.log(rest)
        return 0.25 * u * u + u * self.y

    def relative_gap(self, w: Vector) -> float:
        scores, n = self.x @ w, len(self.y)
        slopes = self.slopes(scores)
        largest = float(np.abs(self.x.T @ slopes).max()) / n
        u = slopes * min(1.0, self.l1 / largest)
        primal = float(self.losses(scores).mean()) + self.l1 * float(np.abs(w).sum())
        return (primal + float(self.conjugates(u).mean())) / float(self.losses(np.zeros(n)).mean())


def largest_l1(x: Any, y: Vector, loss: str) -> float:
    """The smallest l1 for which all weights are zero."""
    return float(np.abs(x.T @ Problem(x, y, loss, 0.0).slopes(np.zeros(len(y)))).max()) / len(y)


# ------------------------------------------------------------------------------------------------------ streampgs


def _rows(x: Any, y: Vector) -> Rows:
    if sparse.issparse(x):
        bounds, indices, values = x.indptr.astype(np.int64), x.indices.astype(np.uint32), x.data
    else:
        bounds = np.arange(len(x) + 1, dtype=np.int64) * x.shape[1]
        indices, values = np.empty(0, np.uint32), np.ascontiguousarray(x).ravel()
    return Rows(bounds[:-1], bounds[1:], indices, values, y, features=x.shape[1])


def of_streampgs(x: Any, problem: Problem) -> tuple[float, float, Vector]:
    """Seconds to transpose the rows, seconds to solve, and the weights."""
    layout = "sparse" if sparse.issparse(x) else "dense"
    spec = LaneSpec(
        "coordinate", problem.loss, 0.0, EUCLID, 0.0, Target("y"), 0, 1, 0.0, layout, CoordinateOptions(problem.l1)
    )
    rows, learner = _rows(x, problem.y), Coordinate([spec])
    state = learner.init(x.shape[1] + 1)
    began = time.process_time()
    rows.columns(layout == "dense")
    read, solving = time.process_time() - began, 0.0
    for number in range(MOST_SWEEPS):
        began = time.process_time()
        state["epoch"][...] = number + 1
        learner.sweep(state, rows)
        gap = learner.relative_gap(state, 0)
        solving += time.process_time() - began
        # The learner keeps its best dual point; others are judged by that of their weights alone.
        if gap is not None and gap <= GAP and problem.relative_gap(learner.weights(state, 0)[1:]) <= GAP:
            break
    return read, solving, learner.weights(state, 0)[1:]


# ------------------------------------------------------------------------------------------------------ others


def of_scikit_learn(problem: Problem, tolerance: float) -> Any:
    from sklearn.linear_model import Lasso, LogisticRegression
    from sklearn.svm import LinearSVC

    l1, own = problem.l1, {"tol": tolerance, "fit_intercept": False}
    if problem.loss == "squared":
        return Lasso(alpha=l1 / 2.0, max_iter=1_000_000, **own)
    c = 1.0 / (l1 * len(problem.y))
    if problem.loss == "logistic":
        return LogisticRegression(l1_ratio=1.0, solver="liblinear", C=c, max_iter=1_000_000, **own)
    return LinearSVC(penalty="l1", dual=False, C=c, max_iter=1_000_000, **own)


def of_celer(problem: Problem, tolerance: float) -> Any:
    celer = import_module("celer")
    if problem.loss == "squared":
        return celer.Lasso(alpha=problem.l1 / 2.0, tol=tolerance, fit_intercept=False)
    if problem.loss == "logistic":
        return celer.LogisticRegression(C=1.0 / (problem.l1 * len(problem.y)), tol=tolerance, fit_intercept=False)
    return None


def of_skglm(problem: Problem, tolerance: float) -> Any:
    skglm = import_module("skglm")
    if problem.loss == "squared":
        return skglm.Lasso(alpha=problem.l1 / 2.0, tol=tolerance, fit_intercept=False)
    if problem.loss == "logistic":
        return skglm.SparseLogisticRegression(alpha=problem.l1, tol=tolerance, fit_intercept=False)
    return None


OTHERS = {"scikit-learn": of_scikit_learn, "celer": of_celer, "skglm": of_skglm}


def of_other(problem: Problem, make: Callable[[Problem, float], Any], repeats: int) -> float | str:
    """Seconds of the first tolerance whose weights have the gap."""
    try:
        model = make(problem, TOLERANCES[0])
    except ImportError as error:
        return f"no {error.name}"
    if model is None:
        return "none"
    model.fit(problem.x, problem.y)  # compiles
    spent = time.process_time()
    for tolerance in TOLERANCES:
        seconds = math.inf
        for _ in range(repeats):
            model = make(problem, tolerance)
            began = time.process_time()
            model.fit(problem.x, problem.y)
            seconds = min(seconds, time.process_time() - began)
        gap = problem.relative_gap(np.ravel(model.coef_).astype(float))
        if gap <= GAP:
            return seconds
        if time.process_time() - spent > _MOST_SECONDS:
            return f"> {_MOST_SECONDS:.0f}"
    return "not reached"


# ------------------------------------------------------------------------------------------------------ the table


def lines(sets: list[str], losses: list[str], shares: list[float], source: Path, repeats: int) -> Iterator[str]:
    yield "| set | loss | l1 / largest | weights | transposing | streampgs | " + " | ".join(OTHERS) + " |"
    yield "|" + "---|" * (6 + len(OTHERS))
    for name in sets:
        x, y = SETS[name](source)
        by_columns = (x.tocsc() if sparse.issparse(x) else np.asfortranarray(x)).astype(np.float64)
        for loss in losses:
            largest = largest_l1(by_columns, y, loss)
            for share in shares:
                problem = Problem(by_columns, y, loss, share * largest)
                of_streampgs(x, problem)  # compiles
                read, solve, w = min((of_streampgs(x, problem) for _ in range(repeats)), key=lambda one: one[1])
                others = [of_other(problem, make, repeats) for make in OTHERS.values()]
                cells = [seconds if isinstance(seconds, str) else f"{seconds:.4f}" for seconds in others]
                used = int((w != 0.0).sum())
                own = f"| {name} | {loss} | {share:g} | {used:,} | {read:.4f} | {solve:.4f} |"
                yield f"{own} {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--losses", default="squared,logistic,squared-hinge")
    parser.add_argument("--shares", default="0.1,0.01", help="of the largest l1")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--source", type=Path, default=real_data.SOURCE, help="folder of the published files")
    parser.add_argument("--quick", action="store_true", help="two sets, two losses, one l1, one call")
    given = parser.parse_args()
    if given.quick:
        given.sets, given.losses, given.shares, given.repeats = "duke,a9a", "squared,logistic", "0.1", 1
    warnings.filterwarnings("ignore")
    shares = [float(share) for share in given.shares.split(",")]
    for line in lines(given.sets.split(","), given.losses.split(","), shares, given.source, given.repeats):
        print(line, flush=True)


if __name__ == "__main__":
    main()
