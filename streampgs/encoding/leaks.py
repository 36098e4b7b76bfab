"""Columns that alone predict the label in a sample: they may have been written after the label was known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.kinds.category import Category
from streampgs.encoding.kinds.kind import Arrays, Column, row_count
from streampgs.encoding.kinds.number import Number
from streampgs.encoding.labels import LabelSpec

_SUSPICIOUS = 0.999  # share of the rows, or of the variance
_FEWEST_ROWS, _MOST_ROWS = 500, 1 << 13
_FEWEST_OF_A_CLASS = 20
_MOST_MISSED = (
    0.05  # of the rows that are not of the most frequent class: with rare positives every guess is mostly right
)
_GLANCE_ROWS, _GLANCE_ERRORS = 256, 3
_MOST_BATCHES, _MOST_ARRAYS = 16, 1 << 12
_ROWS_PER_VALUE = 10  # of a number that may be a code
_SOME = 8
_NOTED = 3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Rows:
    """Rows from all parts of a sample, and the usable labels among them."""

    batches: Sequence[Arrays]
    used: NDArray[np.bool_]
    targets: Floats

    def _parts(self, column: Column) -> list[pa.Array]:
        found = (types.leaf_if_there(batch, column.name) for batch in self.batches)
        rows = map(row_count, self.batches)
        return [pa.nulls(count) if part is None else part for part, count in zip(found, rows, strict=True)]

    def numbers(self, column: Column) -> Floats:
        """Null and values that are not finite become NaN."""
        found = np.concatenate([types.floats_of(part) for part in self._parts(column)])[self.used]
        return np.where(np.isfinite(found), found, np.nan)

    def codes(self, column: Column) -> Ints:
        """A number for each different value."""
        texts = [types.as_text(types.undictionaried(part)).cast(pa.large_string()) for part in self._parts(column)]
        coded = pa.concat_arrays(texts).dictionary_encode()
        return np.asarray(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)[self.used]


def leak_notes(
    columns: Sequence[Column], labels: Sequence[tuple[str, LabelSpec]], classifies: bool, sample: Sequence[Arrays]
) -> list[str]:
    """`labels`: the label columns and how their values become numbers."""
    columns = [column for column in columns if column.kind in (Number.name, Category.name)]
    batches = _some(sample, len(columns))
    notes = []
    for name, spec in labels:
        rows = _rows(batches, name, spec, classifies)
        if len(rows.targets) >= _FEWEST_ROWS:
            notes += _of_label(rows, name, columns, classifies)
    return notes


def _some(sample: Sequence[Arrays], columns: int) -> list[Arrays]:
    """A few batches from all parts of the sample, so that the time does not depend on its size."""
    most = max(1, min(_MOST_BATCHES, _MOST_ARRAYS // max(1, columns)))
    chosen = sample[:: -(-len(sample) // most)] if sample else []
    rows = -(-_MOST_ROWS // max(1, len(chosen)))
    return [{name: array[:rows] for name, array in batch.items()} for batch in chosen]


def _rows(batches: Sequence[Arrays], label: str, spec: LabelSpec, classifies: bool) -> _Rows:
    if not batches:
        return _Rows(batches, np.zeros(0, np.bool_), np.zeros(0))
    codes = np.concatenate([types.floats_of(spec.codes(types.leaf(batch, label))) for batch in batches])
    used = np.isfinite(codes)
    targets = codes
    if classifies:
        targets, unknown, _ = spec.targets(np.where(used, codes, 0.0))
        used &= ~unknown
    return _Rows(batches, used, targets[used])


def _of_label(rows: _Rows, label: str, columns: Sequence[Column], classifies: bool) -> list[str]:
    if not classifies:
        if not np.ptp(rows.targets):
            return []
        shares = {column.name: _explained(rows, column) for column in columns}
        found = {name: share for name, share in shares.items() if share >= _SUSPICIOUS}
        return _notes(found, lambda share: f"explains {share:.4f} of the variance of '{label}'")
    _, classes = np.unique(rows.targets, return_inverse=True)
    count = len(classes)
    others = count - int(np.bincount(classes).max(initial=0))
    if others < _FEWEST_OF_A_CLASS:
        return []
    most = min((1.0 - _SUSPICIOUS) * count, _MOST_MISSED * others)
    found = {}
    for column in columns:
        errors = _errors(rows, column, classes, most)
        if errors <= most:
            found[column.name] = 1.0 - errors / count
    usual = 1.0 - others / count
    return _notes(
        found,
        lambda share: f"predicts '{label}' in {share:.4f} of the sampled rows (the most frequent class: {usual:.4f})",
    )


def _errors(rows: _Rows, column: Column, classes: Ints, most: float) -> int:
    if column.kind == Category.name:
        return errors_by_value(rows.codes(column), classes)
    numbers = rows.numbers(column)
    step = max(1, len(classes) // _GLANCE_ROWS)
    two = classes.max() == 1
    if two and errors_by_threshold(numbers[::step], classes[::step]) <= _GLANCE_ERRORS:
        errors = errors_by_threshold(numbers, classes)
        if errors <= most:
            return errors
    if len(np.unique(numbers[::_SOME])) * _ROWS_PER_VALUE > len(numbers):  # seen without sorting all of them
        return len(classes)
    different, values = np.unique(numbers, return_inverse=True)
    if (len(different) <= 2 and two) or len(different) * _ROWS_PER_VALUE > len(values):
        return len(classes)
    return errors_by_value(values, classes)


def errors_by_threshold(numbers: Floats, classes: Ints) -> int:
    """Wrong rows if one of two classes is predicted above a threshold and the other one below, at the best threshold.
    Null has a prediction of its own."""
    null = np.isnan(numbers)
    errors = int(np.bincount(classes[null], minlength=2).min())
    numbers, classes = numbers[~null], classes[~null]
    order = np.argsort(numbers, kind="stable")
    numbers, classes = numbers[order], classes[order]
    ends = np.append(numbers[1:] != numbers[:-1], True) if len(numbers) else np.zeros(0, np.bool_)
    ones_below = np.cumsum(classes)
    ones, below = int(classes.sum()), np.arange(1, len(classes) + 1)
    wrong = ones_below + (len(classes) - below) - (ones - ones_below)  # ones below, zeros above
    best = np.minimum(wrong, len(classes) - wrong)[ends]
    return errors + int(min(best.min(initial=len(classes)), ones, len(classes) - ones))


def errors_by_value(values: Ints, classes: Ints) -> int:
    """Wrong rows if the class is that of most other rows with the same value; a value without other rows tells nothing."""
    values = values - values.min()
    pairs, counts = np.unique(values * (classes.max() + 1) + classes, return_counts=True)
    values = pairs // (classes.max() + 1)
    order = np.lexsort((-counts, values))
    values, counts = values[order], counts[order]
    first = np.append(True, values[1:] != values[:-1])
    starts = np.flatnonzero(first)
    seconds = np.append(counts, 0)[np.minimum(starts + 1, len(counts))]
    has_second = np.append(~first, False)[starts + 1]
    rivals = np.where(has_second, seconds, 0)
    # Without its own row, the largest class of a value must still be the largest.
    right = counts[starts] - 1 > rivals
    return int(counts.sum() - counts[starts][right].sum())


def _explained(rows: _Rows, column: Column) -> float:
    """The share of the variance of the labels."""
    if column.kind == Category.name:
        return explained_by_value(rows.codes(column), rows.targets)
    return explained_by_line(rows.numbers(column), rows.targets)


def explained_by_line(numbers: Floats, targets: Floats) -> float:
    """By a straight line; null counts as the mean."""
    known = ~np.isnan(numbers)
    if not known.any():
        return 0.0
    largest = np.abs(numbers[known]).max() or 1.0
    x = np.where(known, numbers / largest, 0.0)
    x = np.where(known, x - x[known].mean(), 0.0)
    y = targets / (np.abs(targets).max() or 1.0)
    y = y - y.mean()
    size = float((x @ x) * (y @ y))
    return float(x @ y) ** 2 / size if size > 0.0 else 0.0


def explained_by_value(values: Ints, targets: Floats) -> float:
    """By the mean of the other rows with the same value."""
    _, places = np.unique(values, return_inverse=True)
    y = targets / (np.abs(targets).max() or 1.0)
    y = y - y.mean()
    sums, counts = np.bincount(places, y), np.bincount(places)
    others = counts[places] - 1
    guesses = np.where(others > 0, (sums[places] - y) / np.maximum(1, others), 0.0)
    return 1.0 - float(((y - guesses) ** 2).sum()) / float((y**2).sum())


def _notes(found: dict[str, float], finding: Callable[[float], str]) -> list[str]:
    worst = sorted(found, key=lambda name: -found[name])
    notes = [
        f"column '{name}' alone {finding(found[name])}: it may contain the label. If it is not known in advance: "
        f"`--ignore {name}`"
        for name in worst[:_NOTED]
    ]
    if len(worst) > _NOTED:
        notes[-1] += f"; {len(worst) - _NOTED} more columns are like this"
    return notes
