"""scikit-learn's SGDClassifier.partial_fit on the same nights and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_PASSES = 3
"""Over the first night; later nights are visited once, which is what partial_fit does."""

_CLIPPED_AT = 8.0
Arrays = tuple[Any, NDArray[Any]]


class PartialFit:
    """Standardized by the first night and clipped, as streampgs does it; alpha is the best one on a quarter of that night."""

    def __init__(self, first: pa.Table, features: int, seed: int) -> None:
        self._features, self._seed = features, seed
        self._mean, self._spread = _scales(first)
        x, y = self._arrays(first)
        self._classes = np.unique(y)
        shuffled = np.random.default_rng(seed).permutation(len(y))
        test, train = np.split(shuffled, [len(y) // 4])
        losses = [_loss(self._fitted(alpha, x[train], y[train]), (x[test], y[test])) for alpha in _ALPHAS]
        self._model = self._fitted(_ALPHAS[int(np.argmin(losses))], x, y)

    def update(self, night: pa.Table) -> None:
        x, y = self._arrays(night)
        order = np.random.default_rng(self._seed).permutation(len(y))
        self._model.partial_fit(x[order], y[order])

    def quality(self, night: pa.Table) -> list[float]:
        arrays = self._arrays(night)
        return [float(self._model.score(*arrays)), _loss(self._model, arrays)]

    def _fitted(self, alpha: float, x: Any, y: NDArray[Any]) -> SGDClassifier:
        model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=self._seed)
        random = np.random.default_rng(self._seed)
        for _ in range(_PASSES):
            order = random.permutation(len(y))
            model.partial_fit(x[order], y[order], classes=self._classes)
        return model

    def _arrays(self, table: pa.Table) -> Arrays:
        labels = table["label"].to_numpy(zero_copy_only=False)
        if "indices" in table.column_names:
            indices, values = (table[name].combine_chunks() for name in ("indices", "values"))
            entries = values.flatten().to_numpy(), indices.flatten().to_numpy()
            offsets = np.concatenate([[0], np.cumsum(indices.value_lengths().to_numpy())])
            return csr_matrix((*entries, offsets), shape=(table.num_rows, self._features)), labels
        return np.clip((_columns(table) - self._mean) / self._spread, -_CLIPPED_AT, _CLIPPED_AT), labels


def _scales(table: pa.Table) -> tuple[Any, Any]:
    if "indices" in table.column_names:
        return 0.0, 1.0
    columns = _columns(table)
    return columns.mean(axis=0), np.maximum(columns.std(axis=0), 1e-9)


def _columns(table: pa.Table) -> NDArray[np.float64]:
    names = [name for name in table.column_names if name != "label"]
    return np.column_stack([table[name].to_numpy() for name in names]).astype(np.float64)


def _loss(model: SGDClassifier, arrays: Arrays) -> float:
    x, y = arrays
    with np.errstate(over="ignore"):
        return float(log_loss(y, model.predict_proba(x), labels=model.classes_))
