"""Numbers, booleans and times: one standardized value, cycles of dates, and a flag for null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.kinds.kind import Arrays, Column, NumberKind, RowMarks, arrays_of, matches
from streampgs.encoding.scales import LARGEST_NUMBER, standard
from streampgs.kernels.encoder_loop import standardize
from streampgs.kernels.jit import frozen
from streampgs.options.commands import EncodingOptions

CYCLES = {"hour of day": 86400.0, "day of week": 7 * 86400.0, "day of year": 365.2425 * 86400.0}


class Number(NumberKind):
    name, plural = "number", "numbers"
    takes = (types.NUMBER, *types.TIMES)
    modifiers: ClassVar = {
        "cyclic": ((types.TIME, types.ZONED, types.TIME_OF_DAY), "it is for dates, timestamps and times of day")
    }

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        cyclic = matches(column.name, options.cyclic)
        found = replace(column, width=_width(cyclic, options.null_flags), null_flag=options.null_flags, cyclic=cyclic)
        if options.standardize == "off":
            return found
        known = [np.empty(0), *(finite_values(array) for array in arrays_of(sample, column.name))]
        centre, scale = standard(np.concatenate(known))
        return replace(found, centre=(centre,), scale=(scale,))

    def has_values(self, column: Column, sample: Sequence[Arrays]) -> bool:
        return any(finite_values(array).size for array in arrays_of(sample, column.name))

    def hints(self, column: Column, sample: Sequence[Arrays]) -> list[str]:
        if not any(_has_inexact(array) for array in arrays_of(sample, column.name)):
            return []
        return [
            f"column '{column.name}' holds whole numbers of 2^53 or more, which are rounded as numbers: `--category "
            f"{column.name}` takes each as a value of its own, `--ignore {column.name}` leaves it out"
        ]

    def values_per_row(self, column: Column) -> int:
        return 1

    def fill(self, column: Column, array: pa.Array, out: NDArray[np.float32], marks: RowMarks) -> None:
        array = types.undictionaried(array)
        values, nulls = types.numbers_of(array), types.nulls_of(array)
        # Rows are checked for infinity and NaN where they are placed.
        with np.errstate(over="ignore", invalid="ignore"):
            if column.scale:
                self._standardize(column, frozen(np.asarray(values, np.float64)), nulls, out[:, 0], marks)
            else:
                out[:, 0] = values
            for number, period in enumerate(CYCLES.values() if column.cyclic else ()):
                turns = (values / period) % 1.0 * (2.0 * np.pi)
                out[:, 1 + 2 * number] = np.sin(turns)
                out[:, 2 + 2 * number] = np.cos(turns)
        if nulls is not None:
            out[nulls] = 0.0
        if column.null_flag:
            out[:, -1] = 0.0 if nulls is None else nulls

    def _standardize(
        self,
        column: Column,
        values: NDArray[np.float64],
        nulls: NDArray[np.bool_] | None,
        out: NDArray[np.float32],
        marks: RowMarks,
    ) -> None:
        no_row_is_null = np.empty(0, np.bool_)
        first = standardize(
            values, frozen(no_row_is_null if nulls is None else nulls), column.centre[0], column.scale[0], LARGEST_NUMBER,
            out, marks.clipped,
        )  # fmt: skip
        if first < len(values):
            marks.examples.setdefault(column.name, (first, float(values[first])))

    def name_of(self, column: Column, place: int) -> str:
        cycles = tuple(CYCLES) if column.cyclic else ()
        waves = (f"{column.name} {wave} of {cycle}" for cycle in cycles for wave in ("sine", "cosine"))
        return [column.name, *waves, f"{column.name} is null"][place]


def _width(cyclic: bool, null_flag: bool) -> int:
    return 1 + 2 * len(CYCLES) * cyclic + null_flag


def finite_values(array: pa.Array) -> NDArray[np.float64]:
    values = types.floats_of(array)
    return values[np.isfinite(values)]


def _has_inexact(array: pa.Array) -> bool:
    array = types.undictionaried(array)
    if not pa.types.is_integer(array.type) or array.type.bit_width < 64:
        return False
    return bool((np.abs(types.floats_of(array)) >= 2.0**53).any())  # false for null
