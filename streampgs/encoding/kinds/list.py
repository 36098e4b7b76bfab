"""Lists of numbers, such as embeddings: a feature for each position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding import types
from streampgs.encoding.kinds.kind import BLOCK, Arrays, Column, NumberKind, RowMarks, arrays_of
from streampgs.encoding.rows import WIDTH_DIFFERS
from streampgs.encoding.scales import is_out_of_scale, standard
from streampgs.options.commands import EncodingOptions

_WILD_RATIO = 100.0  # positions whose scales differ by more are standardized
MOST_STANDARDIZED = 1 << 17
"""Each position is measured and recorded on its own."""
_BLOCK_VALUES = 1 << 21
_OFF_CENTRE = 10.0  # so are those whose mean is more standard deviations away from 0


class List(NumberKind):
    name, plural = "list", "lists"
    section = BLOCK
    takes = (types.LIST,)
    fault = WIDTH_DIFFERS
    usual_work = 5.0

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        matrices = _matrices(arrays_of(sample, column.name))
        if not matrices:
            raise DataError(
                f"column '{column.name}': all its lists are empty", f"leave it out with `--ignore {column.name}`"
            )
        width = matrices[0].shape[1]
        found = replace(column, width=width + options.null_flags, null_flag=options.null_flags)
        if options.standardize == "off" or not _can_be_standardized(column.name, width, options.standardize):
            return found
        if not _is_standardized(matrices, options.standardize, alone):
            return found
        standards = [standard(values[~np.isnan(values)]) for block in _blocks(matrices) for values in block.T]
        return replace(found, centre=tuple(c for c, _ in standards), scale=tuple(s for _, s in standards))

    def has_values(self, column: Column, sample: Sequence[Arrays]) -> bool:
        return any(np.diff(types.lists_of(array)[0]).any() for array in arrays_of(sample, column.name))

    def fill(self, column: Column, array: pa.Array, out: NDArray[np.float32], marks: RowMarks) -> None:
        width = self.values_per_row(column)
        offsets, child = types.lists_of(array)
        values, child_nulls, nulls = types.numbers_of(child), types.nulls_of(child), types.nulls_of(array)
        lengths = np.diff(offsets)
        usable = lengths == width
        whole = bool(usable.all())
        if not whole:
            unusable = ~usable if nulls is None else ~usable & ~nulls
            marks.faults[unusable & (marks.faults == 0)] = WIDTH_DIFFERS
            out[~usable, :width] = 0.0
            kept = np.repeat(usable, lengths)
            values = values[kept]
            child_nulls = None if child_nulls is None else child_nulls[kept]
        matrix = values.reshape(-1, width)
        with np.errstate(over="ignore", invalid="ignore"):
            if column.scale:
                given, matrix = matrix, (matrix - np.asarray(column.centre)) * np.asarray(column.scale)
            if child_nulls is not None:
                matrix = np.where(child_nulls.reshape(-1, width), 0.0, matrix)
            if column.scale:
                marks.clip(column.name, matrix, given, None if whole else np.flatnonzero(usable))
            out[slice(None) if whole else usable, :width] = matrix
        if column.null_flag:
            out[:, width] = 0.0 if nulls is None else nulls

    def name_of(self, column: Column, place: int) -> str:
        is_flag = column.null_flag and place == column.width - 1
        return f"{column.name} is null" if is_flag else f"{column.name}[{place}]"


def _matrices(arrays: Iterable[pa.Array]) -> list[NDArray[Any]]:
    """The lists of the usual length; null is NaN."""
    found: list[NDArray[Any]] = []
    width: int | None = None
    for array in arrays:
        offsets, child = types.lists_of(array)
        lengths = np.diff(offsets)
        if width is None:
            different, counts = np.unique(lengths[lengths > 0], return_counts=True)
            if not different.size:
                continue
            width = int(different[counts.argmax()])
        values, usable = types.with_nan(child), lengths == width
        found.append((values if usable.all() else values[np.repeat(usable, lengths)]).reshape(-1, width))
    return found


def _blocks(matrices: Sequence[NDArray[Any]]) -> Iterator[NDArray[np.float64]]:
    """Adjacent positions of all rows; values that are not finite are NaN."""
    rows, width = sum(map(len, matrices)), matrices[0].shape[1]
    each = max(1, _BLOCK_VALUES // max(1, rows))
    for first in range(0, width, each):
        block = np.concatenate([np.asarray(matrix[:, first : first + each], np.float64) for matrix in matrices])
        yield np.where(np.isfinite(block), block, np.nan)


def _can_be_standardized(name: str, width: int, standardize: str) -> bool:
    if width <= MOST_STANDARDIZED:
        return True
    if standardize == "on":
        raise OptionError(
            f"column '{name}': lists of {width:,} numbers; at most {MOST_STANDARDIZED:,} positions can be standardized",
            "give `--standardize off`, or write lists 'indices' and 'values'",
        )
    return False


def _is_standardized(matrices: Sequence[NDArray[Any]], standardize: str, alone: bool) -> bool:
    if standardize != "auto":
        return standardize == "on"
    measured = [_measured(block) for block in _blocks(matrices)]
    sizes, centres, spreads = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    is_wild = bool(sizes.size and sizes.max() / _WILD_RATIO > sizes.min())
    is_off_centre = bool(((np.abs(centres) / _OFF_CENTRE > spreads) & (spreads > 0.0)).any())
    return is_wild or is_off_centre or (not alone and is_out_of_scale(sizes))


def _measured(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Root mean squares, means and standard deviations of the positions that are not always 0; the last two in units of
    the largest value of the position."""
    largest = np.abs(np.where(np.isnan(matrix), 0.0, matrix)).max(axis=0, initial=0.0)
    filled = largest > 0.0
    values = matrix[:, filled] / largest[filled]  # squares may leave the range
    counts = np.count_nonzero(~np.isnan(values), axis=0)
    sizes = largest[filled] * np.sqrt(np.nansum(values**2, axis=0) / (counts + 1.0))
    return sizes, np.nanmean(values, axis=0), np.nanstd(values, axis=0)
