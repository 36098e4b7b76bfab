"""Rows that a user gives to a model, as record batches with the columns that the model expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import OptionError
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.kinds.kind import Column, NumberKind
from streampgs.encoding.kinds.list import List
from streampgs.encoding.kinds.number import Number
from streampgs.encoding.kinds.vector import Vector
from streampgs.encoding.rows import FEATURES, INDICES, VALUES
from streampgs.reading.array_slices import dense_column, native, numbers_array, rows_a_slice
from streampgs.reading.in_memory import batches_of, plain_source
from streampgs.table.layout import SPARSE, holds_features

Batches = Iterator[pa.RecordBatch]
_MOST_NAMES = 8


@dataclass(frozen=True)
class ExpectedRows:
    encoding: Encoding | None
    """None: rows hold features."""
    layout: str
    features: int

    def batches(self, rows: Any) -> tuple[bool, Batches]:
        """Whether the rows have named columns, and record batches of them."""
        rows = plain_source(rows)
        if not _is_matrix(rows):
            return self._of_table(batches_of(rows))
        is_sparse = hasattr(rows, "tocsr")
        matrix = rows.tocsr() if is_sparse else _two_axes(rows)
        return False, self._of_matrix(matrix, int(matrix.shape[1]))

    # Matrices.

    def _of_matrix(self, matrix: Any, width: int) -> Batches:
        column = self._only_column
        if self.encoding is None or isinstance(kind_of(column) if column else None, Vector):
            sparse = self.layout == SPARSE
            if not sparse:
                self._check_width(width, self.features)
            return self._renamed(_sparse(matrix) if sparse else _dense(matrix, FEATURES), column)
        if column is not None and isinstance(kind_of(column), List):
            self._check_width(width, column.width - column.null_flag)
            return _dense(matrix, column.name)
        names = self._numbers
        if names is None or width != len(names):
            raise self._other_columns(width)
        return _side_by_side(matrix, names)

    def _renamed(self, batches: Batches, column: Column | None) -> Batches:
        """With the vector in the column that it was trained in."""
        if column is not None and column.parts == (INDICES,):
            return map(_with_ones, batches)
        if column is None or column.parts:
            return batches
        return (
            pa.record_batch({column.name: pa.StructArray.from_arrays(batch.columns, batch.schema.names)})
            for batch in batches
        )

    @property
    def _only_column(self) -> Column | None:
        columns = () if self.encoding is None else self.encoding.own_columns
        return columns[0] if len(columns) == 1 else None

    @property
    def _numbers(self) -> list[str] | None:
        """The names of the columns if each is a number, in the order of the table."""
        assert self.encoding is not None
        columns = self.encoding.own_columns
        numbers = all(isinstance(kind_of(column), Number) and column.holds == types.NUMBER for column in columns)
        return [column.name for column in columns] if numbers else None

    @staticmethod
    def _check_width(width: int, expected: int) -> None:
        if width != expected:
            raise OptionError(
                f"rows of {width} features for a model of {expected}", "give the features it was trained on"
            )

    def _other_columns(self, width: int) -> OptionError:
        assert self.encoding is not None
        columns = [f"{column.name} ({column.holds})" for column in self.encoding.own_columns]
        listed = ", ".join([*columns[:_MOST_NAMES], "…"] if len(columns) > _MOST_NAMES else columns)
        return OptionError(
            f"a matrix of {width} columns; the model was trained on {len(columns)} columns: {listed}",
            "give a table with these columns"
            + (", or a matrix of exactly these, in this order" if self._numbers is not None else ""),
        )

    # Tables.

    def _of_table(self, batches: Batches) -> tuple[bool, Batches]:
        """Numbers side by side are a matrix for a model that was trained on one."""
        first = next(batches, None)
        if first is None:
            return True, iter(())
        whole = chain([first], batches)
        if not self._takes_as_matrix(first.schema):
            return True, whole
        width = len(first.schema)
        return False, (part for batch in whole for part in self._of_matrix(_stacked(batch), width))

    def _takes_as_matrix(self, schema: pa.Schema) -> bool:
        column = self._only_column
        if self.encoding is None:
            expects, width = self.layout != SPARSE and not holds_features(schema), self.features
        elif column is not None and column.name == FEATURES and isinstance(kind_of(column), NumberKind):
            expects, width = FEATURES not in schema.names, column.width - column.null_flag
        else:
            return False
        return expects and len(schema) == width and all(types.class_of(one.type) == types.NUMBER for one in schema)


def _is_matrix(rows: Any) -> bool:
    if hasattr(rows, "tocsr") or isinstance(rows, np.ndarray):
        return True
    return isinstance(rows, list | tuple) and not any(
        isinstance(one, pa.RecordBatch) or hasattr(one, "__arrow_c_stream__") for one in rows[:1]
    )


def _two_axes(rows: Any) -> NDArray[Any]:
    """A list of numbers is one row."""
    try:
        array = np.atleast_2d(np.asarray(rows))
    except ValueError as error:  # rows of different lengths
        raise OptionError(f"a list that is not a matrix: {error}", "give rows of equal lengths") from error
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)  # as pandas gives columns of different types
        except (TypeError, ValueError) as error:
            raise OptionError(f"an array of objects that are not numbers: {error}", "give a table") from error
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise OptionError(
            f"an array of shape {array.shape} and type {array.dtype}", "give rows and columns of numbers, or a table"
        )
    return array


def _slices(matrix: Any) -> Iterator[NDArray[Any]]:
    rows = rows_a_slice(matrix.dtype.itemsize * matrix.shape[1])
    for start in range(0, matrix.shape[0], rows):
        part = matrix[start : start + rows]
        yield native(part.toarray() if hasattr(part, "tocsr") else part)


def _dense(matrix: Any, name: str) -> Batches:
    return (pa.record_batch({name: dense_column(part, "the matrix")}) for part in _slices(matrix))


def _side_by_side(matrix: Any, names: list[str]) -> Batches:
    """A column for each name. NaN is null, as in tables that are made of such a matrix."""
    for part in _slices(matrix):
        columns = [np.ascontiguousarray(column) for column in part.T]
        yield pa.record_batch([pa.array(column, from_pandas=True) for column in columns], names=names)


def _sparse(matrix: Any) -> Batches:
    if hasattr(matrix, "tocsr"):
        yield from batches_of(matrix)
        return
    for part in _slices(matrix):
        rows, indices = np.nonzero(part)  # NaN is not zero
        offsets = np.searchsorted(rows, np.arange(len(part) + 1)).astype(np.int32)
        children = pa.array(indices.astype(np.int32)), numbers_array(part[rows, indices], "the matrix")
        lists = [pa.ListArray.from_arrays(pa.array(offsets), child) for child in children]
        yield pa.record_batch(lists, names=[INDICES, VALUES])


def _with_ones(batch: pa.RecordBatch) -> pa.RecordBatch:
    if (types.numbers_of(types.lists_of(batch.column(VALUES))[1]) != 1).any():
        raise OptionError(
            "a matrix with values other than 0 and 1; the model was trained on 'indices' without 'values'",
            "give a matrix of zeros and ones",
        )
    return batch


def _stacked(batch: pa.RecordBatch) -> NDArray[np.float64]:
    return np.column_stack([types.floats_of(types.plain(column)) for column in batch.columns])
