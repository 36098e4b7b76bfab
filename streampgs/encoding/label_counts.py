"""How often each value occurs in a label column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.options.commands import LabelType

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
    """Of the column; predictions have it, too."""

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
