"""The two loops over the entries of a row for p = 2, where the numbers of a feature are processed as one vector.

`coordinates` has a row for the intercept and then one for each feature: `lanes` values of λ, then, with averaging, as
many of u. Both loops are written for vector registers: the numbers of a feature are in one or a few cache lines, but in
a plain loop the compiler would load them one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from streampgs.kernels.jit import WITHOUT_COMPILER, inlinable, reordering

_INT32, _INT64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_ELEMENT_BYTES = 8
_CONTRACT = ("contract",)  # a product and the sum that it is added to may be rounded once


@cache
def row_loops(lanes: int, columns: int, sparse: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    """dot and add, for rows of `columns` numbers a feature.

    dot(coordinates, indices, values, start, stop, sums): sums[l] = Σ_j values[j]·λ[feature j, lane l].
    add(coordinates, indices, values, start, stop, steps): coordinates[feature j, :] += values[j]·steps, for each j.
    The feature of entry j is indices[j], or j - start where rows are dense.
    """
    if lanes == 1 and not sparse and not WITHOUT_COMPILER:
        return _contiguous_dot, _contiguous_add_for(columns)
    accumulators = 4 if lanes == 1 else 2

    @inlinable
    def dot(coordinates, indices, values, start, stop, sums):  # type: ignore[no-untyped-def]
        dot_vectors(coordinates, indices, values, start, stop, sums, lanes, columns, sparse, accumulators)

    @inlinable
    def add(coordinates, indices, values, start, stop, steps):  # type: ignore[no-untyped-def]
        add_vectors(coordinates, indices, values, start, stop, steps, columns, sparse)

    return dot, add


# The plain forms run if the compiler is disabled, and the closures of the loops refer to them. An intrinsic would be a
# different object in each process, so the compiled code would never be found in the cache.


def dot_vectors(coordinates, indices, values, start, stop, sums, lanes, columns, sparse, accumulators):  # type: ignore[no-untyped-def]
    features = indices[start:stop] if sparse else np.arange(stop - start)
    sums[:] = values[start:stop].astype(np.float64) @ coordinates[1:][features, :lanes]


def add_vectors(coordinates, indices, values, start, stop, steps, columns, sparse):  # type: ignore[no-untyped-def]
    features = indices[start:stop] if sparse else np.arange(stop - start)
    coordinates[1:][features] += np.outer(values[start:stop].astype(np.float64), steps)


# Dense rows of one lane: λ and u are separate arrays (columns in Fortran order), so plain loops already read contiguous
# memory.


@reordering
def _contiguous_dot(coordinates, indices, values, start, stop, sums):  # type: ignore[no-untyped-def]
    duals = coordinates[1:, 0]
    total = 0.0
    for j in range(np.uint64(stop - start)):
        total += duals[j] * values[np.uint64(start) + j]
    sums[0] = total


def _contiguous_add_for(columns: int) -> Callable[..., None]:
    @inlinable
    def contiguous_add(coordinates, indices, values, start, stop, steps):  # type: ignore[no-untyped-def]
        for column in range(columns):
            step = steps[column]
            numbers = coordinates[1:, column]
            for j in range(np.uint64(stop - start)):
                numbers[j] += step * values[np.uint64(start) + j]

    made: Callable[..., None] = contiguous_add
    return made


class _RowVectors:
    """Emits the parts of both loops."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any, columns: int, sparse: bool) -> None:
        self.builder = builder
        coordinates, indices, values, start, stop, numbers = arguments[:6]
        self.features, self.indices, self.values, self.numbers = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(
                (signature.args[0], signature.args[1], signature.args[2], signature.args[5]),
                (coordinates, indices, values, numbers),
                strict=True,
            )
        )
        self.start, self.stop = start, stop
        self.columns = columns
        self.sparse = sparse

    def value(self, entry: Any) -> Any:
        return self.builder.fpext(self.builder.load(self.builder.gep(self.values, [entry])), _DOUBLE)

    def place(self, entry: Any, width: int) -> Any:
        """Where the first `width` numbers of the entry's feature lie; feature 0 has the second row."""
        b = self.builder
        feature = b.zext(b.load(b.gep(self.indices, [entry])), _INT64) if self.sparse else b.sub(entry, self.start)
        offset = b.mul(b.add(feature, _INT64(1)), _INT64(self.columns))
        return b.bitcast(b.gep(self.features, [offset]), ir.VectorType(_DOUBLE, width).as_pointer())

    def spread(self, number: Any, width: int) -> Any:
        """A vector of `width` times the number."""
        nothing = ir.Constant(ir.VectorType(_DOUBLE, width), ir.Undefined)
        first = self.builder.insert_element(nothing, number, _INT32(0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, width), [0] * width))

    def load(self, place: Any) -> Any:
        loaded = self.builder.load(place)
        loaded.align = _ELEMENT_BYTES
        return loaded

    def store(self, vector: Any, place: Any) -> None:
        self.builder.store(vector, place).align = _ELEMENT_BYTES

    def sum_with_product(self, total: Any, left: Any, right: Any) -> Any:
        return self.builder.fadd(total, self.builder.fmul(left, right, flags=_CONTRACT), flags=_CONTRACT)

    def vector_of_numbers(self, width: int) -> Any:
        """The place of the last argument's first numbers, as one vector."""
        return self.builder.bitcast(self.numbers, ir.VectorType(_DOUBLE, width).as_pointer())


