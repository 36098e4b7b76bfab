"""Labels: how often each value occurs, and the number that each label becomes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.losses import LOSSES
from streampgs.options.commands import LabelType, ModelOptions

# Why a row's label cannot be used: see table.layout for the other reasons.
LABEL_NULL, LABEL_NOT_FINITE, LABEL_NO_CLASS, LABEL_UNKNOWN_CLASS, LABEL_TOO_LOW = 16, 17, 18, 23, 25
LABEL_TOO_LARGE = 27
LARGEST_LABEL = 1e70
"""The largest number to predict, and the largest offset: training squares their products with features and weights."""

_UNKNOWN = -2.0  # the code of a string that is not a class
DEFAULT_LABELS = (-1.0, 0.0, 1.0)


@dataclass(frozen=True)
class LabelSpec:
    """How the labels of one column become numbers.

    First a label becomes a code: a number stays as it is, a string becomes its place among the known strings. Then a
    classifier's codes become -1 and +1, or the number of the class if there are more than two.
    """

    classes: tuple[float | str, ...] | None = None
    """In the order of their numbers; of two, the negative one first. None: 1 against 0 and -1."""
    positive: float | str | None = None
    """This class against all others."""
    weights: tuple[float, ...] = ()
    """A factor for the rows of each class; empty: 1."""
    lowest: float = -math.inf
    """The lowest label that is a number: smaller ones are refused."""

    @property
    def textual(self) -> bool:
        return isinstance(self.positive if self.classes is None else self.classes[0], str)

    def codes(self, array: pa.Array) -> pa.Array:
        """Float64; null stays null."""
        if not self.textual:
            return types.as_float64(array)
        array = types.undictionaried(array)
        known = (self.positive,) if self.classes is None else self.classes
        places = pc.index_in(array.cast(pa.large_string()), pa.array(known, pa.large_string()))
        if self.classes is None:
            codes = places.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
        else:
            codes = places.cast(pa.float64()).fill_null(_UNKNOWN).to_numpy(zero_copy_only=False)
        return pa.array(codes, mask=types.nulls_of(array))

    def targets(
        self, codes: NDArray[np.float64], known: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
        """What a classifier learns from these codes; which codes are not classes, and the reason's number.

        `known`: how many classes there were when the shard joined. A later class does not change its rows, because the
        rows of an open window must not change."""
        if self.classes is not None:
            count = len(self.classes)
            labels = np.arange(count, dtype=np.float64) if self.textual else np.array(self.classes, np.float64)
            order = np.argsort(labels)
            numbers = order[np.minimum(np.searchsorted(labels, codes, sorter=order), count - 1)]
            unknown = (labels[numbers] != codes) | (numbers >= (known or count))
            return np.asarray(numbers * 2.0 - 1.0 if count == 2 else numbers, np.float64), unknown, LABEL_UNKNOWN_CLASS
        if self.positive is not None:
            positive = 1.0 if self.textual else self.positive
            return np.where(codes == positive, 1.0, -1.0), np.zeros(len(codes), np.bool_), 0
        return np.where(codes == 1.0, 1.0, -1.0), ~np.isin(codes, DEFAULT_LABELS), LABEL_NO_CLASS

    def factors(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights of rows by their classes."""
        numbers = targets > 0.0 if len(self.weights) == 2 else targets
        return np.array(self.weights)[numbers.astype(np.intp)]

    def is_unknown_text(self, code: float) -> bool:
        """Whether the code is that of a string that is not a class."""
        return self.textual and self.classes is not None and code == _UNKNOWN


def label_specs(options: ModelOptions) -> tuple[LabelSpec, ...]:
    """One for each label column."""
    if not options.classifies:
        lowest = max(LOSSES[loss].lowest_label for loss in options.losses)
        return tuple(LabelSpec(lowest=lowest) for _ in options.labels)
    if len(options.labels) > 1:
        pairs = options.label_pairs or (None,) * len(options.labels)
        return tuple(LabelSpec(pair if pair is not None and isinstance(pair[0], str) else None) for pair in pairs)
    weights = options.class_weight if isinstance(options.class_weight, tuple) else ()
    return (LabelSpec(options.classes, options.positive, weights),)


