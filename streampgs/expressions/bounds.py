"""Which values a condition can have in a group of rows, by the least and the greatest value of each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag
from functools import reduce
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.expressions.expression import Computed, Expression, Fixed, Read, Typed
from streampgs.expressions.functions import applied
from streampgs.expressions.values import plain_type, plain_values

_ORDERS = ("<", "<=", ">", ">=")


class Outcomes(Flag):
    """The values that rows may have."""

    NEVER = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = TRUE | FALSE | NULL


@dataclass(frozen=True)
class Bounds:
    """Of a column in a group."""

    ends: pa.Array | None
    """The least and the greatest value, of the column's type; None: all values are null."""
    nulls: bool
    """Whether a value may be null."""


def outcomes(expression: Expression, leaves: Mapping[str, pa.DataType], bounds: Mapping[str, Bounds]) -> Outcomes:
    """`bounds` of the columns that have some."""
    return _Outcomes(bounds).of(expression.typed(leaves))


@dataclass(frozen=True)
class _Outcomes:
    bounds: Mapping[str, Bounds]

    def of(self, node: Typed) -> Outcomes:
        if isinstance(node, Fixed):
            return _outcome(node.value.as_py()) if pa.types.is_boolean(node.type) else Outcomes.ANY
        if isinstance(node, Read):
            return self._of_column(node, pa.scalar(True))
        if node.name in ("and", "or"):
            join = pc.and_kleene if node.name == "and" else pc.or_kleene
            return reduce(lambda one, other: _joined(join, one, other), map(self.of, node.args))
        if node.name == "not":
            return _joined(pc.xor, self.of(node.args[0]), Outcomes.TRUE)
        first, *others = node.args
        if not isinstance(first, Read) or not all(isinstance(other, Fixed) for other in others):
            return Outcomes.ANY
        return self._of_comparison(node, first, [other.value for other in others if isinstance(other, Fixed)])

    def _of_comparison(self, node: Computed, column: Read, values: list[pa.Scalar]) -> Outcomes:
        if node.name == "is null":
            return self._of_null(column)
        if node.name == "between":
            return _joined(
                pc.and_kleene, self._of_order(column, ">=", values[0]), self._of_order(column, "<=", values[1])
            )
        if node.name in ("=", "in"):
            return reduce(_either, (self._of_column(column, value) for value in values))
        if node.name == "!=":
            return _joined(pc.xor, self._of_column(column, values[0]), Outcomes.TRUE)
        return self._of_order(column, node.name, values[0]) if node.name in _ORDERS else Outcomes.ANY

    def _of_null(self, column: Read) -> Outcomes:
        found = self.bounds.get(column.column)
        if found is None:
            return Outcomes.TRUE | Outcomes.FALSE
        nulls = Outcomes.TRUE if self._has_nulls(column) else Outcomes.NEVER
        return nulls | (Outcomes.NEVER if found.ends is None else Outcomes.FALSE)

    def _of_order(self, column: Read, name: str, value: pa.Scalar) -> Outcomes:
        """The values between the ends have no other result than one of the ends."""
        found = self.bounds.get(column.column)
        if found is None:
            return Outcomes.ANY
        results = [] if found.ends is None else applied(name, (plain_values(found.ends), value)).to_pylist()
        if None in results:  # NaN
            return Outcomes.ANY
        nulls = Outcomes.NULL if self._has_nulls(column) else Outcomes.NEVER
        return reduce(Outcomes.__or__, map(_outcome, results), nulls)

    def _of_column(self, column: Read, value: pa.Scalar) -> Outcomes:
        """Of column = value."""
        low, high = self._of_order(column, "<=", value), self._of_order(column, ">=", value)
        return _joined(pc.and_kleene, low, high)

    def _has_nulls(self, column: Read) -> bool:
        """Statistics do not count NaN, which counts as null."""
        return self.bounds[column.column].nulls or bool(pa.types.is_floating(plain_type(column.type)))


def _outcome(value: bool | None) -> Outcomes:
    return Outcomes.NULL if value is None else Outcomes.TRUE if value else Outcomes.FALSE


def _values(found: Outcomes) -> list[bool | None]:
    return [value for value in (True, False, None) if _outcome(value) in found]


def _joined(join: Callable[[pa.Scalar, pa.Scalar], pa.Scalar], one: Outcomes, other: Outcomes) -> Outcomes:
    results = (
        join(pa.scalar(left, pa.bool_()), pa.scalar(right, pa.bool_())).as_py()
        for left, right in product(_values(one), _values(other))
    )
    return reduce(Outcomes.__or__, map(_outcome, results), Outcomes.NEVER)


def _either(one: Outcomes, other: Outcomes) -> Outcomes:
    return _joined(pc.or_kleene, one, other)
