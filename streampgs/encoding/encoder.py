"""Encode rows of a table's columns as rows of features; labels, weights and offsets become numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import Family, of_family
from streampgs.encoding.kinds.curve import Curve, next_knots
from streampgs.encoding.kinds.kind import (
    COMPACT,
    Arrays,
    BagKind,
    CodeKind,
    Column,
    Entries,
    NumberKind,
    RowMarks,
    is_there,
    joined,
)
from streampgs.encoding.kinds.vector import Vector
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.rows import RowBlock, checked_rows
from streampgs.kernels.encoder_loop import assembled_rows, codes_of_places, rows_from_columns, side_by_side, standardize
from streampgs.kernels.hashing import NO_CODE
from streampgs.kernels.jit import frozen

_LINE_PADDING = 16  # lines a power of two apart would all use the same cache lines


def warm_up(encoding: Encoding) -> None:
    """Compile the loops that encoding needs, or load them from their cache: tables and samples have different types."""
    numbers, nulls = frozen(np.empty(0)), frozen(np.empty(0, np.bool_))
    standardize(numbers, nulls, 0.0, 1.0, 1.0, np.empty(0, np.float32), np.empty(0, np.uint8))
    if of_family(encoding.columns, CodeKind):
        codes, places = np.empty(0, np.uint32), frozen(np.empty(0, np.int32))
        codes_of_places(codes, places, nulls, np.uint32(0), codes)


class Encoder:
    """Encodes batch after batch in one thread. With `reusing`, the rows of a batch are overwritten by the next one:
    allocating memory again and again costs as much as the encoding."""

    def __init__(self, encoding: Encoding, reusing: bool = False) -> None:
        self.encoding = encoding
        self._before = None if encoding.before is None else Encoder(encoding.before, reusing)
        self._reusing = reusing
        numbers = of_family(encoding.columns, NumberKind)
        self._compact = [(column, kind) for column, kind in numbers if kind.section == COMPACT]
        self._blocks = [(column, kind) for column, kind in numbers if kind.section != COMPACT]
        self._curves = of_family(encoding.columns, Curve)
        self._coded = of_family(encoding.columns, CodeKind)
        self._bags = of_family(encoding.columns, BagKind)
        self._vectors = of_family(encoding.columns, Vector)
        self._indices: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._values: NDArray[np.float32] = np.empty(0, np.float32)
        self._lines: NDArray[np.float32] = np.empty((encoding.numbers, 0), np.float32)
        self._knots: NDArray[np.uint32] = np.empty((len(self._curves), 0), np.uint32)
        self._shares: NDArray[np.float32] = np.empty((len(self._curves), 0), np.float32)
        self._codes: NDArray[np.uint32] = np.empty((len(self._coded), 0), np.uint32)
        self._kept: dict[str, Any] = {}

    def encode(
        self,
        columns: Arrays,
        rows: int,
        labels: Sequence[tuple[str, LabelSpec]],
        weight: str | None,
        offset: str | None = None,
    ) -> RowBlock:
        """`labels`, `weight` and `offset`: columns that are copied; None: left out."""
        marks = RowMarks.of(rows)
        codes = [spec.codes(types.leaf(columns, name)) for name, spec in labels]
        weights, offsets = (
            None if name is None else types.as_float64(types.leaf(columns, name)) for name in (weight, offset)
        )
        if self.encoding.dense:
            dense = self._dense(columns, rows, marks)
            width = dense.shape[1]
            bounds = np.arange(rows + 1, dtype=np.int64) * width
            found = checked_rows(marks.faults, codes, weights, offsets, bounds, None, dense.ravel(), width)
        else:
            bounds, indices, values = self.entries(columns, rows, marks)
            found = checked_rows(marks.faults, codes, weights, offsets, bounds, indices.view(np.int32), values)
        return replace(found, clipped=marks.clipped, examples=marks.examples) if self.encoding.scales else found

    def entries(self, columns: Arrays, rows: int, marks: RowMarks) -> Entries:
        found = self._bounded_entries(columns, rows, marks)
        if self._before is not None:
            offsets, indices, values = found
            shifted = indices + np.uint32(self.encoding.first_feature)
            found = side_by_side(*self._before.entries(columns, rows, marks), offsets, shifted, values)
        first = self.encoding.first_feature + self.encoding.unbounded_first
        for column, kind in self._vectors:
            if is_there(column, columns):
                found = side_by_side(*found, *kind.entries(column, columns, first, marks))
        return found

    def _bounded_entries(self, columns: Arrays, rows: int, marks: RowMarks) -> Entries:
        """The entries of this generation, without vectors."""
        lines, codes = self._filled_lines(columns, rows, marks), self._filled_codes(columns, rows)
        knots, shares = self._filled_curves(columns, rows)
        bags = [(column, kind) for column, kind in self._bags if is_there(column, columns)]
        bagged = joined([kind.bag(self.encoding.book, column, columns, marks) for column, kind in bags])
        most = rows * (len(lines) + 2 * len(knots) + len(codes)) + len(bagged[1]) + 1
        if not self._reusing or len(self._indices) < most:
            self._indices, self._values = np.empty(most, np.uint32), np.empty(most, np.float32)
        offsets = assembled_rows(rows, lines, knots, shares, codes, *bagged, self._indices, self._values)
        found: Entries = (offsets, self._indices[: offsets[-1]], self._values[: offsets[-1]])
        for column, kind, array in _there(self._blocks, columns):
            block = np.empty((rows, column.width), np.float32)
            kind.fill(column, array, block, marks)
            places = np.arange(column.width, dtype=np.uint32) + np.uint32(self.encoding.first_of[column.name])
            found = side_by_side(
                *found, np.arange(rows + 1, dtype=np.int64) * column.width, np.tile(places, rows), block.ravel()
            )
        return found

    def _dense(self, columns: Arrays, rows: int, marks: RowMarks) -> NDArray[np.float32]:
        out = np.empty((rows, self.encoding.unbounded_first), np.float32)
        rows_from_columns(self._filled_lines(columns, rows, marks)[:, :rows], out)
        for column, kind in self._blocks:
            self._fill(column, kind, columns, out, marks)
        return out if self._before is None else np.concatenate([self._before._dense(columns, rows, marks), out], axis=1)

    def _filled_lines(self, columns: Arrays, rows: int, marks: RowMarks) -> NDArray[np.float32]:
        """A line for each feature of the compact columns."""
        if self._lines.shape[1] < rows:
            self._lines = np.empty((len(self._lines), rows + _LINE_PADDING), np.float32)
        for column, kind in self._compact:
            self._fill(column, kind, columns, self._lines[:, :rows].T, marks)
        return self._lines

    def _fill(
        self, column: Column, kind: NumberKind, columns: Arrays, out: NDArray[np.float32], marks: RowMarks
    ) -> None:
        first = self.encoding.first_of[column.name]
        own, array = out[:, first : first + column.width], types.leaf_if_there(columns, column.name)
        if array is None:
            own[:] = 0.0
        else:
            kind.fill(column, array, own, marks)

    def _filled_curves(self, columns: Arrays, rows: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """For each curve a line of the knots before the numbers, and one of the shares of the knots after them."""
        if self._knots.shape[1] < rows:
            self._knots = np.empty((len(self._curves), rows + _LINE_PADDING), np.uint32)
            self._shares = np.empty(self._knots.shape, np.float32)
        for place, (column, _) in enumerate(self._curves):
            array = types.leaf_if_there(columns, column.parts[0])
            knots, shares = self._knots[place, :rows], self._shares[place, :rows]
            if array is None:
                knots[:] = NO_CODE
            else:
                next_knots(np.asarray(column.knots[0]), self.encoding.first_of[column.name], array, knots, shares)
        return self._knots, self._shares

    def _filled_codes(self, columns: Arrays, rows: int) -> NDArray[np.uint32]:
        """A line for each column with one code a row."""
        if self._codes.shape[1] < rows:
            self._codes = np.empty((len(self._coded), rows + _LINE_PADDING), np.uint32)
        for line, (column, kind) in zip(self._codes, self._coded, strict=True):
            there = is_there(column, columns)
            line[:rows] = kind.codes(self.encoding.book, column, columns, self._kept) if there else NO_CODE
        return self._codes


def _there(columns: Sequence[tuple[Column, Family]], arrays: Arrays) -> Iterator[tuple[Column, Family, pa.Array]]:
    """The columns that a table has; rows have no entries of the others."""
    for column, kind in columns:
        array = types.leaf_if_there(arrays, column.name)
        if array is not None:
            yield column, kind, array
