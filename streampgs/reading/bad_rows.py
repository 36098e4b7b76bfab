"""What is wrong with a row, in words: where it is, what was found, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.encoding import labels as label_layout
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.kinds.kind import LENGTHS_DIFFER, WIDTH_DIFFERS
from streampgs.encoding.labels import LabelSpec
from streampgs.errors import DataError
from streampgs.kernels import placing_loop as row_loops
from streampgs.table import layout as row_layout
from streampgs.table.layout import Columns, RowArrays

_SKIP = "mend the data, or leave such rows out with --on-bad-row skip"

# reason → (short name for counts, what one row has, remedy)
REASONS: dict[int, tuple[str, str, str]] = {
    row_loops.NEGATIVE_INDEX: ("negative index", "a negative or null index", _SKIP),
    row_loops.INDEX_TOO_LARGE: (
        "index too large",
        "an index at or above the number of features",
        f"raise --feature-count, or {_SKIP}",
    ),
    row_loops.REPEATED_INDEX: ("repeated index", "an index named twice", _SKIP),
    row_loops.VALUE_NOT_FINITE: ("feature not finite", "a feature that is null, NaN or infinite", _SKIP),
    row_loops.VALUE_TOO_LARGE: (
        "feature too large",
        "a feature beyond the range of float32",
        f"scale the column down, or {_SKIP}",
    ),
    label_layout.LABEL_NULL: ("label null", "no label", _SKIP),
    label_layout.LABEL_NOT_FINITE: ("label not finite", "a label that is NaN or infinite", _SKIP),
    label_layout.LABEL_NO_CLASS: (
        "label no class",
        "a label outside {-1, 0, 1}",
        f"name the positive class with --positive VALUE, list more than two with --classes A,B,C, or {_SKIP}",
    ),
    label_layout.LABEL_UNKNOWN_CLASS: (
        "label of an unknown class",
        "a label that is none of the classes",
        f"in a new run list all of them with --classes A,B,…, or name one against all others with --positive VALUE; or {_SKIP}",
    ),
    label_layout.LABEL_TOO_LOW: ("negative label", "a negative label, but the loss is for counts", _SKIP),
    row_layout.WEIGHT_BAD: ("bad weight", "a weight that is null, negative or not finite", _SKIP),
    row_layout.OFFSET_BAD: ("bad offset", "an offset that is null or not finite", _SKIP),
    row_layout.FEATURES_NULL: ("features null", "null in place of a list of features", _SKIP),
    LENGTHS_DIFFER: ("lengths differ", "'indices' and 'values' of different lengths", _SKIP),
    WIDTH_DIFFERS: ("width differs", "another number of features than the rows before", _SKIP),
}


def counts_by_name(counts: Counter[int]) -> dict[str, int]:
    return {REASONS[reason][0]: count for reason, count in sorted(counts.items())}


def bad_row_error(
    name_of_row: Callable[[int], str],
    arrays: RowArrays,
    reasons: NDArray[np.uint8],
    rows: NDArray[np.int64],
    columns: Columns,
) -> DataError:
    """The error for the first bad row of a block; `rows` are the block's rows that `reasons` speaks of. Where columns are
    encoded, features are called by what they come from."""
    k = int(np.flatnonzero(reasons)[0])
    reason, row = int(reasons[k]), int(rows[k])
    alike = int(np.count_nonzero(reasons == reason))
    _, fault, remedy = REASONS[reason]
    many = f" ({alike} such rows in this block)" if alike > 1 else ""
    unknown = _unknown_string(columns, arrays, row) if reason == label_layout.LABEL_UNKNOWN_CLASS else None
    if unknown is not None:
        fault, found = unknown, ""
    elif isinstance(columns.encoding, Encoding):
        found = _found_in_column(reason, arrays, row, columns.encoding)
    else:
        found = _found(reason, arrays, row)
    return DataError(f"{name_of_row(row)}: {fault}{found}{many}", remedy)


def _unknown_string(columns: Columns, arrays: RowArrays, row: int) -> str | None:
    """The fault of a row one of whose labels is a string that the model does not know."""
    if arrays.raw_labels is None:
        return None
    texts = map(LabelSpec.unknown_text, columns.specs, np.atleast_1d(arrays.raw_labels[row]).tolist())
    return next((text for text in texts if text is not None), None)


def _found_in_column(reason: int, arrays: RowArrays, row: int, encoding: Encoding) -> str:
    start, stop = int(arrays.offsets[row]), int(arrays.offsets[row + 1])
    if reason in (row_loops.VALUE_NOT_FINITE, row_loops.VALUE_TOO_LARGE):
        place = start + int(np.flatnonzero(~(np.abs(arrays.values[start:stop]) <= np.finfo(np.float32).max))[0])
        feature = int(arrays.indices[place]) if arrays.indices.size else place - start
        return f": {arrays.values[place]} of '{encoding.name_of(feature)}'"
    if reason == row_loops.REPEATED_INDEX:
        unique, counts = np.unique(arrays.indices[start:stop], return_counts=True)
        return f": '{encoding.name_of(int(unique[counts > 1][0]))}'"
    columns = [f"'{column.name}'" for column in encoding.all_columns if kind_of(column).fault == reason]
    if columns:
        return f", in {', '.join(columns)}"
    return _found(reason, arrays, row)


def _found(reason: int, arrays: RowArrays, row: int) -> str:
    start, stop = int(arrays.offsets[row]), int(arrays.offsets[row + 1])
    indices: NDArray[Any] = arrays.indices[start:stop]
    values: NDArray[Any] = arrays.values[start:stop]
    if reason == row_loops.NEGATIVE_INDEX:
        return f": {indices[indices < 0][0]}"
    if reason == row_loops.INDEX_TOO_LARGE:
        return f": {indices.max()}"
    if reason == row_loops.REPEATED_INDEX:
        unique, counts = np.unique(indices, return_counts=True)
        return f": {unique[counts > 1][0]}"
    if reason in (row_loops.VALUE_NOT_FINITE, row_loops.VALUE_TOO_LARGE):
        place = int(np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))[0])
        return f": {values[place]} at entry {place}"
    if (
        reason
        in (
            label_layout.LABEL_NOT_FINITE,
            label_layout.LABEL_NO_CLASS,
            label_layout.LABEL_UNKNOWN_CLASS,
            label_layout.LABEL_TOO_LOW,
        )
        and arrays.raw_labels is not None
    ):
        return f": {arrays.raw_labels[row]}"
    if reason == row_layout.WEIGHT_BAD and arrays.weights is not None:
        return f": {arrays.weights[row]}"
    if reason == row_layout.OFFSET_BAD and arrays.score_offsets is not None:
        return f": {arrays.score_offsets[row]}"
    return ""
