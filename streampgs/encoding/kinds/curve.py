"""Curves of numbers: piecewise linear functions, next to the number itself, which is a feature of its own.

A number has two features of its curve, those of the knots on either side of it, with the shares that say how near they are. So
the curve of a column is its weights at the knots, joined by straight lines, and level beyond the last ones. Knots are
quantiles of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.kinds.kind import CURVES, Arrays, Column, FixedKind, arrays_of, row_count
from streampgs.encoding.kinds.number import Number, finite_values
from streampgs.kernels.encoder_loop import between_knots
from streampgs.kernels.jit import frozen
from streampgs.options.commands import EncodingOptions

_FEWEST_KNOTS, _FEW_KNOTS, _KNOTS = 3, 8, 16
_MANY_ROWS, _LOOKED_AT = 5_000, 1 << 12
_OUTER = 0.005
"""The share of values beyond the last knot, on each side."""


class Curve(FixedKind):
    name, plural = "curve", "curves"
    section = CURVES
    of_others = True
    usual_work = 6.0

    def combined(
        self, columns: list[Column], leaves: Mapping[str, pa.DataType], options: EncodingOptions
    ) -> list[Column]:
        if options.numbers != "curves":
            return columns
        numbers = [column for column in columns if column.kind == Number.name]
        curves = [Column(f"curve of {one.name}", self.name, one.holds, (one.name,)) for one in numbers]
        return [
            *columns,
            *(curve for curve in curves if curve.name not in leaves),
        ]  # two columns of one name are ambiguous

    def fits(self, column: Column, holds: str | None) -> bool:
        return True  # its column is a number, which is checked itself

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        """Without a feature if the sample has too few different values."""
        most = _KNOTS if sum(map(row_count, sample)) >= _MANY_ROWS else _FEW_KNOTS
        knots = knots_of(arrays_of(sample, column.parts[0]), most, _FEWEST_KNOTS)
        return replace(column, width=len(knots), knots=(tuple(knots.tolist()),))

    def has_values(self, column: Column, sample: Sequence[Arrays]) -> bool:
        return True  # the number itself decides

    def name_of(self, column: Column, place: int) -> str:
        return f"{column.parts[0]} near {column.knots[0][place]:.6g}"


def next_knots(
    knots: NDArray[np.float64], first: int, array: pa.Array, features: NDArray[np.uint32], shares: NDArray[np.float32]
) -> None:
    """For each row the feature of the knot before its number, and how near the number is to the next knot. `first`: the
    feature of the first knot."""
    array = types.undictionaried(array)
    nulls = types.nulls_of(array)
    between_knots(
        frozen(np.asarray(types.numbers_of(array), np.float64)),
        frozen(np.empty(0, np.bool_) if nulls is None else nulls), knots, np.uint32(first), features, shares,
    )  # fmt: skip


def knots_of(arrays: Iterable[pa.Array], most: int, fewest: int) -> NDArray[np.float64]:
    """Quantiles at equal distances, or all different values if they are not more; empty if there are too few."""
    values = np.concatenate([np.empty(0), *map(finite_values, arrays)])
    different = np.unique(values[:_LOOKED_AT])
    if len(different) > most or not np.isin(values, different).all():
        shares = np.linspace(_OUTER, 1.0 - _OUTER, most)
        different = np.unique(np.quantile(values, shares, method="inverted_cdf"))
    return different if len(different) >= fewest else np.empty(0)
