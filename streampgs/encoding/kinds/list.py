"""Lists of numbers, such as embeddings: a feature for each position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.kinds.kind import BLOCK, Arrays, Column, NumberKind, RowMarks, arrays_of
from streampgs.encoding.rows import WIDTH_DIFFERS
from streampgs.encoding.scales import is_out_of_scale, standard
from streampgs.errors import DataError
from streampgs.options import EncodingOptions

_WILD_RATIO = 100.0  # positions whose scales differ by more are standardized
_OFF_CENTRE = 10.0  # so are those whose mean is more standard deviations away from 0

_WORK = 5.0  # bytes of memory for a byte of a column


class List(NumberKind):
    name, plural = "list", "lists"
    section = BLOCK
    takes = (types.LIST,)
    fault = WIDTH_DIFFERS

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        matrices: list[NDArray[np.float64]] = []
        width: int | None = None
        for array in arrays_of(sample, column.name):
            offsets, child = types.lists_of(array)
            lengths = np.diff(offsets)
            if width is None:
                filled = lengths[lengths > 0]
                if not filled.size:
                    continue
                width = int(np.bincount(filled).argmax())
            matrices.append(types.floats_of(child)[np.repeat(lengths == width, lengths)].reshape(-1, width))
        if width is None:
            raise DataError(
                f"column '{column.name}': all its lists are empty", f"leave it out with --ignore {column.name}"
            )
        found = replace(column, width=width + options.null_flags, null_flag=options.null_flags)
        matrix = np.concatenate(matrices)
        matrix = np.where(np.isfinite(matrix), matrix, np.nan)
        if not _is_standardized(matrix, options.standardize, alone):
            return found
        standards = [standard(values[~np.isnan(values)]) for values in matrix.T]
        return replace(found, centre=tuple(c for c, _ in standards), scale=tuple(s for _, s in standards))

    def work(self, column: Column, options: EncodingOptions) -> float:
        return _WORK

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


def _is_standardized(matrix: NDArray[np.float64], standardize: str, alone: bool) -> bool:
    if standardize != "auto":
        return standardize == "on"
    sizes, centres, spreads = _measured(matrix)
    is_wild = bool(sizes.size and sizes.max() / _WILD_RATIO > sizes.min())
    is_off_centre = bool(((np.abs(centres) / _OFF_CENTRE > spreads) & (spreads > 0.0)).any())
    return is_wild or is_off_centre or (not alone and is_out_of_scale(sizes))


def _measured(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Root mean squares, means and standard deviations of the positions that are not always 0; the last two in units of
    the largest value of the position."""
    known = ~np.isnan(matrix)
    values = np.where(known, matrix, 0.0)
    largest = np.abs(values).max(axis=0, initial=0.0)
    filled = largest > 0.0
    known, values = known[:, filled], values[:, filled] / largest[filled]  # squares may leave the range
    counts = np.count_nonzero(known, axis=0)
    centres = values.sum(axis=0) / counts
    spreads = np.sqrt((np.where(known, values - centres, 0.0) ** 2).sum(axis=0) / counts)
    return largest[filled] * np.sqrt((values**2).sum(axis=0) / (counts + 1.0)), centres, spreads
