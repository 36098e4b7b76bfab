"""The four data sets of the paper."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from streampgs.kernels.rows import Rows

NOISE = 1000
"""Random features that are added to those of MAGIC."""
_OPTIMA = Path(__file__).with_name("optima.json")


@dataclass(frozen=True)
class Problem:
    """min (1/m) Σ log(1 + exp(-y <w, x>)) + l1·‖w‖₁ without an intercept, all |x| at most 1."""

    name: str
    matrix: Any
    """A dense array, or a sparse matrix by rows."""
    labels: NDArray[np.float64]

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def features(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def layout(self) -> str:
        return "sparse" if sparse.issparse(self.matrix) else "dense"

    @cached_property
    def entries(self) -> int:
        """All of them; a dense table counts its zeros, because it reads them."""
        return int(self.matrix.nnz if self.layout == "sparse" else self.matrix.size)

    @cached_property
    def mean_squared_norm(self) -> float:
        """Of the rows."""
        return float(
            (self.matrix.multiply(self.matrix) if self.layout == "sparse" else self.matrix**2).sum() / self.rows
        )

    def visited_rows(self, order: NDArray[np.int64]) -> Rows:
        return self.table.at(order)

    @cached_property
    def table(self) -> Rows:
        if self.layout == "sparse":
            matrix = self.matrix.tocsr()
            bounds, indices, values = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data
        else:
            bounds = np.arange(self.rows + 1, dtype=np.int64) * self.features
            indices, values = np.empty(0, np.uint32), self.matrix.ravel()
        return Rows(bounds[:-1], bounds[1:], indices, values.astype(np.float32), self.labels, features=self.features)

    def objective(self, weights: NDArray[np.float64], l1: float) -> float:
        scores = self.matrix @ weights
        return float(np.mean(np.logaddexp(0.0, -self.labels * scores)) + l1 * np.abs(weights).sum())

    def optimum(self, l1: float) -> float:
        """The smallest objective that scikit-learn (liblinear) and celer find, which takes minutes if it is not in the file."""
        known = json.loads(_OPTIMA.read_text()).get(self.name, {}).get(f"{l1:.0e}")
        if known is not None:
            return float(known)
        return min(self.objective(fitted(self, l1), l1) for fitted in (_liblinear, _celer))


def _liblinear(problem: Problem, l1: float) -> NDArray[np.float64]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        solver="liblinear", l1_ratio=1.0, C=1.0 / (l1 * problem.rows), fit_intercept=False, tol=1e-8, max_iter=2000
    )
    return np.asarray(model.fit(problem.matrix, problem.labels).coef_[0], dtype=float)


def _celer(problem: Problem, l1: float) -> NDArray[np.float64]:
    from celer import LogisticRegression

    model = LogisticRegression(C=1.0 / (l1 * problem.rows), fit_intercept=False, tol=1e-10, max_iter=200)
    matrix = problem.matrix.astype(np.float64)
    matrix = matrix.tocsc() if problem.layout == "sparse" else np.asfortranarray(matrix)
    return np.asarray(model.fit(matrix, problem.labels).coef_[0], dtype=float)


def problem_named(name: str, source: Path) -> Problem:
    return PROBLEMS[name](name, source)


def _duke(name: str, source: Path) -> Problem:
    labels, rows = [], []
    with gzip.open(source / "duke_west.libsvm.gz", "rt") as file:
        for line in file:
            label, *cells = line.split()
            labels.append(float(label))
            rows.append([float(cell.partition(":")[2]) for cell in cells])
    return Problem(name, _within_one(np.array(rows)), np.array(labels))


def _arcene(name: str, source: Path) -> Problem:
    with gzip.open(source / "arcene_train.data.gz", "rt") as file:
        rows = np.loadtxt(file)
    return Problem(name, sparse.csr_matrix(_within_one(rows)), np.loadtxt(source / "arcene_train.labels"))


def _magic(source: Path) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    with gzip.open(source / "magic04.data.gz", "rt") as file:
        cells = [line.strip().split(",") for line in file if line.strip()[-1:] in ("g", "h")]
    rows = np.array([[float(cell) for cell in row[:-1]] for row in cells])
    return _within_one(rows), np.array([1.0 if row[-1] == "g" else -1.0 for row in cells])


def _magic_sparse(name: str, source: Path) -> Problem:
    """A random feature is 1 with probability 0.05, and else 0."""
    rows, labels = _magic(source)
    noise = np.random.default_rng(0).random((len(rows), NOISE)) < 0.05
    return Problem(name, sparse.csr_matrix(np.hstack([rows, noise.astype(np.float32)])), labels)


def _magic_dense(name: str, source: Path) -> Problem:
    """A random feature is -1 or 1."""
    rows, labels = _magic(source)
    noise = np.random.default_rng(0).integers(0, 2, (len(rows), NOISE)) * 2 - 1
    return Problem(name, np.hstack([rows, noise.astype(np.float32)]), labels)


def _within_one(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Each column divided by its largest absolute value: the paper asks for features in [-1, 1]."""
    largest = np.abs(rows).max(axis=0)
    return np.asarray(rows / np.where(largest > 0.0, largest, 1.0), dtype=np.float32)


PROBLEMS = {"duke": _duke, "arcene": _arcene, "magic04s": _magic_sparse, "magic04d": _magic_dense}
