"""An expression of --label or --where: parsed once, checked for the columns of a table, and evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.base.errors import DataError, OptionError, did_you_mean
from streampgs.encoding import types
from streampgs.expressions.functions import FUNCTIONS, SIGNS, Function, applied, type_for_nulls
from streampgs.expressions.parser import parsed, quoted
from streampgs.expressions.tree import Apply, Column, Constant, Node, Source, columns_of, shown
from streampgs.expressions.values import (
    BOOLEAN,
    NULL,
    NUMBER,
    STRING,
    Unfit,
    constant,
    kind_of,
    plain_type,
    plain_values,
)

_LABEL, _WHERE = "--label", "--where"
Types = tuple[tuple[str, pa.DataType], ...]
"""The columns of an expression with their types."""


@dataclass(frozen=True)
class Fixed:
    """A value that is the same in every row."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        return self.value.type


@dataclass(frozen=True)
class Read:
    """The values of a column."""

    column: str
    type: pa.DataType


@dataclass(frozen=True)
class Computed:
    """The result of an operator or a function, of which at least one value is not fixed."""

    name: str
    args: tuple[Typed, ...]
    type: pa.DataType
    at: int


Typed = Fixed | Read | Computed
"""A node whose type is known."""


@dataclass(frozen=True)
class Expression:
    source: Source
    tree: Node

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it needs."""
        return tuple(dict.fromkeys(columns_of(self.tree)))

    def __str__(self) -> str:
        return self.source.text

    def typed(self, leaves: Mapping[str, pa.DataType]) -> Typed:
        """The tree for columns of these types; OptionError if it does not fit them."""
        for name, at in _places(self.tree):
            if name not in leaves:
                raise self.source.error(f"unknown column '{shown(name)}'", at, did_you_mean(name, leaves))
        return _typed(self, tuple((name, leaves[name]) for name in self.columns))

    def type_of(self, leaves: Mapping[str, pa.DataType]) -> pa.DataType:
        return self.typed(leaves).type

    def values(self, columns: dict[str, pa.Array], rows: int) -> pa.Array:
        """A value for each row; null where it is not known."""
        found = ((name, types.leaf_if_there(columns, name)) for name in self.columns)
        arrays = {name: array for name, array in found if array is not None}
        if len(arrays) < len(self.columns):  # an error that names one of the others
            self.typed(dict(types.leaves_of(pa.schema([(name, array.type) for name, array in columns.items()]))))
        typed = self.typed({name: array.type for name, array in arrays.items()})
        return as_array(self.evaluated(typed, lambda name: plain_values(arrays[name])), rows)

    def selects(self, columns: dict[str, pa.Array], rows: int) -> pa.Array:
        """Which rows fulfil the condition. It is not fulfilled where it is null."""
        return pc.fill_null(self.values(columns, rows).cast(pa.bool_()), False)

    def evaluated(self, node: Typed, read: Callable[[str], pa.Array]) -> Any:
        """`read` gives a column in its plain type."""
        if isinstance(node, Fixed):
            return node.value
        if isinstance(node, Read):
            return read(node.column)
        try:
            return applied(node.name, tuple(self.evaluated(arg, read) for arg in node.args))
        except pa.ArrowInvalid as fault:
            place = f"at character {node.at + 1}"
            remedy = "integers must stay within 64 bits: multiply by 1.0 to calculate with other numbers"
            raise DataError(
                f"{self.source}: '{node.name}' cannot be computed, {place}: {fault}",
                remedy if "overflow" in str(fault) or "Integer" in str(fault) else "fix the values of the column",
            ) from fault


def as_array(value: Any, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


@lru_cache(maxsize=64)
def condition(text: str) -> Expression:
    """The expression of --where."""
    return _expression(Source(_WHERE, text))


@lru_cache(maxsize=64)
def label_expression(text: str) -> Expression:
    return _expression(Source(_LABEL, text))


def _expression(source: Source) -> Expression:
    return Expression(source, parsed(source))


def check_condition(expression: Expression, leaves: Mapping[str, pa.DataType]) -> None:
    """OptionError unless it is true or false."""
    held = kind_of(expression.type_of(leaves))
    if held not in (BOOLEAN, NULL):
        raise OptionError(
            f"{expression.source} is a {held}, not a condition", "compare it with a value, such as COLUMN > 0"
        )


def check_label(expression: Expression, leaves: Mapping[str, pa.DataType]) -> None:
    """OptionError unless it can be predicted."""
    held = kind_of(expression.type_of(leaves))
    if held not in (BOOLEAN, NUMBER, STRING):
        raise OptionError(
            f"{expression.source} is a {held}, which cannot be predicted", "give a condition, a number or a string"
        )
    if not expression.columns:
        raise OptionError(f"{expression.source} names no column", "give the name of a column, or an expression of some")


def known(expressions: Iterable[Expression]) -> str:
    """The condition that no column of the expressions is null."""
    names = dict.fromkeys(name for one in expressions for name in one.columns)
    return " and ".join(f"{quoted(name)} is not null" for name in names)


# Types.


@lru_cache(maxsize=256)
def _typed(expression: Expression, leaves: Types) -> Typed:
    return _Typing(expression, dict(leaves)).node(expression.tree)


@dataclass
class _Typing:
    expression: Expression
    leaves: dict[str, pa.DataType]

    def node(self, node: Node) -> Typed:
        if isinstance(node, Constant):
            return Fixed(constant(node.value))
        if isinstance(node, Column):
            return Read(node.name, self.leaves[node.name])
        function = self._function(node)
        args = tuple(map(self.node, node.args))
        if node.name == "is null" and isinstance(args[0], Read):
            return Computed(node.name, args, pa.bool_(), node.at)
        args = tuple(self._plain(arg, place) for arg, place in zip(args, node.args, strict=True))
        self._check(node, function, args)
        if not function.handles_nulls and any(kind_of(arg.type) == NULL for arg in args):
            return Fixed(pa.scalar(None, type_for_nulls(function)))
        return self._computed(node, args)

    def _function(self, node: Apply) -> Function:
        function = FUNCTIONS.get(node.name)
        if function is None:
            usable = [name for name in FUNCTIONS if name not in SIGNS]
            near = [f"did you mean {each}? " for each in get_close_matches(node.name, usable, n=1)]
            if node.name == "log":
                near = ["ln is the natural logarithm, log10 the decimal one. "]
            remedy = "".join(near) + f"The functions are {', '.join(usable)}"
            self._fail(node, f"unknown function '{shown(node.name)}'", remedy)
        most = function.most if function.most is not None else len(node.args)
        if not function.fewest <= len(node.args) <= most:
            wanted = f"{function.fewest}" if function.fewest == most else f"at least {function.fewest}"
            self._fail(node, f"{node.name} of {len(node.args)} values", f"give {wanted}")
        return function

    def _plain(self, arg: Typed, node: Node) -> Typed:
        """With the type in which values are used."""
        if not isinstance(arg, Read):
            return arg
        wanted = plain_type(arg.type)
        if wanted is None:
            self._fail(node, f"column '{shown(arg.column)}' is of type {arg.type}", "only its nulls can be asked for")
        return Read(arg.column, wanted)

    def _check(self, node: Apply, function: Function, args: tuple[Typed, ...]) -> None:
        for place, (arg, part) in enumerate(zip(args, node.args, strict=True)):
            held = kind_of(arg.type)
            if held not in function.takes:
                self._fail(part, f"a {held} cannot be used with '{node.name}'", function.remedy)
            if function.constants and place and not isinstance(arg, Fixed):
                self._fail(
                    part, f"'{node.name}' needs values that are the same in all rows", "join comparisons with or"
                )

    def _computed(self, node: Apply, args: tuple[Typed, ...]) -> Typed:
        """Its type is that of the result for no rows. What depends on no column is computed here."""
        fixed = all(isinstance(arg, Fixed) for arg in args)
        values = [
            pa.repeat(arg.value, 1) if isinstance(arg, Fixed) and (fixed and not place) else _example(arg)
            for place, arg in enumerate(args)
        ]
        try:
            found = applied(node.name, tuple(values))
        except Unfit as fault:
            self._fail(node, fault.fault, fault.remedy)
        except (pa.ArrowInvalid, OverflowError) as fault:
            self._fail(node, f"'{node.name}' cannot be computed: {fault}", "use smaller numbers")
        return Fixed(found[0]) if fixed else Computed(node.name, args, found.type, node.at)

    def _fail(self, node: Node, fault: str, remedy: str) -> NoReturn:
        raise self.expression.source.error(fault, node.at, remedy)


def _example(arg: Typed) -> Any:
    return arg.value if isinstance(arg, Fixed) else pa.nulls(0, arg.type)


def _places(node: Node) -> list[tuple[str, int]]:
    if isinstance(node, Column):
        return [(node.name, node.at)]
    return [place for arg in node.args for place in _places(arg)] if isinstance(node, Apply) else []
