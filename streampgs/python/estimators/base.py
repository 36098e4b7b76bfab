"""What classifier and regressor have in common: validation, training and scores."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from streampgs.base.errors import InvalidInput, StreampgsError, StreamWarning, counted
from streampgs.data.distinct import Floats
from streampgs.encoding.labels import LARGEST_LABEL
from streampgs.encoding.rows import LARGEST_WEIGHT
from streampgs.encoding.scales import LARGEST_NUMBER
from streampgs.model.model import Model
from streampgs.options.commands import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.options.fields import build
from streampgs.options.messages import python_words, say_for_python
from streampgs.options.solvers import SOLVERS
from streampgs.python.api import resume
from streampgs.python.estimators.features import as_table, is_sparse, is_table
from streampgs.python.estimators.fitting import (
    Chosen,
    Fitted,
    Given,
    bytes_in_memory,
    column_notes,
    continued,
    fitted_from_files,
    fitted_in_memory,
    fitted_to_run,
    fitted_to_shards,
)
from streampgs.run.report import Report


@dataclass(repr=False, eq=False)
class Parameters:
    """sigma : weight of the regularizer, or 'auto' to find it
    p : exponent of the regularizer's norm, in (1, 2], or 'auto'
    solver : how the model is trained, as for `streampgs.train`; l1, ball, step are options of some solvers
    epochs : passes over the rows; None chooses by the number of rows
    standardize : 'auto', 'on' or 'off', for columns of numbers
    kernel : None, 'rbf' or 'polynomial': a model that is not linear; gamma, degree, kernel_features and (with
        solver='kernel') supports as for `streampgs.train`
    numbers : 'linear': one weight for each column of numbers; 'curves' or 'auto' as for `streampgs.train`, for tables
    find_crosses : 'off'; 'auto' as for `streampgs.train`, for tables
    features, ignore, category, text, cross, cyclic : columns of a table, as for `streampgs.train`
    ngrams, char_ngrams, text_weights, null_flags, hash_bits, hash_seed, vocabulary : how columns of a table become
        features, as for `streampgs.train`
    random_state : seed of the order of rows; None counts as 0
    threads : threads that train at the same time
    memory : rows that take more are trained on from temporary files; None: 512MB, or less on a small machine
    """

    loss: Any = "logistic"
    _: KW_ONLY
    sigma: Any = "auto"
    p: Any = 2.0
    solver: str = "pgs"
    l1: Any = None
    ball: Any = None
    step: Any = "auto"
    epochs: int | None = None
    standardize: str = "auto"
    kernel: str | None = None
    gamma: Any = "auto"
    degree: int = 2
    kernel_features: int = 1024
    supports: int = 4096
    numbers: str = "linear"
    find_crosses: str = "off"
    features: Any = ()
    ignore: Any = ()
    category: Any = ()
    text: Any = ()
    ngrams: Any = None
    char_ngrams: Any = None
    text_weights: str = "tf-idf"
    cross: Any = ()
    cyclic: Any = ()
    null_flags: bool = False
    hash_bits: int | None = None
    hash_seed: int = 0
    vocabulary: bool = False
    random_state: Any = None
    threads: int = 1
    memory: Any = None


_ENOUGH_ROWS = 2000
"""From which partial_fit learns what columns are."""


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


def numbers_in(values: Any, name: str) -> Floats:
    """An array of real numbers, of which no part is lost."""
    if np.ma.is_masked(values):
        raise InvalidInput(f"{name} has masked values", "leave these rows out")
    found = np.asarray(values)
    if found.dtype.kind in "cmM":
        raise InvalidInput(f"{name} is of type {found.dtype}", "give real numbers")
    try:
        return found.astype(np.float64)
    except (TypeError, ValueError) as fault:
        raise InvalidInput(f"{name} does not hold numbers: {fault}", "give a number for each row") from fault


def _cells(values: Any, name: str, rows: int, largest: float) -> Floats | None:
    """A number for each row."""
    if values is None:
        return None
    cells = numbers_in(values, name)
    if cells.ndim == 0:
        cells = np.full(rows, float(cells))
    if cells.shape != (rows,):
        raise InvalidInput(
            f"{name} has the shape {cells.shape}, and there are {rows:,} rows", "give a number for each row"
        )
    if not np.isfinite(cells).all():
        raise InvalidInput(f"{name} holds NaN or infinity", "give finite numbers")
    if (np.abs(cells) > largest).any():
        raise InvalidInput(f"{name} holds a number beyond {largest:g}", "scale the numbers down")
    return cells


class StreamEstimator(Parameters, BaseEstimator, ABC):  # type: ignore[misc]
    """Parameters of the constructor are options of `streampgs.train`."""

    _fitted: Fitted
    run_: str | None
    """The folder of the run; None: rows in memory, or a run that was not kept."""

    # Options.

    def _keywords(self) -> dict[str, Any]:
        """The options that were chosen, by the names that `streampgs.train` has."""
        given = {each.name: getattr(self, each.name) for each in fields(self)} | {"seed": self._seed()}
        others = ("random_state", "class_weight")
        return {name: value for name, value in given.items() if value is not None and name not in others}

    def _chosen(self) -> Chosen:
        given, kinds = {**self._keywords(), **self._label_options()}, (ModelOptions, EncodingOptions, Limits, Resources)
        return Chosen(self._classes, *build("train", given, *kinds))

    def _seed(self) -> int:
        """None counts as 0: two fits of the same rows give the same model."""
        if self.random_state is None or isinstance(self.random_state, int | np.integer):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(1 << 31))

    # Rows.

    def _taken(self, X: Any, reset: bool) -> Any:
        """The rows as a matrix of numbers, a sparse matrix in CSR form, or a table of pyarrow."""
        if hasattr(X, "collect_schema") and hasattr(X, "collect"):  # a LazyFrame of polars
            X = X.collect()
        if not is_table(X):
            if np.ma.is_masked(X):
                X = np.ma.filled(X.astype(np.float64), np.nan)
            if getattr(getattr(X, "dtype", None), "kind", None) in ("m", "M"):
                raise InvalidInput(f"X is of type {X.dtype}", "give a table: it may have columns of times")
            rows = validate_data(
                self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=1
            )
            return _canonical(rows) if is_sparse(rows) else np.asarray(rows)
        given = X if hasattr(X, "shape") else as_table(X)  # a stream of record batches, for example
        validate_data(self, given, reset=reset, skip_check_array=True)
        table = as_table(given)
        if not table.num_rows:
            raise InvalidInput("Found array with 0 sample(s): the table has no rows", "give a table with rows")
        return table

    def _checked(self, X: Any, y: Any, sample_weight: Any, offset: Any, reset: bool) -> Given:
        if y is None:
            raise InvalidInput("This estimator requires y to be passed, but the target y is None", "give the labels")
        if np.ma.is_masked(y):
            raise InvalidInput("y has masked values", "leave these rows out")
        rows, labels = self._taken(X, reset), column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        weights = _cells(sample_weight, "sample_weight", len(labels), LARGEST_WEIGHT)
        if weights is not None and (weights < 0.0).any():
            raise InvalidInput("sample_weight holds negative numbers", "give numbers of 0 or more")
        if weights is not None and not weights.any():
            raise InvalidInput("sample_weight is zero for all rows", "give a positive weight to some rows")
        return Given(rows, labels, weights, _cells(offset, "offset", len(labels), LARGEST_LABEL))

    # Training. A classifier overrides what labels are.

    _classes = 0
    """How many; 0: the labels are numbers."""

    @abstractmethod
    def _numbers_of(self, labels: NDArray[Any], weights: Floats | None) -> Floats:
        """The labels of a new fit as numbers."""

    def _label_options(self) -> dict[str, Any]:
        return {}

    def _options_of_shards(self) -> dict[str, Any]:
        """Options that a run on shards takes in addition."""
        return {}

    def _factors(self, given: Given) -> Floats | None:
        """The weight of each class."""
        return None

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        shards: Any = None,
        label: str | None = None,
        run: Any = None,
    ) -> Self:
        """Train a new model. A weight of 2 counts like a row that comes twice, a weight of 0 like a missing row. `offset`
        is a number for each row that is added to its scores.

        Or train on files: `shards` are files, folders or addresses, `label` is the column to predict, `offset` a column,
        and `run` the folder of a run, which `resume` continues.
        """
        with sklearn_errors():
            if shards is None:
                given = self._checked(X, y, sample_weight, offset, reset=True)
                self._train(replace(given, labels=self._numbers_of(given.labels, given.weights)))
                return self
            if any(each is not None for each in (X, y, sample_weight)):
                raise InvalidInput("shards= in addition to X, y or sample_weight", "give one of the two")
            columns = {name: column for name, column in (("label", label), ("offset", offset)) if column is not None}
            options = {**self._keywords(), **self._options_of_shards(), **columns}
            self._take(fitted_to_shards(shards, run, options))
            self.run_ = None if run is None else str(run)
        return self

    def _train(self, given: Given) -> None:
        chosen = self._chosen()
        given = replace(given.as_features(chosen.encoding, None), factors=self._factors(given))
        of_kernel = chosen.model.kernel_bytes * int(given.rows.shape[0])
        if chosen.model.solver == "kernel" or bytes_in_memory(given) + of_kernel > chosen.resources.budget:
            fitted = fitted_from_files(given, chosen, {**self._keywords(), **self._label_options()})
        else:
            fitted = fitted_in_memory(given, chosen)
        self._fitted, self.run_ = fitted, None
        _warn(column_notes(given, chosen), fitted)

    def _train_more(self, given: Given) -> None:
        """The first rows are kept until there are enough of them: so many do not show what a column is like."""
        chosen = self._chosen()
        needs = SOLVERS[chosen.model.solver].needs
        if needs.in_memory or needs.passes:
            raise InvalidInput(f"partial_fit with solver='{self.solver}'", "use fit, or a solver such as 'pgs'")
        before = self._fitted if self.__sklearn_is_fitted__() else None
        if before is not None and before.shifted != (given.offsets is not None):
            raise InvalidInput("partial_fit with offsets in some calls only", "give offset= in all calls, or in none")
        if before is not None and before.waiting is not None:
            given, before = before.waiting.and_then(given), None
        few = before is None and len(given.labels) < _ENOUGH_ROWS and bytes_in_memory(given) <= chosen.resources.budget
        waiting, known = given if few else None, None if before is None else before.features
        given = replace(given.as_features(chosen.encoding, known), factors=self._factors(given))
        self._fitted, self.run_ = replace(continued(before, given, chosen), waiting=waiting), None
        if not few:
            _warn([] if before else column_notes(given, chosen), self._fitted)

    def _take(self, fitted: Fitted) -> None:
        """Predict with the model of a run."""
        self._fitted = fitted

    def resume(self, **options: Any) -> Self:
        """Continue a fit to shards with a run, on new shards too. The options are those of `streampgs.resume`."""
        with sklearn_errors():
            run = getattr(self, "run_", None)
            if run is None:
                raise InvalidInput("resume() without a run", "train with fit(shards=…, label=…, run=…) before")
            report = resume(run, **options)
            self._take(fitted_to_run(Model.load(run), report))
        return self

    # Results.

    def _scores(self, X: Any, offset: Any) -> Floats:
        """A column for each target."""
        check_is_fitted(self)
        with sklearn_errors():
            if self._fitted.features is None:
                return self._fitted.scores(X, offset)
            if offset is None and self._fitted.shifted:
                raise InvalidInput("no offsets, but the model was fitted with them", "give offset=")
            rows = self._taken(X, reset=False)
            return self._fitted.scores(rows, _cells(offset, "offset", rows.shape[0], LARGEST_LABEL))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The name of the feature that each weight belongs to: a column, a value of a column, a word."""
        check_is_fitted(self)
        fitted, count = self._fitted, self._fitted.weights.shape[1]
        if fitted.features is None:
            assert fitted.model is not None
            return np.array([fitted.model.name_of(weight) for weight in range(count)], object)
        columns = getattr(self, "feature_names_in_", [f"x{number}" for number in range(self.n_features_in_)])
        return np.array([fitted.features.name_of(weight, columns) for weight in range(count)], object)

    @property
    def sigma_(self) -> float:
        """The weight of the regularizer that was found or chosen."""
        return self._fitted.leader.sigma

    @property
    def report_(self) -> Report | None:
        """What training from files reported; None: the rows were in memory."""
        return self._fitted.report

    @property
    def n_rows_clipped_(self) -> int | None:
        """How many rows of the last fit have a standardized number that was clipped; equal rows in memory count once.
        None: see `report_`."""
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


def _warn(notes: list[str], fitted: Fitted) -> None:
    """Show what the user of `fit` or `partial_fit` should know."""
    if fitted.clipped:
        rows = counted(fitted.clipped, "row has a number", "rows have a number")
        clipped = f"{rows} beyond {LARGEST_NUMBER:g} standard deviations, which was clipped there"
        notes = [*notes, f"{clipped}. Are such numbers right? Then take the logarithms of their columns"]
    for note in notes:
        warnings.warn(python_words(note), StreamWarning, stacklevel=4)
