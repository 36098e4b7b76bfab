"""Rows in memory on their way from a table to a window: what tables, encoders and the cache of decoded rows produce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding.labels import LABEL_NOT_FINITE, LABEL_NULL, LARGEST_LABEL

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of the Arrow form.
INDICES, VALUES, FEATURES, FAULTS, CLIPPED = "indices", "values", "features", "faults", "clipped"
WEIGHT, OFFSET = "weight", "offset"

# Why a row cannot be used; kernels.placing_loop and encoding.labels have more reasons. 0 is a good row.
WEIGHT_BAD, FEATURES_NULL, LENGTHS_DIFFER, WIDTH_DIFFERS, OFFSET_BAD, NOT_SELECTED = 19, 20, 21, 22, 24, 26
WEIGHT_TOO_LARGE, OFFSET_TOO_LARGE = 28, 29
LARGEST_WEIGHT = 1e30

_NO_CELLS = np.empty(0)


def label_name(number: int) -> str:
    return f"label {number}"


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of a shard or a stream. Row r has entries [bounds[r], bounds[r + 1])."""

    faults: NDArray[np.uint8]
    """Why a row cannot be used, as far as is known before its features and its class are checked."""
    labels: Floats
    """The codes of LabelSpec, one column per label."""
    weights: Floats
    """Empty: none. The same holds for offsets."""
    offsets: Floats
    bounds: Ints
    indices: NDArray[Any] | None
    """Their type is int32 or int64; None: dense rows."""
    values: NDArray[Any] | None
    """Their type is float32 or float64; None: all ones."""
    width: int | None = None
    """The length of every row, if the type of the column fixes it."""
    clipped: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    """1 for rows of which a number was clipped; empty: none ever is."""
    examples: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """By column: the first row with a clipped value, and the value. The Arrow form is without them."""

    @property
    def num_rows(self) -> int:
        return len(self.faults)

    def slice(self, first: int, rows: int | None = None) -> RowBlock:
        stop = self.num_rows if rows is None else min(self.num_rows, first + rows)
        cut = slice(first, stop)
        return replace(
            self, faults=self.faults[cut], labels=self.labels[cut], weights=self.weights[cut],
            offsets=self.offsets[cut], bounds=self.bounds[first : stop + 1], clipped=self.clipped[cut],
            examples={name: (row - first, value) for name, (row, value) in self.examples.items() if first <= row < stop},
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The size of the entries."""
        entries = int(self.bounds[-1] - self.bounds[0])
        return sum(entries * part.itemsize for part in (self.indices, self.values) if part is not None)

    def lasting(self) -> RowBlock:
        """With its own entries: those of an encoder are overwritten."""
        first, stop = int(self.bounds[0]), int(self.bounds[-1])
        indices, values = (None if part is None else part[first:stop].copy() for part in (self.indices, self.values))
        return replace(self, bounds=self.bounds - first, indices=indices, values=values)

    def to_batch(self) -> pa.RecordBatch:
        arrays = {label_name(number): pa.array(self.labels[:, number]) for number in range(self.labels.shape[1])}
        arrays |= {
            name: pa.array(cells) for name, cells in ((WEIGHT, self.weights), (OFFSET, self.offsets)) if cells.size
        }
        for name, entries in self._entries():
            first, stop = int(self.bounds[0]), int(self.bounds[-1])
            child = pa.array(entries[first:stop])
            if self.width is not None:
                arrays[name] = pa.FixedSizeListArray.from_arrays(child, self.width)
            else:
                arrays[name] = pa.ListArray.from_arrays(pa.array((self.bounds - first).astype(np.int32)), child)
        marks = {FAULTS: pa.array(self.faults)} | ({CLIPPED: pa.array(self.clipped)} if self.clipped.size else {})
        return pa.RecordBatch.from_pydict(arrays | marks)

    def _entries(self) -> list[tuple[str, NDArray[Any]]]:
        names = (FEATURES,) if self.indices is None else (INDICES, VALUES)
        arrays = (self.values,) if self.indices is None else (self.indices, self.values)
        return [(name, array) for name, array in zip(names, arrays, strict=True) if array is not None]


def checked_rows(
    faults: NDArray[np.uint8],
    labels: Sequence[pa.Array],
    weight: pa.Array | None,
    offset: pa.Array | None,
    bounds: Ints,
    indices: NDArray[Any] | None,
    values: NDArray[Any] | None,
    width: int | None = None,
) -> RowBlock:
    """Rows whose labels, weights and offsets are checked here; `faults` is changed in place."""
    weights = offsets = _NO_CELLS
    if weight is not None:
        weights = _floats(weight)
        faults[weights > LARGEST_WEIGHT] = WEIGHT_TOO_LARGE
        faults[~(np.isfinite(weights) & (weights >= 0.0))] = WEIGHT_BAD
    if offset is not None:
        offsets = _floats(offset)
        faults[np.abs(offsets) > LARGEST_LABEL] = OFFSET_TOO_LARGE
        faults[~np.isfinite(offsets)] = OFFSET_BAD
    codes = [_floats(array) for array in labels]
    for array, column in zip(labels, codes, strict=True):
        faults[~np.isfinite(column)] = LABEL_NOT_FINITE
        if array.null_count:
            faults[array.is_null().to_numpy(zero_copy_only=False)] = LABEL_NULL
    return RowBlock(faults, _beside(codes, len(faults)), weights, offsets, bounds, indices, values, width)


def joined(blocks: Sequence[RowBlock]) -> RowBlock:
    """One block of the rows of several, which have the same columns."""
    if len(blocks) == 1:
        return blocks[0]
    spans = [slice(int(block.bounds[0]), int(block.bounds[-1])) for block in blocks]
    lengths = np.concatenate([np.diff(block.bounds) for block in blocks])

    def together(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
        found = [array[span] for array, span in zip(arrays, spans, strict=True) if array is not None]
        return np.concatenate(found) if found else None

    return RowBlock(
        np.concatenate([block.faults for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate([block.weights for block in blocks]),
        np.concatenate([block.offsets for block in blocks]),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        together([block.indices for block in blocks]),
        together([block.values for block in blocks]),
        blocks[0].width,
        np.concatenate([block.clipped for block in blocks]),
        _joined_examples(blocks),
    )


def _joined_examples(blocks: Sequence[RowBlock]) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    first = 0
    for block in blocks:
        found = {name: (first + row, value) for name, (row, value) in block.examples.items()} | found
        first += block.num_rows
    return found


def bounds_of(lists: pa.Array) -> Ints:
    """Where the entries of each row begin in the values between the first row's and the last row's; from 0 on."""
    first, stops = _span(lists)
    return stops - first


def entries_of(lists: pa.Array, whole: bool) -> NDArray[Any]:
    """The values of all rows as numbers of one of the few types that loops are compiled for, integers if `whole`. Null
    becomes -1 or NaN, which the loops refuse."""
    first, stops = _span(lists)
    child = lists.values[first : int(stops[-1])]
    if child.null_count:
        child = pc.fill_null(child.cast(pa.int64() if whole else pa.float64(), safe=False), -1 if whole else np.nan)
    entries: NDArray[Any] = child.to_numpy(zero_copy_only=False)
    if whole:
        return entries if entries.dtype in (np.int32, np.int64) else entries.astype(np.int64)
    if entries.dtype in (np.float32, np.float64):
        return entries
    return entries.astype(np.float32 if entries.dtype == np.float16 else np.float64)


def _span(lists: pa.Array) -> tuple[int, Ints]:
    if pa.types.is_fixed_size_list(lists.type):
        stops = (lists.offset + np.arange(len(lists) + 1, dtype=np.int64)) * lists.type.list_size
    else:
        stops = np.asarray(lists.offsets.to_numpy(), np.int64)
    return int(stops[0]), stops


def width_of(lists: pa.Array) -> int | None:
    return lists.type.list_size if pa.types.is_fixed_size_list(lists.type) else None


def _beside(columns: Sequence[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.empty((rows, 0))


def _floats(array: pa.Array) -> Floats:
    """The numbers as float64. Null becomes NaN."""
    if array.null_count or pa.types.is_boolean(array.type):
        array = pc.fill_null(array.cast(pa.float64(), safe=False), np.nan)
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)
