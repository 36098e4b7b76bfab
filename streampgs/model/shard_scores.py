"""Scores of the rows of shards, block by block in the order of the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streampgs.losses import Vector
from streampgs.model.model import Model
from streampgs.model.scoring import check_layout, window_scores
from streampgs.reading.loader import one_pass
from streampgs.reading.other_columns import OtherColumns
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.table.catalog import Catalog, catalog_of, located_shards, none_selected, survey
from streampgs.table.layout import SPARSE, Columns, refuse_missing

_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class ScoredBlock:
    scores: Vector
    """Of each row in the window; of several classes or labels a column for each."""
    window: Window
    others: Iterable[pa.RecordBatch] = ()
    """Other columns of all rows of the block, also of those that were left out of the window; in several batches if they
    have many bytes. They can be read once."""

    @property
    def all_rows(self) -> int:
        return self.window.rows if self.window.kept is None else len(self.window.kept)

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
        without rows is no error."""
        self._model, self._sources, self._rows, self._may_be_empty = model, sources, 0, may_be_empty
        located = located_shards(sources)
        surveyed = survey(located.paths, columns, located.logs)
        refuse_missing({str(one.shard.path): one.whole_schema for one in surveyed}, columns)
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
        """Of the other columns."""
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
                self._rows += window.rows if window.kept is None else len(window.kept)
                scores = window_scores(model.coef_, model.intercept_, window, self._sparse, model.kernel)
                block = ScoredBlock(scores, window)
                yield block if taker is None else replace(block, others=taker.take(block.all_rows))