def label_text(label: float | str) -> str:
    if isinstance(label, str):
        return f"'{label}'"
    return str(int(label)) if label == int(label) else repr(label)


def listed(found: Sequence[Any]) -> str:
    """The first labels, for messages."""
    return ", ".join(map(label_text, found[:6])) + (", …" if len(found) > 6 else "")


MOST_CLASSES = 10_000
_FIRST_INEXACT = 2.0**53  # float64 holds all smaller whole numbers


@dataclass(frozen=True)
class LabelCounts:
    """The different values of a label column, in ascending order, and how often each occurs."""

    column: str
    textual: bool
    values: tuple[Any, ...]
    counts: NDArray[np.int64]
    complete: bool = False
    """Whether the whole column was read, and not a sample of it."""
    inexact: bool = False
    """Whether there are whole numbers that float64 does not distinguish."""
    kind: LabelType = "number"
    """The type of the column; predictions have it, too."""

    @staticmethod
    def of(column: str, arrays: Iterable[pa.Array]) -> LabelCounts:
        """Null, NaN and infinite labels are not counted. Too many different values are not counted to the end."""
        tally = LabelTally(column)
        for array in arrays:
            tally.add(array)
            if tally.is_full:
                break
        return tally.result(complete=False)

    @property
    def too_many(self) -> bool:
        """Whether the values cannot be classes, and were not counted to the end."""
        return len(self.values) > MOST_CLASSES

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def first_odd(self) -> float | None:
        """The first value that is not a whole number."""
        return None if self.textual else next((value for value in self.values if value != round(value)), None)

    @property
    def where(self) -> str:
        return "" if self.complete else " in the sample"

    def rows(self, value: float | str) -> int:
        return int(self.counts[self.values.index(value)]) if value in self.values else 0

    def share(self, *values: float) -> float:
        return sum(self.rows(value) for value in values) / self.total if self.total else 1.0


class LabelTally:
    """Counts the values of a label column array by array. Its memory depends on the different values alone."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._counts: Counter[Any] = Counter()
        self._textual: bool | None = None
        """Whether the column holds strings; None: no value was seen."""
        self._inexact = False
        self._types: set[LabelType] = set()

    @property
    def is_full(self) -> bool:
        return len(self._counts) > MOST_CLASSES

    def add(self, array: pa.Array) -> None:
        array = types.plain(array).drop_null()
        if not len(array):
            return
        textual = types.class_of(array.type) == types.STRING
        if self._textual not in (None, textual):
            raise DataError(
                f"label column '{self._column}' holds strings in some shards and numbers in others",
                "write the same type everywhere",
            )
        self._textual = textual
        for value, count in zip(*(self._texts(array) if textual else self._numbers(array)), strict=True):
            self._counts[value] += count

    def _texts(self, array: pa.Array) -> tuple[list[Any], list[int]]:
        try:
            if pa.types.is_dictionary(array.type):
                array.dictionary.validate(full=True)
            array.validate(full=True)
        except pa.ArrowInvalid as fault:
            found = f"label column '{self._column}' holds a string that is not valid UTF-8: {fault}"
            raise DataError(found, "fix the label") from fault
        found = pc.value_counts(array)
        return types.undictionaried(found.field("values")).to_pylist(), found.field("counts").to_pylist()

    def _numbers(self, array: pa.Array) -> tuple[list[Any], list[int]]:
        kind = types.undictionaried(array[:0]).type
        whole: LabelType = "integer" if pa.types.is_integer(kind) else "number"
        self._types.add("boolean" if pa.types.is_boolean(kind) else whole)
        numbers = np.asarray(types.numbers_of(array), np.float64)
        if not pa.types.is_floating(kind):
            self._inexact |= bool((np.abs(numbers) >= _FIRST_INEXACT).any())
        found, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
        return found.tolist(), counts.tolist()

    def result(self, complete: bool) -> LabelCounts:
        values = tuple(sorted(self._counts))
        counts = np.array([self._counts[value] for value in values], np.int64)
        kind: LabelType = "integer" if self._types and "number" not in self._types else "number"
        kind = "string" if self._textual else "boolean" if self._types == {"boolean"} else kind
        return LabelCounts(self._column, bool(self._textual), values, counts, complete, self._inexact, kind)
