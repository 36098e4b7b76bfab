"""What classifier and regressor have in common: validation, training and scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streampgs.api import resume
from streampgs.data.distinct import Floats
from streampgs.data.row_form import RowForm
from streampgs.errors import InvalidInput, StreampgsError
from streampgs.estimators.features import (
    Features,
    MatrixFeatures,
    TableFeatures,
    as_table,
    is_arrow,
    is_sparse,
    is_table,
    numbers_of,
)
from streampgs.estimators.runs import bytes_in_memory, trained_from_files, trained_run
from streampgs.estimators.training import Given, features_of, learned_features, memory_rows, without_repeats
from streampgs.learn.lane_spec import LaneSpec
from streampgs.model import Model
from streampgs.option_fields import build
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.run.in_memory import MemoryTraining

_ENCODING = ("text", "category", "cross", "ignore")
_KEYWORDS = ("loss", "sigma", "p", "epochs", "standardize", "threads", "memory", *_ENCODING)
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

    _own_keywords: ClassVar[tuple[str, ...]] = ()
    _features: Any
    """The features of the rows; None: those of a run's model."""
    _leader: LaneSpec
    _state: Any
    """Of training, for partial_fit."""
    _model: Model | None
    """Of a run on shards."""

    # Options.

    def _keywords(self) -> dict[str, Any]:
        """The options that were chosen, by the names that `streampgs.train` has."""
        names = (*_KEYWORDS, *self._own_keywords)
        given = {name: getattr(self, name) for name in names} | {"seed": self._seed()}
        return {name: value for name, value in given.items() if value is not None}

    def _options(self, **found: Any) -> tuple[ModelOptions, EncodingOptions, Limits, Resources]:
        kinds = (ModelOptions, EncodingOptions, Limits, Resources)
        model, encoding, limits, resources = build("train", {**self._keywords(), **found}, *kinds)
        return model, encoding, limits, resources

    def _options_of_shards(self) -> dict[str, Any]:
        """Options that a run on shards takes in addition."""
        return {}

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
        columns_are_chosen = any(len(getattr(self, name)) for name in _ENCODING)
        if columns_are_chosen if reset else isinstance(self._features, TableFeatures):
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
        options, encoding_options, limits, resources = self._options(**label_options)
        if bytes_in_memory(given) > resources.budget:
            self._train_from_files(given, label_options)
            return
        given = without_repeats(given)
        self._begin(learned_features(given, encoding_options))
        training = MemoryTraining(self._form(options))
        training.train(memory_rows(given, self._features, classes), limits.or_default(len(given.labels)))
        self._finish(training)

    def _train_from_files(self, given: Given, label_options: dict[str, Any]) -> None:
        dense = not (is_arrow(given.rows) or is_sparse(given.rows))
        chosen = {"standardize": "off" if self.standardize == "off" else "on"} if dense else {}
        model = trained_from_files(given, {**self._keywords(), **label_options, **chosen})
        self._begin(features_of(given, model.encoding, model.features))
        self._take(model)

    def _train_more(self, given: Given, classes: int, label_options: dict[str, Any]) -> None:
        """One pass over the rows, which continues the training so far."""
        options, encoding_options, _, _ = self._options(**label_options)
        given = without_repeats(given)
        if self._has_started:
            training = MemoryTraining.restored(self._form(options), self._state)
        else:
            self._begin(learned_features(given, encoding_options))
            training = MemoryTraining(self._form(options))
        rows = memory_rows(given, self._features, classes)
        training.train(rows, Limits(epochs=training.cursor.epoch + 1), _HORIZON)
        self._finish(training)

    @property
    def _has_started(self) -> bool:
        """Whether partial_fit can continue."""
        if self.__sklearn_is_fitted__() and self._state is None:
            raise InvalidInput(
                "partial_fit after a fit that trained from files",
                "continue with resume(), or start with partial_fit on a new estimator",
            )
        return self.__sklearn_is_fitted__()

    def _train_on_shards(self, shards: Any, label: Any, run: Any, given: tuple[Any, ...]) -> Model:
        if any(each is not None for each in given):
            raise InvalidInput("shards= in addition to X, y or sample_weight", "give one of the two")
        options = {**self._keywords(), **self._options_of_shards()}
        model = trained_run(shards, run, options if label is None else {**options, "label": label})
        self._begin(None)
        self._model, self.run_ = model, None if run is None else str(run)
        self._take(model)
        return model

    def resume(self, **options: Any) -> Self:
        """Continue a fit to shards with a run, on new shards too. The options are those of `streampgs.resume`."""
        with sklearn_errors():
            run = getattr(self, "run_", None)
            if run is None:
                raise InvalidInput("resume() without a run", "train with fit(shards=…, label=…, run=…) before")
            resume(run, **options)
            self._model = Model.load(run)
            self._take(self._model)
        return self

    def _form(self, options: ModelOptions) -> RowForm:
        return RowForm(options, self._features.encoding, self._features.layout)

    def _begin(self, features: Features | None) -> None:
        """Forget the model before. None: the run's model knows the features."""
        self._features, self._model, self._state, self.run_ = features, None, None, None

    def _finish(self, training: MemoryTraining) -> None:
        self._leader = training.leader
        self._weights_in_rows, self._constants = training.predictor()
        self._state = training.state()

    def _take(self, model: Model) -> None:
        self._leader = model.settings
        self._weights_in_rows = np.atleast_2d(model.coef_)
        self._constants = np.atleast_1d(np.asarray(model.intercept_, np.float64))

    # Results.

    def _scores(self, X: Any) -> Floats:
        """A column for each target."""
        check_is_fitted(self)
        with sklearn_errors():
            if self._model is not None:
                rows = X if is_table(X) or hasattr(X, "tocsr") else np.asarray(X)
                scores = self._model.decision_function(rows)
                return scores.reshape(len(scores), -1)
            rows = self._taken(X, reset=False)
            parts = [part.scores(self._weights_in_rows) for part in self._features.rows(rows)]
            return np.concatenate(parts) + self._constants

    def _in_units(self) -> tuple[Floats, Floats]:
        """Weights and constants for the columns as they were given, where each column is one feature."""
        weights, constants = self._weights_in_rows, self._constants
        encoding = None if self._features is None else self._features.encoding
        if not isinstance(self._features, MatrixFeatures) or encoding is None:
            return weights, constants
        weights = weights * np.asarray(encoding.columns[0].scale)
        return weights, constants - weights @ np.asarray(encoding.columns[0].centre)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_leader")

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
