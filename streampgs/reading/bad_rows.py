"""Errors about rows that cannot be used: where the row is, its fault, and what to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.errors import BadRow
from streampgs.encoding import labels as label_layout
from streampgs.encoding import rows as row_layout
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.labels import listed
from streampgs.encoding.rows import LENGTHS_DIFFER, WIDTH_DIFFERS, RowBlock
from streampgs.expressions.expression import known
from streampgs.kernels import placing_loop as row_loops
from streampgs.table.layout import Columns

if TYPE_CHECKING:
    from streampgs.reading.placing import Origin

# reason → (short name for counts, fault of a row)
REASONS: dict[int, tuple[str, str]] = {
    row_loops.NEGATIVE_INDEX: ("negative index", "a negative or null index"),
    row_loops.INDEX_TOO_LARGE: ("index too large", "an index at or above the number of features"),
    row_loops.REPEATED_INDEX: ("repeated index", "an index named twice"),
    row_loops.VALUE_NOT_FINITE: ("feature not finite", "a feature that is null, NaN or infinite"),
    row_loops.VALUE_TOO_LARGE: ("feature too large", "a feature beyond the range of float32"),
    label_layout.LABEL_NULL: ("label null", "no label"),
    label_layout.LABEL_NOT_FINITE: ("label not finite", "a label that is NaN or infinite"),
    label_layout.LABEL_NO_CLASS: ("label no class", "a label outside {-1, 0, 1}"),
    label_layout.LABEL_UNKNOWN_CLASS: ("label of an unknown class", "a label that is none of the classes"),
    label_layout.LABEL_TOO_LOW: ("negative label", "a negative label, but the loss is for counts"),
    label_layout.LABEL_TOO_LARGE: ("label too large", f"a label beyond {label_layout.LARGEST_LABEL:g}"),
    row_layout.WEIGHT_BAD: ("bad weight", "a weight that is null, negative or not finite"),
    row_layout.OFFSET_BAD: ("bad offset", "an offset that is null or not finite"),
    row_layout.WEIGHT_TOO_LARGE: ("weight too large", f"a weight beyond {row_layout.LARGEST_WEIGHT:g}"),
    row_layout.OFFSET_TOO_LARGE: ("offset too large", f"an offset beyond {label_layout.LARGEST_LABEL:g}"),
    row_layout.FEATURES_NULL: ("features null", "null in place of a list of features"),
    LENGTHS_DIFFER: ("lengths differ", "'indices' and 'values' of different lengths"),
    WIDTH_DIFFERS: ("width differs", "another number of features than the rows before"),
    row_layout.NOT_SELECTED: ("left out by --where", "a condition that is not fulfilled"),
}
_REMEDIES = {
    row_loops.INDEX_TOO_LARGE: "raise --feature-count, or ",
    **dict.fromkeys(
        (
            row_loops.VALUE_TOO_LARGE,
            label_layout.LABEL_TOO_LARGE,
            row_layout.WEIGHT_TOO_LARGE,
            row_layout.OFFSET_TOO_LARGE,
        ),
        "scale the column down, or ",
    ),
    label_layout.LABEL_NO_CLASS: (
        "name the positive class with `--positive VALUE`, take all labels as classes with `--classes auto`, or "
    ),
    label_layout.LABEL_UNKNOWN_CLASS: (
        "in a new run take all labels with `--classes auto`, or name one against all others with `--positive VALUE`; or "
    ),
}
_USUAL_REMEDY = "fix the data, or leave such rows out with `--on-bad-row skip`"
_OF_LABELS = (
    label_layout.LABEL_NOT_FINITE,
    label_layout.LABEL_NO_CLASS,
    label_layout.LABEL_UNKNOWN_CLASS,
    label_layout.LABEL_TOO_LOW,
    label_layout.LABEL_TOO_LARGE,
)
_OF_WEIGHTS = (row_layout.WEIGHT_BAD, row_layout.WEIGHT_TOO_LARGE)
_OF_OFFSETS = (row_layout.OFFSET_BAD, row_layout.OFFSET_TOO_LARGE)
_NOTHING = np.empty(0)


def counts_by_name(counts: Counter[int]) -> dict[str, int]:
    return {REASONS[reason][0]: count for reason, count in sorted(counts.items())}


def bad_row_error(
    origin: Origin,
    block: RowBlock,
    reasons: NDArray[np.uint8],
    rows: NDArray[np.int64],
    columns: Columns,
) -> BadRow:
    """The error for the first bad row of a block; `reasons` belong to these rows of the block. Features of encoded tables
    are named by their columns."""
    k = int(np.flatnonzero(reasons)[0])
    reason, row = int(reasons[k]), int(rows[k])
    alike = int(np.count_nonzero(reasons == reason))
    fault, remedy = REASONS[reason][1], _REMEDIES.get(reason, "") + _USUAL_REMEDY
    if reason == label_layout.LABEL_NULL and columns.computed:
        remedy = f'leave out rows without one by `--where "{known(columns.computed)}"`, or by `--on-bad-row skip`'
    many = f" ({alike} such rows in this block)" if alike > 1 else ""
    unknown = _unknown_string(origin, columns, block, row) if reason == label_layout.LABEL_UNKNOWN_CLASS else None
    if unknown is not None:
        found = unknown
    elif isinstance(columns.encoding, Encoding):
        found = _found_in_column(reason, block, row, columns.encoding)
    else:
        found = _found(reason, block, row)
    return BadRow(f"{origin.name_of(row)}: {fault}{found}{many}", remedy)


def _unknown_string(origin: Origin, columns: Columns, block: RowBlock, row: int) -> str | None:
    """The first label of a row that is a string and not a class of the model, with the classes."""
    for (name, spec), code in zip(columns.labelled, block.labels[row].tolist(), strict=True):
        if spec.is_unknown_text(code):
            label = origin.cell_of(row, name)
            shown = f" '{label}'" if label is not None else ""
            return f":{shown} in column '{name}'; the classes are {listed(spec.classes or ())}"
    return None


def _found_in_column(reason: int, block: RowBlock, row: int, encoding: Encoding) -> str:
    indices, values = _entries(block, row)
    if reason in (row_loops.VALUE_NOT_FINITE, row_loops.VALUE_TOO_LARGE):
        place = _first_not_float32(values)
        feature = int(indices[place]) if indices.size else place
        return f": {values[place]} of '{encoding.name_of(feature)}'"
    if reason == row_loops.REPEATED_INDEX:
        return f": '{encoding.name_of(_first_repeated(indices))}'"
    columns = [f"'{column.name}'" for column in encoding.all_columns if kind_of(column).fault == reason]
    return f", in {', '.join(columns)}" if columns else _found(reason, block, row)


def _found(reason: int, block: RowBlock, row: int) -> str:
    indices, values = _entries(block, row)
    if reason == row_loops.NEGATIVE_INDEX:
        return f": {indices[indices < 0][0]}"
    if reason == row_loops.INDEX_TOO_LARGE:
        return f": {indices.max()}"
    if reason == row_loops.REPEATED_INDEX:
        return f": {_first_repeated(indices)}"
    if reason in (row_loops.VALUE_NOT_FINITE, row_loops.VALUE_TOO_LARGE):
        place = _first_not_float32(values)
        return f": {values[place]} at entry {place}"
    if reason in _OF_LABELS:
        labels = block.labels[row]
        return f": {labels[0] if len(labels) == 1 else labels}"
    if reason in _OF_WEIGHTS:
        return f": {block.weights[row]}"
    return f": {block.offsets[row]}" if reason in _OF_OFFSETS else ""


def _entries(block: RowBlock, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
    span = slice(int(block.bounds[row]), int(block.bounds[row + 1]))
    indices, values = (_NOTHING if array is None else array[span] for array in (block.indices, block.values))
    return indices, values


def _first_not_float32(values: NDArray[Any]) -> int:
    return int(np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))[0])


def _first_repeated(indices: NDArray[Any]) -> int:
    unique, counts = np.unique(indices, return_counts=True)
    return int(unique[counts > 1][0])
