"""What classifier and regressor have in common: validation, training and scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streampgs.data.distinct import Floats
from streampgs.data.row_form import RowForm
from streampgs.errors import InvalidInput, StreampgsError
from streampgs.estimators.features import Features, TableFeatures, as_table, is_sparse, is_table, numbers_of
from streampgs.estimators.training import Given, learned_features, memory_rows, without_repeats
from streampgs.learn.lane_spec import LaneSpec
from streampgs.option_fields import build
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.run.in_memory import MemoryTraining

_ENCODING = ("text", "category", "cross", "ignore")
_HORIZON = 100_000
"""The number of rows for which partial_fit chooses sigma: how many will come is not known."""


@contextmanager
def sklearn_errors() -> Iterator[None]:
    """scikit-learn expects a ValueError for data and options that cannot be used."""
    try:
        yield
    except InvalidInput:
        raise
    except StreampgsError as fault:
        raise InvalidInput(fault.found, fault.remedy) from fault


class StreamEstimator(BaseEstimator):  # type: ignore[misc]
    """Keywords of the constructor are options of `streampgs.train`."""

    _model_keywords: ClassVar[tuple[str, ...]] = ("loss", "sigma", "p", "threads")
    features_: Features
    leader_: LaneSpec

    # Options.

    def _options(self, **found: Any) -> tuple[ModelOptions, EncodingOptions, Limits, Resources]:
        given = {name: getattr(self, name) for name in self._model_keywords}
        given |= {name: tuple(getattr(self, name)) for name in _ENCODING}
        given |= {"epochs": self.epochs, "memory": self.memory, "standardize": self.standardize}
        given = {name: value for name, value in given.items() if value is not None}
        model, encoding, limits, resources = build(
            "train", {**given, **found, "seed": self._seed()}, ModelOptions, EncodingOptions, Limits, Resources
        )
        return model, encoding, limits, resources

    def _seed(self) -> int:
        """None counts as 0: two fits of the same rows give the same model."""
        if self.random_state is None or isinstance(self.random_state, int | np.integer):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(1 << 31))

    # Rows.

    def _taken(self, X: Any, reset: bool) -> Any:
        """The rows as a matrix of numbers, a sparse matrix in CSR form, or a table of pyarrow."""
        if not is_table(X):
            rows = validate_data(
                self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=1
            )
            return _canonical(rows) if is_sparse(rows) else np.asarray(rows)
        validate_data(self, X, reset=reset, skip_check_array=True)
        table = as_table(X)
        if not table.num_rows:
            raise InvalidInput("Found array with 0 sample(s): the table has no rows", "give a table with rows")
        if (
            (self.text or self.category or self.cross or self.ignore)
            if reset
            else isinstance(self.features_, TableFeatures)
        ):
            return table
        numbers = numbers_of(table)
        return table if numbers is None else numbers

    def _weights(self, sample_weight: Any, rows: int) -> Floats | None:
        if sample_weight is None:
            return None
        weights = np.asarray(sample_weight, np.float64)
        if weights.ndim == 0:
            weights = np.full(rows, float(weights))
        if weights.shape != (rows,):
            raise InvalidInput(
                f"sample_weight has the shape {weights.shape}, and there are {rows:,} rows",
                "give a number for each row",
            )
        if not np.isfinite(weights).all() or (weights < 0.0).any():
            raise InvalidInput("sample_weight holds negative numbers, NaN or infinity", "give numbers of 0 or more")
        if not weights.any():
            raise InvalidInput("sample_weight is zero for all rows", "give a positive weight to some rows")
        return weights

    # Training.

    def _train(self, given: Given, classes: int, label_options: dict[str, Any]) -> None:
        options, encoding_options, limits, _ = self._options(**label_options)
        given = without_repeats(given)
        self.features_ = learned_features(given, encoding_options)
        rows = memory_rows(given, self.features_, classes)
        training = MemoryTraining(self._form(options))
        training.train(rows, limits.or_default())
        self._finish(training)

    def _train_more(self, given: Given, classes: int, label_options: dict[str, Any]) -> None:
        """One pass over the rows, by which the training so far is continued."""
        options, encoding_options, _, _ = self._options(**label_options)
        given = without_repeats(given)
        if hasattr(self, "_state"):
            training = MemoryTraining.restored(self._form(options), self._state)
        else:
            self.features_ = learned_features(given, encoding_options)
            training = MemoryTraining(self._form(options))
        rows = memory_rows(given, self.features_, classes)
        training.train(rows, Limits(epochs=training.cursor.epoch + 1), _HORIZON)
        self._finish(training)

    def _form(self, options: ModelOptions) -> RowForm:
        return RowForm(options, self.features_.encoding, self.features_.layout)

    def _finish(self, training: MemoryTraining) -> None:
        self.leader_ = training.leader
        self._weights_in_rows, self._constants = training.predictor()
        self._state = training.state()
        self.n_iter_ = training.cursor.epoch

    # Results.

    def _scores(self, X: Any) -> Floats:
        """A column for each target."""
        check_is_fitted(self)
        with sklearn_errors():
            rows = self._taken(X, reset=False)
            parts = [part.scores(self._weights_in_rows) for part in self.features_.rows(rows)]
            return np.concatenate(parts) + self._constants

    def _in_units(self) -> tuple[Floats, Floats]:
        """Weights and constants for the columns as they were given, where each column is one feature."""
        weights, constants = self._weights_in_rows, self._constants
        encoding = self.features_.encoding
        if encoding is None or len(encoding.columns) != 1 or not encoding.columns[0].scale:
            return weights, constants
        weights = weights * np.asarray(encoding.columns[0].scale)
        return weights, constants - weights @ np.asarray(encoding.columns[0].centre)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "features_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _canonical(matrix: Any) -> Any:
    """Each row has its columns once, in ascending order, and no stored zeros."""
    if matrix.has_canonical_format and matrix.data.all():
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
