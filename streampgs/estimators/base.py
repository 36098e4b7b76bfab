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
from streampgs.encoding.rows import LARGEST_WEIGHT
from streampgs.errors import InvalidInput, StreampgsError
from streampgs.estimators.features import (
    TableFeatures,
    as_table,
    is_arrow,
    is_sparse,
    is_table,
    numbers_of,
)
from streampgs.estimators.fitted import Fitted, continued, fitted_from_files, fitted_in_memory, fitted_to_run
from streampgs.estimators.runs import bytes_in_memory, trained_run
from streampgs.estimators.training import Given
from streampgs.model import Model
from streampgs.option_fields import build
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.python_words import say_for_python
from streampgs.solvers import SOLVERS

_ENCODING = ("text", "category", "cross", "ignore")
_SOLVER = ("solver", "sigma", "p", "l1", "ball", "step")
_KERNEL = ("kernel", "gamma", "degree", "kernel_features", "supports")
_KEYWORDS = ("loss", "epochs", "standardize", "threads", "memory", *_SOLVER, *_KERNEL, *_ENCODING)


@contextmanager
def sklearn_errors() -> Iterator[None]:
    """scikit-learn expects a ValueError for data and options that cannot be used."""
    try:
        yield
    except InvalidInput:
        raise
    except StreampgsError as fault:
        say_for_python(fault)
        raise InvalidInput(fault.found, fault.remedy) from fault


class StreamEstimator(BaseEstimator):  # type: ignore[misc]
    """Keywords of the constructor are options of `streampgs.train`."""

    _own_keywords: ClassVar[tuple[str, ...]] = ()
    _fitted: Fitted
    run_: str | None
    """The folder of the run; None: rows in memory, or a run that was not kept."""

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
        given = X if hasattr(X, "shape") else as_table(X)  # a stream of record batches, for example
        validate_data(self, given, reset=reset, skip_check_array=True)
        table = as_table(given)
        if not table.num_rows:
            raise InvalidInput("Found array with 0 sample(s): the table has no rows", "give a table with rows")
        columns_are_chosen = any(len(getattr(self, name)) for name in _ENCODING)
        if columns_are_chosen if reset else isinstance(self._fitted.features, TableFeatures):
            return table
        numbers = numbers_of(table)
        if numbers is None and not reset:
            raise InvalidInput(
                "a column that does not hold numbers", "give columns of numbers, as the first fit had them"
            )
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
        if (weights > LARGEST_WEIGHT).any():
            raise InvalidInput(f"sample_weight holds a number beyond {LARGEST_WEIGHT:g}", "scale the weights down")
        if not weights.any():
            raise InvalidInput("sample_weight is zero for all rows", "give a positive weight to some rows")
        return weights

    # Training.

    def _train(self, given: Given, classes: int, label_options: dict[str, Any]) -> None:
        options, encoding_options, limits, resources = self._options(**label_options)
        of_kernel = options.kernel_bytes * int(given.rows.shape[0])
        if options.solver == "kernel" or bytes_in_memory(given) + of_kernel > resources.budget:
            dense = not (is_arrow(given.rows) or is_sparse(given.rows))
            chosen = {"standardize": "off" if self.standardize == "off" else "on"} if dense else {}
            self._fitted = fitted_from_files(given, {**self._keywords(), **label_options, **chosen})
        else:
            self._fitted = fitted_in_memory(given, classes, options, encoding_options, limits)
        self.run_ = None

    def _train_more(self, given: Given, classes: int, label_options: dict[str, Any]) -> None:
        options, encoding_options, _, _ = self._options(**label_options)
        needs = SOLVERS[options.solver].needs
        if options.solver == "kernel" or needs.passes or needs.lines == "columns":
            raise InvalidInput(f"partial_fit with solver='{options.solver}'", "use fit, or a solver such as 'pgs'")
        before = self._fitted if self.__sklearn_is_fitted__() else None
        self._fitted = continued(before, given, classes, options, encoding_options)
        self.run_ = None

    def _train_on_shards(self, shards: Any, label: Any, run: Any, given: tuple[Any, ...]) -> None:
        if any(each is not None for each in given):
            raise InvalidInput("shards= in addition to X, y or sample_weight", "give one of the two")
        options = {**self._keywords(), **self._options_of_shards()}
        model = trained_run(shards, run, options if label is None else {**options, "label": label})
        self._take(model)
        self.run_ = None if run is None else str(run)

    def _take(self, model: Model) -> None:
        """Predict with the model of a run."""
        self._fitted = fitted_to_run(model)

    def resume(self, **options: Any) -> Self:
        """Continue a fit to shards with a run, on new shards too. The options are those of `streampgs.resume`."""
        with sklearn_errors():
            run = getattr(self, "run_", None)
            if run is None:
                raise InvalidInput("resume() without a run", "train with fit(shards=…, label=…, run=…) before")
            resume(run, **options)
            self._take(Model.load(run))
        return self

    # Results.

    def _scores(self, X: Any) -> Floats:
        """A column for each target."""
        check_is_fitted(self)
        with sklearn_errors():
            return self._fitted.scores(X if self._fitted.features is None else self._taken(X, reset=False))

    @property
    def n_rows_clipped_(self) -> int | None:
        """How many different rows of the last fit have a standardized number that was clipped; None: see the run."""
        return self._fitted.clipped

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

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
