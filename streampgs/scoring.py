"""Scores of rows in memory: arrays, sparse matrices and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.errors import DataError, OptionError
from streampgs.losses import Vector
from streampgs.reading.placing import LARGEST_INDEX
from streampgs.table.layout import Columns, find_layout, refuse_missing

_BATCH_ROWS = 1 << 13


@dataclass(frozen=True)
class Scorer:
    """<w, x> + b, plus the row's offset if the model was trained with offsets."""

    weights: Vector
    """A number for each feature; of several classes or labels: a row for each."""
    intercept: float | Vector
    encoding: Encoding | None
    offset_column: str | None

    def scores(self, rows: Any, offset: Any = None) -> Vector:
        """A score for each row; with several classes or labels a column for each. Features that the model does not know
        add nothing. The offsets of a table are in its offset column; for other rows they must be given."""
        if _is_table(rows):
            if offset is not None:
                raise OptionError("offsets in addition to a table", "put them into the table's offset column")
            return np.concatenate([np.empty((0, *self.weights.shape[:-1])), *self._of_table(rows)])
        return self._shifted(self._of_matrix(rows), self._checked(offset))

    def _of_matrix(self, rows: Any) -> Vector:
        features = self.weights.shape[-1]
        if hasattr(rows, "tocsr"):
            matrix = rows.tocsr()
            known = min(matrix.shape[1], features)
            return np.asarray(matrix[:, :known] @ self.weights[..., :known].T + self.intercept)
        array = np.atleast_2d(np.asarray(rows))
        if array.shape[1] != features:
            raise OptionError(
                f"rows of {array.shape[1]} features for a model of {features}", "give the features it was trained on"
            )
        return np.asarray(array @ self.weights.T + self.intercept)

    def _checked(self, offset: Any) -> Vector | None:
        if offset is None and self.offset_column is not None:
            raise OptionError(
                f"rows without offsets, but the model was trained with --offset {self.offset_column}",
                "give offset=, a number for each row or one for all",
            )
        if offset is None:
            return None
        found = np.asarray(offset, np.float64)
        if not np.isfinite(found).all():
            raise DataError("an offset is NaN or infinite", "give finite offsets")
        return found

    @staticmethod
    def _shifted(scores: Vector, offset: Vector | None) -> Vector:
        if offset is None:
            return scores
        return scores + (offset[..., np.newaxis] if scores.ndim > 1 else offset)

    def _of_table(self, rows: Any) -> Iterator[Vector]:
        if self.encoding is None:
            raise OptionError(
                "a table, but the model was trained on rows of features", "give an array or a scipy sparse matrix"
            )
        batches = iter([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not isinstance(batches, Iterator) or hasattr(batches, "__arrow_c_stream__"):
            batches = pa.RecordBatchReader.from_stream(batches)
        encoder, schema, first = Encoder(self.encoding), None, 0
        columns = Columns(None, None, encoding=self.encoding, offset=self.offset_column)
        for batch in batches:
            if batch.schema != schema:
                find_layout(batch.schema, columns, "the table")
                refuse_missing({"the table": batch.schema}, columns)
                schema = batch.schema
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield self._of_batch(encoder, batch.slice(start, _BATCH_ROWS), first + start)
            first += batch.num_rows

    def _of_batch(self, encoder: Encoder, batch: pa.RecordBatch, first: int) -> Vector:
        from scipy.sparse import csr_matrix

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        faults = np.zeros(batch.num_rows, np.uint8)
        offsets, indices, values = encoder.entries(columns, batch.num_rows, faults)
        rows = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
        faulty = [np.flatnonzero(faults), rows[~np.isfinite(values)]]
        if encoder.encoding.unbounded:  # other encodings give no such index
            faulty += [rows[indices > LARGEST_INDEX], _rows_with_repeats(rows, indices)]
        row = min((int(found.min()) for found in faulty if found.size), default=None)
        if row is not None:
            raise DataError(
                f"row {first + row}: a feature is NaN or infinite, a list has another length, or an index is negative, "
                "null, too large or repeated",
                "fix the row",
            )
        features = self.weights.shape[-1]
        known = indices < features
        matrix = csr_matrix(
            (values[known].astype(np.float64), (rows[known], indices[known].astype(np.int64))),
            shape=(batch.num_rows, features),
        )
        scores = np.asarray(matrix @ self.weights.T + self.intercept)
        return self._shifted(scores, self._offsets_in(columns, first))

    def _offsets_in(self, columns: dict[str, pa.Array], first: int) -> Vector | None:
        if self.offset_column is None:
            return None
        found = types.floats_of(columns[self.offset_column])
        bad = np.flatnonzero(~np.isfinite(found))
        if bad.size:
            raise DataError(f"row {first + int(bad[0])}: an offset that is null or not finite", "fix the row")
        return found


def _is_table(rows: Any) -> bool:
    return hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__next__") or isinstance(rows, pa.RecordBatch)


def _rows_with_repeats(rows: NDArray[np.int64], indices: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Rows that have an index twice."""
    keys = np.sort((rows.astype(np.uint64) << np.uint64(32)) | indices)
    return np.asarray(keys[1:][keys[1:] == keys[:-1]] >> np.uint64(32), np.int64)
