"""Which values a condition can have in a group of rows, by the least and the greatest value of each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag
from functools import reduce
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.expressions.expression import Expression
from streampgs.expressions.functions import applied, plain_type, plain_values
from streampgs.expressions.parser import Apply, Column, Node, columns_of

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
    """The known facts about a column in a group."""

    ends: pa.Array | None
    """The least and the greatest value, of the column's type; None: all values are null."""
    nulls: bool
    """Whether a value may be null."""


def outcomes(expression: Expression, leaves: Mapping[str, pa.DataType], bounds: Mapping[str, Bounds]) -> Outcomes:
    """The values of a condition on columns of the types `leaves`; `bounds`: of the columns that have some."""
    expression.type_of(leaves)
    return _Outcomes(expression, leaves, bounds).of(expression.tree)


@dataclass(frozen=True)
class _Outcomes:
    expression: Expression
    leaves: Mapping[str, pa.DataType]
    bounds: Mapping[str, Bounds]

    def of(self, node: Node) -> Outcomes:
        if not any(columns_of(node)):
            value = self.expression.evaluated(node, {})
            return _outcome(value.as_py()) if pa.types.is_boolean(value.type) else Outcomes.ANY
        if isinstance(node, Column):
            return self._of_equal(node, pa.scalar(True))
        assert isinstance(node, Apply)
        if node.name in ("and", "or"):
            join = pc.and_kleene if node.name == "and" else pc.or_kleene
            return reduce(lambda one, other: _joined(join, one, other), map(self.of, node.args))
        if node.name == "not":
            return _joined(pc.xor, self.of(node.args[0]), Outcomes.TRUE)
        first, *others = node.args
        if not isinstance(first, Column) or any(any(columns_of(other)) for other in others):
            return Outcomes.ANY
        return self._of_comparison(node.name, first, [self.expression.evaluated(other, {}) for other in others])

    def _of_comparison(self, name: str, column: Column, values: list[pa.Scalar]) -> Outcomes:
        if name == "is null":
            return self._of_null(column)
        if name == "between":
            ends = self._of_order(column, ">=", values[0]), self._of_order(column, "<=", values[1])
            return _joined(pc.and_kleene, *ends)
        if name in ("=", "in"):
            equal = (self._of_equal(column, value) for value in values)
            return reduce(lambda one, other: _joined(pc.or_kleene, one, other), equal)
        if name == "!=":
            return _joined(pc.xor, self._of_equal(column, values[0]), Outcomes.TRUE)
        return self._of_order(column, name, values[0]) if name in _ORDERS else Outcomes.ANY

    def _of_null(self, column: Column) -> Outcomes:
        found = self.bounds.get(column.name)
        if found is None:
            return Outcomes.TRUE | Outcomes.FALSE
        nulls = Outcomes.TRUE if self._has_nulls(column) else Outcomes.NEVER
        return nulls | (Outcomes.NEVER if found.ends is None else Outcomes.FALSE)

    def _of_order(self, column: Column, name: str, value: pa.Scalar) -> Outcomes:
        """The values between the ends have no other result than one of the ends."""
        found = self.bounds.get(column.name)
        if found is None:
            return Outcomes.ANY
        results = [] if found.ends is None else applied(name, (plain_values(found.ends), value)).to_pylist()
        if None in results:  # NaN
            return Outcomes.ANY
        nulls = Outcomes.NULL if self._has_nulls(column) else Outcomes.NEVER
        return reduce(Outcomes.__or__, map(_outcome, results), nulls)

    def _of_equal(self, column: Column, value: pa.Scalar) -> Outcomes:
        low, high = self._of_order(column, "<=", value), self._of_order(column, ">=", value)
        return _joined(pc.and_kleene, low, high)

    def _has_nulls(self, column: Column) -> bool:
        """Statistics do not count NaN, which counts as null."""
        is_floating = pa.types.is_floating(plain_type(self.leaves[column.name]) or pa.null())
        return self.bounds[column.name].nulls or bool(is_floating)


def _outcome(value: bool | None) -> Outcomes:
    return Outcomes.NULL if value is None else Outcomes.TRUE if value else Outcomes.FALSE


def _joined(join: Callable[[pa.Scalar, pa.Scalar], pa.Scalar], one: Outcomes, other: Outcomes) -> Outcomes:
    values = ([value for value in (True, False, None) if _outcome(value) in found] for found in (one, other))
    results = (join(pa.scalar(left, pa.bool_()), pa.scalar(right, pa.bool_())) for left, right in product(*values))
    return reduce(Outcomes.__or__, (_outcome(result.as_py()) for result in results), Outcomes.NEVER)
