"""Scores of rows. Record batches in memory are encoded, checked and copied into a window. Rows of shards get into windows by
the loader. From a window on both ways are one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.data.feature_maps import FeatureMap
from streampgs.kernels.placing_loop import score_rows
from streampgs.losses import Vector
from streampgs.reading.batches import BatchEncoder
from streampgs.reading.expected_rows import ExpectedRows
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.table.layout import SPARSE, Columns, Layout, find_layout, refuse_missing

if TYPE_CHECKING:
    from streampgs.model.model import Model

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


def scores_in_memory(model: Model, rows: Any, offset: Any = None) -> Vector:
    """<w, x> + b for each row, plus the row's offset if the model was trained with offsets; with several classes or labels a
    column for each. Features that the model does not know add nothing. The offsets of a table are in its offset column; for
    other rows they must be given."""
    named, batches = ExpectedRows(model.encoding, model.layout, model.features).batches(rows)
    if named and offset is not None:
        raise OptionError("offsets in addition to a table", "put them into the table's offset column")
    columns = Columns(None, None, encoding=model.encoding, offset=model.options.offset if named else None)
    shift = None if named else _checked(offset, model.options.offset)
    scores = np.concatenate([np.empty((0, *model.coef_.shape[:-1])), *_scores_of_batches(model, batches, columns)])
    return scores if shift is None else scores + (shift[..., np.newaxis] if scores.ndim > 1 else shift)


def _scores_of_batches(model: Model, batches: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[Vector]:
    encoder, schema, first = None, None, 0
    for batch in batches:
        if encoder is None or batch.schema != schema:
            schema = batch.schema
            encoder = _encoder(model, schema, columns)
        for start in range(0, batch.num_rows, encoder.batch_rows):
            window = encoder.window(batch.slice(start, encoder.batch_rows), first + start)
            yield window_scores(model.coef_, model.intercept_, window, model.layout == SPARSE, model.kernel)
        first += batch.num_rows


def _encoder(model: Model, schema: pa.Schema, columns: Columns) -> BatchEncoder:
    layout = find_layout(schema, columns, TABLE)
    refuse_missing({TABLE: schema}, columns)
    check_layout(layout, model.layout, model.features, "rows")
    width = None if layout.kind == SPARSE else model.features
    return BatchEncoder(layout, RowRules(columns, False, False, width), lambda row: f"row {row}")


def _checked(offset: Any, column: str | None) -> Vector | None:
    """`column`: of the offsets in training."""
    if offset is None and column is not None:
        raise OptionError(
            f"rows without offsets, but the model was trained with `--offset {column}`",
            "give offset=, a number for each row or one for all",
        )
    found = None if offset is None else np.asarray(offset, np.float64)
    if found is not None and not np.isfinite(found).all():
        raise DataError("an offset is NaN or infinite", "give finite offsets")
    return found
