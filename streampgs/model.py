"""A trained model, read from a run: weights, and what they say about rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.checks import decode, understanding
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.errors import DataError, OptionError, RunError
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.options import Limits, ModelOptions
from streampgs.order.cursor import Cursor
from streampgs.reading.placing import LARGEST_INDEX
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.selection.race import Race
from streampgs.table.layout import Columns, find_layout, refuse_missing

Vector = NDArray[np.float64]
_BATCH_ROWS = 1 << 13


@dataclass(frozen=True, repr=False)
class Model:
    coef_: Vector
    """One number a feature; of several classes or labels: a row for each."""
    intercept_: float | Vector
    options: ModelOptions
    settings: LaneSpec
    """Of the best candidate (of its first target)."""
    targets: tuple[str, ...]
    """The classes of more than two, or the labels of several."""
    steps: int
    rows: int
    checkpoint: Path
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""
    paused: str | None = None
    """Where training stands, if it was paused before its limit."""
    encoding: Encoding | None = None
    """How columns of tables become features; None: rows hold features."""

    @staticmethod
    def load(run: str | Path) -> Model:
        """The model of a run's newest sound checkpoint; of several candidates the best."""
        folder = RunFolder(Path(run))
        checkpoint = newest_checkpoint(Path(run))
        race = race_from(checkpoint)
        with understanding(checkpoint.path):
            record = folder.run_record().as_of(checkpoint.sections["run"])
            rows = int(checkpoint.sections["meter"].values["rows"])
            paused = _paused(record.limits, decode(Cursor, checkpoint.sections["worker"].values["cursor"]).epoch, run)
        lanes, leading = race.lanes, race.leading_lanes()
        predictors = [lanes.predictor(lane) for lane in leading]
        intercepts = np.array([constant for _, constant in predictors])
        single = len(leading) == 1
        return Model(
            predictors[0][0] if single else np.stack([weights for weights, _ in predictors]),
            float(intercepts[0]) if single else intercepts,
            record.options,
            lanes.specs[leading.start],
            tuple(target.name for target in race.targets),
            lanes.steps,
            rows,
            checkpoint.path,
            tuple(f"{path.name} ({why})" for path, why in checkpoint.damaged),
            paused,
            folder.encoding(record.encoding),
        )

    def __repr__(self) -> str:
        what = f"{self.settings.loss}, {self.features:,} features, {self.rows:,} rows"
        return f"<Model of {self.checkpoint.parent}: {what}>"

    @property
    def layout(self) -> str:
        return self.settings.layout

    def name_of(self, feature: int) -> str:
        """What a feature is called, as far as it is known."""
        return self.encoding.name_of(feature) if self.encoding is not None else str(feature)

    def sign_of(self, feature: int) -> int:
        """Of the value that a feature has where it is present."""
        return self.encoding.sign_of(feature) if self.encoding is not None else 1

    @property
    def features(self) -> int:
        return int(self.coef_.shape[-1])

    @property
    def classifies(self) -> bool:
        return self.options.classifies

    @property
    def classes_(self) -> NDArray[Any] | None:
        """What `predict` chooses from; None for a regression."""
        if not self.classifies:
            return None
        return np.array(self.options.classes if self.options.classes is not None else (-1.0, 1.0))

    def decision_function(self, rows: Any) -> Vector:
        """<w, x> + b for each row of an array or of a scipy sparse matrix; features never seen count as nothing. A model
        of an ordinary table takes such tables, of pyarrow, polars, pandas, DuckDB, …, or an iterator of record batches, by
        the names of their columns.

        With several classes or labels: a column for each.
        """
        if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__next__") or isinstance(rows, pa.RecordBatch):
            return self._table_scores(rows)
        if hasattr(rows, "tocsr"):
            matrix = rows.tocsr()
            known = min(matrix.shape[1], self.features)
            return np.asarray(matrix[:, :known] @ self.coef_[..., :known].T + self.intercept_)
        array = np.atleast_2d(np.asarray(rows))
        if array.shape[1] != self.features:
            raise OptionError(
                f"rows of {array.shape[1]} features for a model of {self.features}",
                "give the features it was trained on",
            )
        return np.asarray(array @ self.coef_.T + self.intercept_)

    def _table_scores(self, rows: Any) -> Vector:
        if self.encoding is None:
            raise OptionError(
                "a table for a model of rows of features", "give an array or a scipy sparse matrix of its features"
            )
        batches = iter([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not isinstance(batches, Iterator) or hasattr(batches, "__arrow_c_stream__"):
            batches = pa.RecordBatchReader.from_stream(batches)
        encoder, schema = Encoder(self.encoding), None
        scores, first = [np.empty((0, *self.coef_.shape[:-1]))], 0
        for batch in batches:
            if batch.schema != schema:
                columns = Columns(None, None, encoding=self.encoding)
                find_layout(batch.schema, columns, "the table")
                refuse_missing({"the table": batch.schema}, columns)
                schema = batch.schema
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                scores.append(self._encoded_scores(encoder, part, first + start))
            first += batch.num_rows
        return np.concatenate(scores)

    def _encoded_scores(self, encoder: Encoder, batch: pa.RecordBatch, first: int) -> Vector:
        from scipy.sparse import csr_matrix

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        faults = np.zeros(batch.num_rows, np.uint8)
        offsets, indices, values = encoder.entries(columns, batch.num_rows, faults)
        rows = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
        faulty = [np.flatnonzero(faults), rows[~np.isfinite(values)]]
        if encoder.encoding.unbounded:  # what the rows of shards are checked for, where they are placed
            faulty += [rows[indices > LARGEST_INDEX], _rows_with_repeats(rows, indices)]
        row = min((int(found.min()) for found in faulty if found.size), default=None)
        if row is not None:
            raise DataError(
                f"row {first + row}: a feature is NaN or infinite, a list of another length, or an index negative, null, "
                "too large or there twice",
                "mend it",
            )
        known = indices < self.features
        matrix = csr_matrix(
            (values[known].astype(np.float64), (rows[known], indices[known].astype(np.int64))),
            shape=(batch.num_rows, self.features),
        )
        return np.asarray(matrix @ self.coef_.T + self.intercept_)

    def predict(self, rows: Any) -> NDArray[Any]:
        """Classes, or the values of a regression; with several labels: a column for each."""
        return self.predictions(self.decision_function(rows))

    def predict_proba(self, rows: Any) -> Vector:
        """A column for each class: -1 and +1, or as in `classes_`. With several labels: of +1, a column for each."""
        found = self.probabilities(self.decision_function(rows))
        if found is None:
            raise OptionError(
                f"a model of loss {self.settings.loss} has no probabilities",
                "train with --loss logistic or modified-huber",
            )
        return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found

    def predictions(self, scores: Vector) -> NDArray[Any]:
        if self.options.classes is not None:
            chosen = scores.argmax(axis=1) if self.options.multiclass else (scores > 0.0).astype(np.intp)
            return np.asarray(np.array(self.options.classes)[chosen])
        return np.where(scores > 0.0, 1.0, -1.0) if self.classifies else scores

    def probabilities(self, scores: Vector) -> Vector | None:
        """Of the positive class, or of each class, so that they add up to 1; None where the loss estimates none."""
        if self.settings.loss == "logistic":
            shrunk = np.exp(-np.abs(scores))
            positive = np.where(scores >= 0.0, 1.0, shrunk) / (1.0 + shrunk)
        elif self.settings.loss == "modified-huber":
            positive = np.clip((scores + 1.0) / 2.0, 0.0, 1.0)
        else:
            return None
        if not self.options.multiclass:
            return positive
        total = positive.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, positive / np.where(total > 0.0, total, 1.0), 1.0 / positive.shape[1])


def _rows_with_repeats(rows: NDArray[np.int64], indices: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Rows that name an index twice."""
    keys = np.sort((rows.astype(np.uint64) << np.uint64(32)) | indices)
    return np.asarray(keys[1:][keys[1:] == keys[:-1]] >> np.uint64(32), np.int64)


def _paused(limits: Limits, epoch: int, run: str | Path) -> str | None:
    if limits.epochs is None or limits != Limits(epochs=limits.epochs) or epoch >= limits.epochs:
        return None
    return f"training was paused in epoch {epoch + 1} of {limits.epochs}; continue with: streampgs resume {run}"


def newest_checkpoint(run: Path) -> Checkpoint:
    folder = RunFolder(run)
    record = folder.record()
    checkpoint = folder.newest_checkpoint()
    if checkpoint is None or "lanes" not in checkpoint.sections:
        resume = f"streampgs resume {run}" if record.get("stream") is None else f"producer | streampgs resume {run} -"
        raise RunError(f"run '{run}' has no model yet", f"let it train on: {resume}")
    return checkpoint


def race_from(checkpoint: Checkpoint) -> Race:
    """The race and its lanes."""
    race = Race(Lanes())
    checkpoint.restore(race.lanes)
    checkpoint.restore(race)
    return race
