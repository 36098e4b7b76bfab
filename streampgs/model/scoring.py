"""Scores of rows. Record batches in memory are encoded, checked and copied into a window. Rows of shards get into windows by
the loader. From a window on both ways are one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.data.feature_maps import FeatureMap
from streampgs.encoding.encoding import Encoding
from streampgs.kernels.placing_loop import score_rows
from streampgs.losses import Vector
from streampgs.reading.batches import BatchEncoder
from streampgs.reading.expected_rows import ExpectedRows
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.table.layout import SPARSE, Columns, Layout, find_layout, refuse_missing

TABLE = "the table"


def check_layout(layout: Layout, expected: str, features: int, rows: str) -> None:
    """Refuse rows that do not have the layout of the model, or dense ones of another width."""
    if layout.kind != expected:
        raise DataError(
            f"{rows} of {layout.kind} features; the model was trained on {expected} rows",
            "give tables of the layout it was trained on",
        )
    if layout.width is not None and layout.width != features:
        raise DataError(
            f"rows of {layout.width} features for a model of {features}", "give the features it was trained on"
        )


def window_scores(
    weights: Vector, intercept: float | Vector, window: Window, sparse: bool, kernel: FeatureMap | None = None
) -> Vector:
    """The score of each row of a window; with several classes or labels a column for each."""
    if kernel is not None:
        pieces = [window_scores(weights, intercept, piece, False) for piece in kernel.pieces(window)]
        return np.concatenate([np.empty((0, *weights.shape[:-1])), *pieces])
    vectors, intercepts = np.atleast_2d(weights), np.atleast_1d(intercept)
    scores = np.empty((len(vectors), window.rows))
    for vector, constant, into in zip(vectors, intercepts, scores, strict=True):
        score_rows(vector, float(constant), window.starts, window.stops, window.indices, window.values, sparse, into)
    if window.offsets.size:
        scores += window.offsets
    return scores[0] if weights.ndim == 1 else np.ascontiguousarray(scores.T)


@dataclass(frozen=True)
class Scorer:
    """<w, x> + b for rows in memory, plus the row's offset if the model was trained with offsets."""

    weights: Vector
    """A number for each feature; of several classes or labels: a row for each."""
    intercept: float | Vector
    encoding: Encoding | None
    offset_column: str | None
    layout: str
    """Of the rows that the model was trained on."""
    features: int
    """Of such rows."""
    kernel: FeatureMap | None = None

    def scores(self, rows: Any, offset: Any = None) -> Vector:
        """A score for each row; with several classes or labels a column for each. Features that the model does not know
        add nothing. The offsets of a table are in its offset column; for other rows they must be given."""
        expected = ExpectedRows(self.encoding, self.layout, self.features)
        named, batches = expected.batches(rows)
        if named and offset is not None:
            raise OptionError("offsets in addition to a table", "put them into the table's offset column")
        shift = None if named else self._checked(offset)
        columns = Columns(None, None, encoding=self.encoding, offset=self.offset_column if named else None)
        scores = np.concatenate([np.empty((0, *self.weights.shape[:-1])), *self._of_batches(batches, columns)])
        return scores if shift is None else scores + (shift[..., np.newaxis] if scores.ndim > 1 else shift)

    def _of_batches(self, batches: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[Vector]:
        encoder, schema, first = None, None, 0
        for batch in batches:
            if encoder is None or batch.schema != schema:
                schema = batch.schema
                encoder = self._encoder(schema, columns)
            for start in range(0, batch.num_rows, encoder.batch_rows):
                part = batch.slice(start, encoder.batch_rows)
                yield window_scores(
                    self.weights,
                    self.intercept,
                    encoder.window(part, first + start),
                    self.layout == SPARSE,
                    self.kernel,
                )
            first += batch.num_rows

    def _encoder(self, schema: pa.Schema, columns: Columns) -> BatchEncoder:
        layout = find_layout(schema, columns, TABLE)
        refuse_missing({TABLE: schema}, columns)
        check_layout(layout, self.layout, self.features, "rows")
        width = None if layout.kind == SPARSE else self.features
        return BatchEncoder(layout, RowRules(columns, False, False, width), lambda row: f"row {row}")

    def _checked(self, offset: Any) -> Vector | None:
        if offset is None and self.offset_column is not None:
            raise OptionError(
                f"rows without offsets, but the model was trained with `--offset {self.offset_column}`",
                "give offset=, a number for each row or one for all",
            )
        if offset is None:
            return None
        found = np.asarray(offset, np.float64)
        if not np.isfinite(found).all():
            raise DataError("an offset is NaN or infinite", "give finite offsets")
        return found