def _signature(arguments: tuple[Any, ...], choices: tuple[Any, ...]) -> Any:
    coordinates, indices, values, numbers = arguments
    return types.void(coordinates, indices, values, types.int64, types.int64, numbers, *choices)


@intrinsic(prefer_literal=True)
def _dot_vectors(typingctx, coordinates, indices, values, start, stop, sums, lanes, columns, sparse, accumulators):  # type: ignore[no-untyped-def]
    lane_count, sum_count = lanes.literal_value, accumulators.literal_value

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        row = _RowVectors(context, builder, signature, arguments, columns.literal_value, sparse.literal_value)
        nothing = ir.Constant(ir.VectorType(_DOUBLE, lane_count), [0.0] * lane_count)
        totals = [cgutils.alloca_once(builder, nothing.type) for _ in range(sum_count)]
        for total in totals:
            builder.store(nothing, total)

        def take_up(entry: Any, total: Any) -> None:
            duals = row.load(row.place(entry, lane_count))
            factor = row.spread(row.value(entry), lane_count)
            builder.store(row.sum_with_product(builder.load(total), duals, factor), total)

        rounds = builder.udiv(builder.sub(row.stop, row.start), _INT64(sum_count))
        with cgutils.for_range(builder, rounds) as loop:
            first = builder.add(row.start, builder.mul(loop.index, _INT64(sum_count)))
            for number, total in enumerate(totals):
                take_up(builder.add(first, _INT64(number)), total)
        done = builder.add(row.start, builder.mul(rounds, _INT64(sum_count)))
        with cgutils.for_range(builder, builder.sub(row.stop, done)) as loop:
            take_up(builder.add(done, loop.index), totals[0])
        parts = [builder.load(total) for total in totals]
        while len(parts) > 1:
            parts = [builder.fadd(parts[k], parts[k + 1]) for k in range(0, len(parts), 2)]
        row.store(parts[0], row.vector_of_numbers(lane_count))
        return context.get_dummy_value()

    return _signature((coordinates, indices, values, sums), (lanes, columns, sparse, accumulators)), generate


@intrinsic(prefer_literal=True)
def _add_vectors(typingctx, coordinates, indices, values, start, stop, steps, columns, sparse):  # type: ignore[no-untyped-def]
    width = columns.literal_value

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        row = _RowVectors(context, builder, signature, arguments, width, sparse.literal_value)
        change = row.load(row.vector_of_numbers(width))
        with cgutils.for_range(builder, builder.sub(row.stop, row.start)) as loop:
            entry = builder.add(row.start, loop.index)
            place = row.place(entry, width)
            factor = row.spread(row.value(entry), width)
            row.store(row.sum_with_product(row.load(place), change, factor), place)
        return context.get_dummy_value()

    return _signature((coordinates, indices, values, steps), (columns, sparse)), generate


@overload(dot_vectors, prefer_literal=True, jit_options={"forceinline": True})
def _dot_vectors_compiled(coordinates, indices, values, start, stop, sums, lanes, columns, sparse, accumulators):  # type: ignore[no-untyped-def]
    width, row, listed, parts = (int(choice.literal_value) for choice in (lanes, columns, sparse, accumulators))

    def dot(coordinates, indices, values, start, stop, sums, lanes, columns, sparse, accumulators):  # type: ignore[no-untyped-def]
        _dot_vectors(coordinates, indices, values, start, stop, sums, width, row, listed, parts)  # type: ignore[call-arg]

    return dot


@overload(add_vectors, prefer_literal=True, jit_options={"forceinline": True})
def _add_vectors_compiled(coordinates, indices, values, start, stop, steps, columns, sparse):  # type: ignore[no-untyped-def]
    row, listed = int(columns.literal_value), int(sparse.literal_value)

    def add(coordinates, indices, values, start, stop, steps, columns, sparse):  # type: ignore[no-untyped-def]
        _add_vectors(coordinates, indices, values, start, stop, steps, row, listed)  # type: ignore[call-arg]

    return add
