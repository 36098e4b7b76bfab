"""Fits: from rows, labels and weights to a model, in memory or by a run. A fit that fails leaves the result of the one before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, InvalidInput
from streampgs.data.distinct import Distinct, Floats, dense_keys, distinct, sparse_keys, visits, with_numbers
from streampgs.data.open import hints
from streampgs.data.row_form import RowForm
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.leaks import leak_notes
from streampgs.encoding.plan import plan_columns
from streampgs.encoding.rows import OFFSET, WEIGHT, RowBlock, label_name
from streampgs.kernels.rows import Rows as RowsToVisit
from streampgs.learn.lane_spec import LaneSpec
from streampgs.model.model import Model
from streampgs.model.scoring import TABLE
from streampgs.options.commands import EncodingOptions, Limits, ModelOptions
from streampgs.options.fields import options_of
from streampgs.options.solvers import SOLVERS
from streampgs.packing.shards import write_shards
from streampgs.python.api import train
from streampgs.python.estimators.features import (
    Features,
    Rows,
    features_of_matrix,
    features_of_table,
    is_arrow,
    is_sparse,
    is_table,
    joined,
    matrix_of,
    numbers_of,
    sample_of,
)
from streampgs.run.in_memory import MemoryTraining
from streampgs.run.report import Report

_HORIZON = 100_000
"""The number of rows for which partial_fit chooses sigma: how many will come is not known."""
_NONE = np.empty(0)


@dataclass(frozen=True)
class Given:
    """What a user gave: a matrix of numbers, a sparse matrix in CSR form or a table, with a label and a weight for each row."""

    rows: Any
    labels: Floats
    """Numbers of classes, or the numbers to predict."""
    weights: Floats | None
    offsets: Floats | None
    factors: Floats | None = None
    """By which the weights of the rows of each class are multiplied."""
    table: pa.Table | None = None
    """The rows as columns with names, if they were given so."""

    @property
    def counted(self) -> NDArray[np.int64]:
        """The rows whose weight is not 0."""
        return np.arange(len(self.labels)) if self.weights is None else np.flatnonzero(self.weights > 0.0)

    @property
    def all_weights(self) -> Floats | None:
        """The weights of the rows, times those of their classes."""
        if self.factors is None:
            return self.weights
        found = self.factors[self.labels.astype(np.intp)]
        return found if self.weights is None else found * self.weights

    def as_features(self, options: EncodingOptions, known: Features | None) -> Given:
        """A table of numbers becomes a matrix, unless options choose columns. `known`: the features of the fit before."""
        usual = EncodingOptions()
        chosen = [name for name in options_of(EncodingOptions) if getattr(options, name) != getattr(usual, name)]
        chosen = [name for name in chosen if name != "standardize"]
        if not is_arrow(self.rows):
            if chosen:
                raise DataError(f"{chosen[0]}=… with rows that have no named columns", "leave it out, or give a table")
            return self
        as_table = bool(chosen) if known is None else known.takes_tables
        numbers = None if as_table else numbers_of(self.rows)
        return replace(self, rows=self.rows if numbers is None else numbers, table=self.rows)

    def and_then(self, more: Given) -> Given:
        """The rows of both, as they were given."""
        weights = None
        if self.weights is not None or more.weights is not None:
            weights = np.concatenate(
                [np.ones(len(each.labels)) if each.weights is None else each.weights for each in (self, more)]
            )
        shifted = self.offsets is not None and more.offsets is not None
        offsets = np.concatenate([self.offsets, more.offsets]) if shifted else None
        labels = np.concatenate([self.labels, more.labels])
        return Given(_stacked(self.rows, more.rows), labels, weights, offsets)


def _stacked(first: Any, second: Any) -> Any:
    if is_arrow(first) and is_arrow(second):
        try:
            return pa.concat_tables([first, second], promote_options="permissive")
        except pa.ArrowException as fault:
            raise DataError(
                f"columns of other types than in the call before: {fault}",
                "give the columns of all calls the same types",
            ) from fault
    first, second = matrix_of(first), matrix_of(second)
    if is_sparse(first):
        from scipy.sparse import csr_array, vstack

        return vstack([first, csr_array(second)], format="csr")
    return np.concatenate([first, second.toarray() if is_sparse(second) else second])


@dataclass(frozen=True)
class Fitted:
    leader: LaneSpec
    """The best candidate's spec for its first target."""
    weights: Floats
    """A row for each target."""
    constants: Floats
    features: Features | None
    """None: the model of the run reads the rows."""
    model: Model | None = None
    """The model of a run on shards."""
    training: MemoryTraining | None = None
    """For partial_fit; None: it was in a run."""
    report: Report | None = None
    """The report of the run; None: the rows were in memory."""
    clipped: int | None = None
    """How many different rows have a number that was clipped; None: the report knows."""
    shifted: bool = False
    """Whether rows have offsets."""
    waiting: Given | None = None
    """The rows of all calls of partial_fit, until they are enough to learn the columns from."""

    def scores(self, rows: Any, offsets: Any) -> Floats:
        """A column for each target."""
        if self.features is not None:
            scores = np.concatenate([part.scores(self.weights) for part in self.features.rows(rows)]) + self.constants
            return scores if offsets is None else scores + offsets[:, np.newaxis]
        assert self.model is not None
        rows = rows if is_table(rows) or hasattr(rows, "tocsr") else np.asarray(rows)
        scores = self.model.decision_function(rows, offsets)
        return scores.reshape(len(scores), -1)

    def in_units(self) -> tuple[Floats, Floats]:
        """Weights and constants for the columns as they were given, where each column is one feature."""
        features = self.features
        if features is None or features.encoding is None or features.takes_tables or features.kernel is not None:
            return self.weights, self.constants
        (column,) = features.encoding.columns
        weights = self.weights * np.asarray(column.scale)
        return weights, self.constants - weights @ np.asarray(column.centre)


