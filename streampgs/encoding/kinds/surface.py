"""Crosses with numbers: each pair of a value of one column and a value of the other, where a number stands for the two knots
next to it. So two numbers have a surface, and a number has a curve for each category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook
from streampgs.encoding.feature_names import Named
from streampgs.encoding.kinds.curve import knots_of, next_knots
from streampgs.encoding.kinds.kind import Arrays, BagKind, Column, Entries, RowMarks, arrays_of, is_there
from streampgs.encoding.kinds.number import Number
from streampgs.kernels.hashing import NO_CODE
from streampgs.options.commands import EncodingOptions

_KNOTS = 8
SURFACE, BETWEEN_KINDS = "surface", "+"


@dataclass(frozen=True)
class _Side:
    """A value of each row, or the share of one."""

    hashes: NDArray[np.uint32]
    shares: NDArray[np.float32]
    texts: pa.Array


class Surface(BagKind):
    name, plural = SURFACE, "surfaces"
    of_others = True
    usual_work: ClassVar[float] = 12.0

    def fits(self, column: Column, holds: str | None) -> bool:
        return True  # its two columns are used on their own as well, and checked there

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        """`holds` has the kinds of the two columns. A number with few different values has each of them as a knot."""
        knots = [
            tuple(knots_of(arrays_of(sample, name), _KNOTS, 2).tolist()) if kind == Number.name else ()
            for name, kind in zip(column.parts, column.holds.split(BETWEEN_KINDS), strict=True)
        ]
        return replace(column, knots=tuple(knots))

    def has_values(self, column: Column, sample: Sequence[Arrays]) -> bool:
        return True  # as above

    def bag(self, book: Codebook, column: Column, arrays: Arrays, marks: RowMarks) -> Entries:
        codes, values = [], []
        for first, second in _pairs(book, column, arrays):
            found = book.pair_codes(first.hashes, second.hashes, column.name)
            codes.append(found & np.uint32(NO_CODE >> 1))
            values.append(
                first.shares * second.shares * np.where(found >> np.uint32(31), np.float32(-1), np.float32(1))
            )
        products = np.stack(values, axis=1)
        kept = products != 0.0
        offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
        return offsets, np.stack(codes, axis=1)[kept], products[kept]

    def keys(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[NDArray[np.uint64]]:
        if is_there(column, arrays):
            for first, second in _pairs(book, column, arrays):
                yield book.pair_keys(first.hashes, second.hashes, column.name)

    def named(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[Named]:
        for first, second in _pairs(book, column, arrays):
            codes = book.pair_codes(first.hashes, second.hashes, column.name)
            keys = book.pair_keys(first.hashes, second.hashes, column.name)
            yield Named.of_pairs(codes, keys, [*zip(column.parts, (first.texts, second.texts), strict=True)])


def _pairs(book: Codebook, column: Column, arrays: Arrays) -> Iterator[tuple[_Side, _Side]]:
    firsts, seconds = (
        _sides(book, name, knots, types.leaf(arrays, name))
        for name, knots in zip(column.parts, column.knots, strict=True)
    )
    return ((first, second) for first in firsts for second in seconds)


def _sides(book: Codebook, name: str, knots: tuple[float, ...], array: pa.Array) -> list[_Side]:
    """A category has one value; a number has two knots, and null is a value of its own."""
    rows = len(array)
    if len(knots) < 2:
        texts = types.as_text(types.undictionaried(array))
        return [_Side(book.hashes_of(array, name), np.ones(rows, np.float32), texts)]
    features, shares = np.empty(rows, np.uint32), np.zeros(rows, np.float32)
    next_knots(np.asarray(knots), 0, array, features, shares)
    is_null = features == NO_CODE
    labels = pa.array([f"{knot:.6g}" for knot in knots])
    sides = []
    for more, share in (
        (0, np.where(is_null, np.float32(1), 1 - shares)),
        (1, np.where(is_null, np.float32(0), shares)),
    ):
        places = np.where(is_null, len(knots), np.minimum(features + np.uint32(more), len(knots) - 1))
        sides.append(
            _Side(places.astype(np.uint32), share.astype(np.float32), labels.take(pa.array(places, mask=is_null)))
        )
    return sides
