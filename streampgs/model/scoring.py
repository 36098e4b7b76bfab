"""Scores of rows. Rows in memory are encoded, checked and copied into a window in batches; rows of shards get into windows by
the loader, block by block in the order of the files. From a window on both ways are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.data.feature_maps import FeatureMap, RowMap
from streampgs.kernels.placing_loop import score_rows
from streampgs.kernels.rows import Rows
from streampgs.losses import Vector
from streampgs.reading.batches import BatchEncoder
from streampgs.reading.expected_rows import ExpectedRows
from streampgs.reading.loader import one_pass
from streampgs.reading.other_columns import OtherColumns
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.table.catalog import Catalog, catalog_of, none_selected, surveyed_shards
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
    weights: Vector, intercept: float | Vector, window: Rows, sparse: bool, row_map: RowMap | None = None
) -> Vector:
    """The score of each row of a window; with several classes or labels a column for each."""
    if isinstance(row_map, FeatureMap):
        pieces = [window_scores(weights, intercept, piece, False) for piece in row_map.pieces(window)]
        return np.concatenate([np.empty((0, *weights.shape[:-1])), *pieces])
    if row_map is not None:
        window = row_map.mapped(window)
    vectors, intercepts = np.atleast_2d(weights), np.atleast_1d(intercept)
    scores = np.empty((len(vectors), len(window)))
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
    scores = np.concatenate([np.empty((0, *model.weights.shape[:-1])), *_scores_of_batches(model, batches, columns)])
    return scores if shift is None else scores + (shift[..., np.newaxis] if scores.ndim > 1 else shift)


def _scores_of_batches(model: Model, batches: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[Vector]:
    encoder, schema, first = None, None, 0
    for batch in batches:
        if encoder is None or batch.schema != schema:
            schema = batch.schema
            encoder = _encoder(model, schema, columns)
        for start in range(0, batch.num_rows, encoder.batch_rows):
            window = encoder.window(batch.slice(start, encoder.batch_rows), first + start)
            yield window_scores(model.weights, model.intercept_, window, model.layout == SPARSE, model.row_map)
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


_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class ScoredBlock:
    scores: Vector
    """The score of each row in the window; for several classes or labels a column for each."""
    window: Window
    others: Iterable[pa.RecordBatch] = ()
    """Other columns of all rows of the block, also of those that were left out of the window; in several batches if they
    have many bytes. They can be read once."""

    @property
    def all_rows(self) -> int:
        return self.window.requested_rows

    def kept_others(self) -> Iterator[pa.RecordBatch]:
        """The other columns of the rows in the window."""
        kept, first = self.window.kept, 0
        for part in self.others:
            yield part if kept is None else part.filter(pa.array(kept[first : first + part.num_rows]))
            first += part.num_rows


class ShardScores:
    """The scores of a model for the rows of shards."""

    def __init__(
        self,
        model: Model,
        sources: Sequence[str],
        columns: Columns,
        skip_bad_rows: bool = False,
        others: Sequence[str] = (),
        keep_unknown: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        """`others`: columns to read besides; `keep_unknown`: labels of unknown classes become NaN; `may_be_empty`: a table
        without rows is accepted."""
        self._model, self._sources, self._rows, self._may_be_empty = model, sources, 0, may_be_empty
        surveyed = surveyed_shards(sources, columns)
        shards = [one.shard for one in surveyed]
        self.catalog = Catalog([]).appended(shards) if may_be_empty else catalog_of(shards, sources)
        for layout in {shard.layout for shard in self.catalog.shards}:
            check_layout(layout, model.layout, model.features, "the shards hold rows")
        width = None if self._sparse else model.features
        self._rules = RowRules(columns, model.classifies, skip_bad_rows, width, keep_unknown)
        self._others = OtherColumns.find(surveyed, others, columns.where) if others else None

    @property
    def _sparse(self) -> bool:
        return self.catalog.kind == SPARSE

    @property
    def others(self) -> pa.Schema:
        """The schema of the other columns."""
        return self._others.schema if self._others is not None else pa.schema([])

    def selection(self, where: str | None) -> dict[str, Any]:
        """The condition, and how many rows of the blocks so far do not fulfil it."""
        if where is None:
            return {}
        if not (self._rows or self._may_be_empty):
            raise none_selected(self.catalog.rows, self._sources, where)
        return {"where": where, "left_out": self.catalog.rows - self._rows}

    def blocks(self) -> Iterator[ScoredBlock]:
        """A block is valid until the next one is asked for."""
        model, self._rows = self._model, 0
        if not self.catalog.rows:
            return
        with one_pass(self.catalog, self._rules) as filler:
            taker = self._others.rows(filler.catalog, self._rules.columns.where) if self._others is not None else None
            for window in filler.in_file_order(_BLOCK_BYTES):
                self._rows += window.requested_rows
                scores = window_scores(model.weights, model.intercept_, window, self._sparse, model.row_map)
                block = ScoredBlock(scores, window)
                yield block if taker is None else replace(block, others=taker.take(block.all_rows))
