"""Fits: from rows, labels and weights to a model, in memory or by a run. A fit that fails leaves the result of the one before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
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
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.leaks import leak_notes
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.encoding.rows import OFFSET, WEIGHT, RowBlock, label_name
from streampgs.expressions.expression import columns_by_name
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.model.model import Model
from streampgs.model.scoring import TABLE
from streampgs.options.commands import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.options.fields import options_of
from streampgs.options.solvers import SOLVERS
from streampgs.packing.shards import write_shards
from streampgs.python.api import train
from streampgs.python.estimators.features import (
    FeatureRows,
    Features,
    features_of_matrix,
    features_of_table,
    is_arrow,
    is_sparse,
    is_table,
    joined,
    matrix_of,
    numbers_of,
    of_encoding,
    sample_of,
)
from streampgs.run.in_memory import MemoryTraining
from streampgs.run.report import Report
from streampgs.selection.representation import chosen_encoding

_HORIZON = 100_000
"""The number of rows for which partial_fit chooses sigma: how many will come is not known."""
_NONE = np.empty(0)


@dataclass(frozen=True)
class Chosen:
    """The options of an estimator, as `streampgs.train` has them."""

    classes: int
    """0: the labels are numbers."""
    model: ModelOptions
    encoding: EncodingOptions
    limits: Limits
    resources: Resources


@dataclass(frozen=True)
class Given:
    """What a user gave: a matrix of numbers, a sparse matrix in CSR form or a table, with a label and a weight for each row."""

    rows: Any
    labels: NDArray[Any]
    """As they were given, then numbers of classes or the numbers to predict."""
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
        usual, others = (
            EncodingOptions(numbers="linear", find_crosses="off"),
            options_of(EncodingOptions).keys() - {"standardize"},
        )
        chosen = sorted(name for name in others if getattr(options, name) != getattr(usual, name))
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
            each = (np.ones(len(one.labels)) if one.weights is None else one.weights for one in (self, more))
            weights = np.concatenate([*each])
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
            scores = self.features.scores(rows, self.weights) + self.constants
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


def fitted_in_memory(given: Given, chosen: Chosen) -> Fitted:
    return _fitted(None, given, chosen, None)


def continued(before: Fitted | None, given: Given, chosen: Chosen) -> Fitted:
    """After one pass over more rows."""
    if before is not None and (before.features is None or before.training is None):
        raise InvalidInput(
            "partial_fit after a fit that trained from files",
            "continue with resume(), or start with partial_fit on a new estimator",
        )
    return _fitted(before, given, chosen, _HORIZON)


def _fitted(before: Fitted | None, given: Given, chosen: Chosen, horizon: int | None) -> Fitted:
    """`horizon`: the number of rows to choose sigma for; None: these rows are all, and are visited until a limit."""
    options, trained = chosen.model, None if before is None else before.training
    features, rows, visited = _visited(given, None if before is None else before.features, chosen)
    # The encoding does not tell how many kernel features a row has.
    encoding = features.encoding if features.kernel is None else None
    form = RowForm(options.without_kernel(), encoding, features.layout)
    training = MemoryTraining(form) if trained is None else trained.copied(form)
    if horizon is None:
        limits = chosen.limits.or_default(len(visited), SOLVERS[options.solver].needs)
    else:
        limits = Limits(epochs=training.cursor.epoch + 1)
    training.train(visited, limits, horizon)
    shifted = given.offsets is not None
    weights, constants = training.predictor()
    return Fitted(
        training.leader, weights, constants, features, training=training, clipped=rows.clipped, shifted=shifted
    )


def _visited(given: Given, known: Features | None, chosen: Chosen) -> tuple[Features, FeatureRows, Rows]:
    """The rows in the order of their contents, one for each different content. Rows of a table are compared after they were
    encoded: until then all of them are there."""
    order = None if is_arrow(given.rows) else _distinct(given, given.rows)
    picks = None if order is None else order.picks
    features = known or _learned(given, picks, chosen).with_kernel(given.rows, picks, chosen.model)
    rows = joined(features.rows(given.rows, picks), len(given.labels) if picks is None else len(picks), features)
    if order is None:
        order = _distinct(given, features.matrix(rows))
        picks = order.picks
    else:
        picks = np.arange(len(order.picks))
    return features, rows, _memory_rows(given, rows, order, picks, chosen.classes)


def _distinct(given: Given, matrix: Any) -> Distinct:
    if is_sparse(matrix):
        keys = sparse_keys(np.asarray(matrix.indptr, np.int64), matrix.indices, matrix.data)
    else:
        keys = dense_keys(matrix)
    keys = keys if given.offsets is None else with_numbers(keys, given.offsets)
    return distinct(keys, given.labels, given.weights)


def _learned(given: Given, picks: NDArray[np.int64] | None, chosen: Chosen) -> Features:
    """`picks`: the rows in the order of their contents; None for a table."""
    if picks is not None:
        return features_of_matrix(given.rows, picks, chosen.encoding)
    options = chosen.encoding
    if options.numbers != "auto" and options.find_crosses != "auto":
        return features_of_table(given.rows, given.counted, options)
    sample = _SampleOfGiven(given, chosen, sample_of(given.rows, given.counted, options))
    first = sample.learned(replace(options, numbers="curves") if options.numbers == "auto" else options)
    return of_encoding(chosen_encoding(options, chosen.model, sample, first)[0])


@dataclass(frozen=True)
class _SampleOfGiven:
    given: Given
    chosen: Chosen
    batches: Sequence[Arrays]

    def learned(self, options: EncodingOptions) -> Encoding:
        return learn(plan_columns(self.given.rows.schema, options, {}, TABLE), options, self.batches)

    def rows(self, encoding: Encoding, most: int) -> tuple[Rows, list[Arrays]]:
        given, features = self.given, of_encoding(encoding)
        some = given.counted[:: -(-len(given.counted) // most)]
        table = given.rows.take(some)
        rows = joined(features.rows(table), len(some), features)
        labels = given.labels[some]
        labels = 2.0 * labels - 1.0 if self.chosen.classes == 2 else labels
        weights, offsets = (None if one is None else one[some] for one in (given.all_weights, given.offsets))
        rows = replace(rows, labels=labels, weights=_or_none(weights), offsets=_or_none(offsets))
        return rows, [columns_by_name(batch) for batch in table.to_batches()]


def _or_none(cells: Floats | None) -> Floats:
    return _NONE if cells is None else cells


def _memory_rows(given: Given, rows: Rows, order: Distinct, picks: NDArray[np.int64], classes: int) -> Rows:
    """`picks`: the place in `rows` of each different row. `classes`: 0 for numbers."""
    times = visits(order.weights)
    repeated = np.repeat(np.arange(len(times)), times)
    picks, of_given = picks[repeated], order.picks[repeated]
    labels, weights = given.labels[of_given], (order.weights / times)[repeated]
    if given.factors is not None:
        weights = weights * given.factors[labels.astype(np.intp)]
    weights = weights / weights.mean()
    targets = 2.0 * labels - 1.0 if classes == 2 else labels
    return Rows(
        rows.starts[picks], rows.stops[picks], rows.indices, rows.values, np.asarray(targets, np.float64),
        _NONE if (weights == 1.0).all() else weights,
        _NONE if given.offsets is None else given.offsets[of_given], features=rows.features,
    )  # fmt: skip


def column_notes(given: Given, chosen: Chosen) -> list[str]:
    """What the user may have overlooked in the columns of a table."""
    if given.table is None:
        return []
    label = "y"
    while label in given.table.column_names:
        label += "_"
    sample = sample_of(given.table.append_column(label, pa.array(given.labels)), given.counted, chosen.encoding)
    columns = plan_columns(given.table.schema, chosen.encoding, {}, TABLE).columns
    spec = LabelSpec(tuple(map(float, range(chosen.classes))) or None)
    return [*hints(columns, sample), *leak_notes(columns, [(label, spec)], chosen.classes > 0, sample)]


# By a run: on shards that the user names, or on rows that are too many for the memory budget.


def fitted_to_shards(shards: Any, run: str | Path | None, options: dict[str, Any]) -> Fitted:
    """The model of a run on shards. Without a folder for the run, it is removed when training has ended."""
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        place = Path(folder) / "run" if run is None else Path(run)
        report = train(shards, run=place, **options)
        return fitted_to_run(Model.load(place), report)


def fitted_to_run(model: Model, report: Report) -> Fitted:
    constants = np.atleast_1d(np.asarray(model.intercept_, np.float64))
    return Fitted(model.settings, np.atleast_2d(model.coef_), constants, None, model, report=report)


def fitted_from_files(given: Given, chosen: Chosen, options: dict[str, Any]) -> Fitted:
    """Train on rows that are written to temporary files first, as features: what becomes of columns is the same as in
    memory."""
    picks = None if is_arrow(given.rows) else _distinct(given, given.rows).picks
    features, clipped = _learned(given, picks, chosen), list[int]()
    columns = {"label": label_name(0), "weight": WEIGHT, "offset": OFFSET}
    absent = [name for name, cells in (("weight", given.all_weights), ("offset", given.offsets)) if cells is None]
    options = {name: value for name, value in options.items() if name not in options_of(EncodingOptions)}
    options |= {name: column for name, column in columns.items() if name not in absent}
    options |= {"standardize": "off", "feature_count": features.features, "progress": False}
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        write_shards(_batches(given, features, clipped), Path(folder))
        fitted = fitted_to_shards(folder, None, options)
    assert fitted.model is not None
    features, shifted = replace(features, kernel=fitted.model.kernel), given.offsets is not None
    return replace(fitted, features=features, model=None, clipped=sum(clipped), shifted=shifted)


def _batches(given: Given, features: Features, clipped: list[int]) -> Iterator[pa.RecordBatch]:
    weights, offsets, counted = given.all_weights, given.offsets, np.zeros(len(given.labels), np.bool_)
    counted[given.counted] = True
    if weights is not None:
        weights = weights / weights[counted].mean()  # as in memory: sigma is for rows of weight 1
    first, is_dense = 0, features.layout == "dense"
    for rows in features.rows(given.rows):
        cut = slice(first, first + len(rows))
        block = RowBlock(
            np.zeros(len(rows), np.uint8), given.labels[cut, np.newaxis], _NONE if weights is None else weights[cut],
            _NONE if offsets is None else offsets[cut], rows.bounds, None if is_dense else rows.indices,
            rows.values, features.features if is_dense else None,
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