# In memory.


def fitted_in_memory(
    given: Given, classes: int, options: ModelOptions, encoding_options: EncodingOptions, limits: Limits
) -> Fitted:
    """`classes`: 0 for numbers."""
    features, rows, visited = _visited(given, classes, None, options, encoding_options)
    training = MemoryTraining(_form(options, features))
    training.train(visited, limits.or_default(len(visited), SOLVERS[options.solver].needs))
    return _of_training(training, features, rows.clipped, given)


def continued(
    before: Fitted | None, given: Given, classes: int, options: ModelOptions, encoding_options: EncodingOptions
) -> Fitted:
    """After one pass over more rows."""
    if before is not None and (before.features is None or before.training is None):
        raise InvalidInput(
            "partial_fit after a fit that trained from files",
            "continue with resume(), or start with partial_fit on a new estimator",
        )
    known = None if before is None else before.features
    features, rows, visited = _visited(given, classes, known, options, encoding_options)
    form = _form(options, features)
    trained = None if before is None else before.training
    training = MemoryTraining(form) if trained is None else trained.copied(form)
    training.train(visited, Limits(epochs=training.cursor.epoch + 1), _HORIZON)
    return _of_training(training, features, rows.clipped, given)


def _visited(
    given: Given, classes: int, known: Features | None, options: ModelOptions, encoding_options: EncodingOptions
) -> tuple[Features, Rows, RowsToVisit]:
    """The rows in the order of their contents, one for each different content. Rows of a table are compared after they were
    encoded: until then all of them are there."""
    order = _order_of(given)
    picks = None if order is None else order.picks
    features = known or _learned(given, order, encoding_options).with_kernel(given.rows, picks, options)
    rows = joined(features.rows(given.rows, picks), len(given.labels) if picks is None else len(picks), features)
    if order is None:
        order = _distinct(given, _keys(rows))
        picks = order.picks
    else:
        picks = np.arange(len(order.picks))
    return features, rows, _memory_rows(given, rows, order, picks, classes)


def _order_of(given: Given) -> Distinct | None:
    """The order of the contents of the rows; None for a table."""
    rows = given.rows
    if is_arrow(rows):
        return None
    if is_sparse(rows):
        return _distinct(given, sparse_keys(np.asarray(rows.indptr, np.int64), rows.indices, rows.data))
    return _distinct(given, dense_keys(rows))


def _keys(rows: Rows) -> NDArray[np.uint64]:
    if rows.indices is None:
        return dense_keys(rows.values.reshape(len(rows), -1))
    return sparse_keys(rows.bounds, rows.indices, rows.values)


def _distinct(given: Given, keys: NDArray[np.uint64]) -> Distinct:
    keys = keys if given.offsets is None else with_numbers(keys, given.offsets)
    return distinct(keys, given.labels, given.weights)


def _learned(given: Given, order: Distinct | None, options: EncodingOptions) -> Features:
    if order is None:
        return features_of_table(given.rows, given.counted, options)
    return features_of_matrix(given.rows, order.picks, options)


def _memory_rows(given: Given, rows: Rows, order: Distinct, picks: NDArray[np.int64], classes: int) -> RowsToVisit:
    """`picks`: the place in `rows` of each different row. `classes`: 0 for numbers."""
    times = visits(order.weights)
    repeated = np.repeat(np.arange(len(times)), times)
    picks, of_given = picks[repeated], order.picks[repeated]
    labels, weights = given.labels[of_given], (order.weights / times)[repeated]
    if given.factors is not None:
        weights = weights * given.factors[labels.astype(np.intp)]
    weights = weights / weights.mean()
    targets = 2.0 * labels - 1.0 if classes == 2 else labels
    return RowsToVisit(
        rows.bounds[picks], rows.bounds[picks + 1],
        np.empty(0, np.uint32) if rows.indices is None else rows.indices,
        rows.values, np.asarray(targets, np.float64),
        _NONE if (weights == 1.0).all() else weights,
        _NONE if given.offsets is None else given.offsets[of_given], features=rows.features,
    )  # fmt: skip


