"""The result of a fit: weights, and how rows are read for them. A fit that fails leaves the result of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import InvalidInput
from streampgs.data.distinct import Floats
from streampgs.data.open import hints
from streampgs.data.row_form import RowForm
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.leaks import leak_notes
from streampgs.encoding.plan import plan_columns
from streampgs.learn.lane_spec import LaneSpec
from streampgs.model.model import Model
from streampgs.model.scoring import TABLE
from streampgs.options.commands import EncodingOptions, Limits, ModelOptions
from streampgs.options.solvers import SOLVERS
from streampgs.python.estimators.features import Features, MatrixFeatures, is_table, sample_of
from streampgs.python.estimators.kernel import KernelFeatures, with_kernel
from streampgs.python.estimators.runs import trained_from_files
from streampgs.python.estimators.training import Given, Ordered
from streampgs.run.in_memory import MemoryTraining
from streampgs.run.report import Report

_HORIZON = 100_000
"""The number of rows for which partial_fit chooses sigma: how many will come is not known."""


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
    """Of a run on shards."""
    training: MemoryTraining | None = None
    """For partial_fit; None: it was in a run."""
    report: Report | None = None
    """Of the run; None: rows in memory."""
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
        encoding = self.features.encoding if isinstance(self.features, MatrixFeatures) else None
        if encoding is None:
            return self.weights, self.constants
        weights = self.weights * np.asarray(encoding.columns[0].scale)
        return weights, self.constants - weights @ np.asarray(encoding.columns[0].centre)


def fitted_in_memory(
    given: Given, classes: int, options: ModelOptions, encoding_options: EncodingOptions, limits: Limits
) -> Fitted:
    """`classes`: 0 for numbers."""
    ordered = Ordered.of(given)
    features = with_kernel(ordered.learned_features(encoding_options), ordered, options)
    training = MemoryTraining(_form(options, features))
    rows = ordered.rows(features)
    visited = ordered.memory_rows(rows, classes)
    training.train(visited, limits.or_default(len(visited), SOLVERS[options.solver].needs))
    return _of_training(training, features, rows.clipped, given)


def continued(
    before: Fitted | None, given: Given, classes: int, options: ModelOptions, encoding_options: EncodingOptions
) -> Fitted:
    """After one pass over more rows."""
    ordered = Ordered.of(given)
    if before is None:
        features = with_kernel(ordered.learned_features(encoding_options), ordered, options)
        training = MemoryTraining(_form(options, features))
    elif before.features is None or before.training is None:
        raise InvalidInput(
            "partial_fit after a fit that trained from files",
            "continue with resume(), or start with partial_fit on a new estimator",
        )
    else:
        features = before.features
        training = before.training.copied(_form(options, features))
    rows = ordered.rows(features)
    training.train(ordered.memory_rows(rows, classes), Limits(epochs=training.cursor.epoch + 1), _HORIZON)
    return _of_training(training, features, rows.clipped, given)


def fitted_from_files(given: Given, encoding_options: EncodingOptions, options: dict[str, Any]) -> Fitted:
    """From rows that are more than the memory budget holds."""
    features = Ordered.of(given).learned_features(encoding_options)
    model, report, clipped = trained_from_files(given, features, options)
    features = features if model.kernel is None else KernelFeatures(features, model.kernel)
    weights = np.atleast_2d(model.coef_), np.atleast_1d(np.asarray(model.intercept_, np.float64))
    shifted = given.offsets is not None
    return Fitted(model.settings, *weights, features, report=report, clipped=clipped, shifted=shifted)


def fitted_to_run(model: Model, report: Report) -> Fitted:
    weights = np.atleast_2d(model.coef_), np.atleast_1d(np.asarray(model.intercept_, np.float64))
    return Fitted(model.settings, *weights, None, model, report=report)


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


def _form(options: ModelOptions, features: Features) -> RowForm:
    return RowForm(options.without_kernel(), features.encoding, features.layout)


def _of_training(training: MemoryTraining, features: Features, clipped: int, given: Given) -> Fitted:
    shifted = given.offsets is not None
    return Fitted(training.leader, *training.predictor(), features, training=training, clipped=clipped, shifted=shifted)