def _form(options: ModelOptions, features: Features) -> RowForm:
    """The encoding does not tell how many kernel features a row has."""
    return RowForm(options.without_kernel(), features.encoding if features.kernel is None else None, features.layout)


def _of_training(training: MemoryTraining, features: Features, clipped: int, given: Given) -> Fitted:
    shifted = given.offsets is not None
    return Fitted(training.leader, *training.predictor(), features, training=training, clipped=clipped, shifted=shifted)


def column_notes(given: Given, classes: int, options: EncodingOptions) -> list[str]:
    """What the user may have overlooked in the columns of a table."""
    if given.table is None:
        return []
    label = "y"
    while label in given.table.column_names:
        label += "_"
    sample = sample_of(given.table.append_column(label, pa.array(given.labels)), given.counted, options)
    columns = plan_columns(given.table.schema, options, {}, TABLE).columns
    spec = LabelSpec(tuple(map(float, range(classes))) or None)
    return [*hints(columns, sample), *leak_notes(columns, [(label, spec)], classes > 0, sample)]


# By a run: on shards that the user names, or on rows that are too many for the memory budget.


def fitted_to_shards(shards: Any, run: str | Path | None, options: dict[str, Any]) -> Fitted:
    return fitted_to_run(*_trained_run(shards, run, options))


def fitted_to_run(model: Model, report: Report) -> Fitted:
    return Fitted(model.settings, *_weights_of(model), None, model, report=report)


def fitted_from_files(given: Given, encoding_options: EncodingOptions, options: dict[str, Any]) -> Fitted:
    features = _learned(given, _order_of(given), encoding_options)
    model, report, clipped = _trained_from_files(given, features, options)
    features, shifted = replace(features, kernel=model.kernel), given.offsets is not None
    return Fitted(model.settings, *_weights_of(model), features, report=report, clipped=clipped, shifted=shifted)


def _weights_of(model: Model) -> tuple[Floats, Floats]:
    return np.atleast_2d(model.coef_), np.atleast_1d(np.asarray(model.intercept_, np.float64))


def _trained_run(data: Any, run: str | Path | None, options: dict[str, Any]) -> tuple[Model, Report]:
    """The model of a run on shards. Without a folder for the run, it is removed when training has ended."""
    if run is not None:
        report = train(data, run=run, **options)
        return Model.load(run), report
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        report = train(data, run=Path(folder) / "run", **options)
        return Model.load(Path(folder) / "run"), report


def _trained_from_files(given: Given, features: Features, options: dict[str, Any]) -> tuple[Model, Report, int]:
    """Train on rows that are written to temporary files first, as features: what becomes of columns is the same as in
    memory. The last number is that of rows with a clipped number."""
    clipped: list[int] = []
    columns = {"label": label_name(0), "weight": WEIGHT, "offset": OFFSET}
    absent = [name for name, cells in (("weight", given.all_weights), ("offset", given.offsets)) if cells is None]
    options = {name: value for name, value in options.items() if name not in options_of(EncodingOptions)}
    options |= {name: column for name, column in columns.items() if name not in absent}
    options |= {"standardize": "off", "feature_count": features.features, "progress": False}
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        write_shards(_batches(given, features, clipped), Path(folder) / "rows")
        return *_trained_run(str(Path(folder) / "rows"), None, options), sum(clipped)


def _batches(given: Given, features: Features, clipped: list[int]) -> Iterator[pa.RecordBatch]:
    weights, offsets, counted = given.all_weights, given.offsets, np.zeros(len(given.labels), np.bool_)
    counted[given.counted] = True
    if weights is not None:
        weights = weights / weights[counted].mean()  # as in memory: sigma is for rows of weight 1
    first = 0
    for rows in features.rows(given.rows):
        cut = slice(first, first + len(rows))
        block = RowBlock(
            np.zeros(len(rows), np.uint8), given.labels[cut, np.newaxis], _NONE if weights is None else weights[cut],
            _NONE if offsets is None else offsets[cut], rows.bounds, rows.indices, rows.values,
            features.features if rows.indices is None else None,
        )  # fmt: skip
        clipped.append(rows.clipped)
        first = cut.stop
        yield block.to_batch().drop_columns(["faults"]).filter(pa.array(counted[cut]))


def bytes_in_memory(given: Given) -> int:
    """What the rows take as the model reads them, about."""
    if is_arrow(given.rows):
        return int(given.rows.nbytes)
    if is_sparse(given.rows):
        return 8 * int(given.rows.nnz)
    return 4 * int(np.prod(given.rows.shape))
