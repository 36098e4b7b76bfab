"""An expression of --label or --where: parsed once, checked for the columns of a table, and evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError, did_you_mean
from streampgs.encoding import types
from streampgs.expressions.functions import (
    BOOLEAN,
    FUNCTIONS,
    NULL,
    NUMBER,
    SIGNS,
    STRING,
    Function,
    Unfit,
    applied,
    as_array,
    constant,
    kind_of,
    plain_type,
    plain_values,
)
from streampgs.expressions.parser import Apply, Column, Constant, Node, Source, columns_of, parsed, quoted, shown


@dataclass(frozen=True)
class Expression:
    source: Source
    tree: Node

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it needs."""
        return tuple(dict.fromkeys(column.name for column in columns_of(self.tree)))

    def __str__(self) -> str:
        return self.source.text

    def type_of(self, leaves: Mapping[str, pa.DataType]) -> pa.DataType:
        """The type of the result for columns of these types; OptionError if it does not fit them."""
        for column in columns_of(self.tree):
            if column.name not in leaves:
                remedy = did_you_mean(column.name, leaves)
                raise self.source.error(f"unknown column '{shown(column.name)}'", column.at, remedy)
        return _type_of(self, tuple((name, leaves[name]) for name in self.columns))

    def values(self, columns: dict[str, pa.Array], rows: int) -> pa.Array:
        """A value for each row; null where it is not known."""
        found = {name: types.leaf_if_there(columns, name) for name in self.columns}
        arrays = {name: array for name, array in found.items() if array is not None}
        if len(arrays) < len(found):  # an error that names one of the others
            self.type_of(dict(types.leaves_of(pa.schema([(name, array.type) for name, array in columns.items()]))))
        self.type_of({name: array.type for name, array in arrays.items()})
        plain = {name: plain_values(array) for name, array in arrays.items()}
        return as_array(self.evaluated(self.tree, plain), rows)

    def selects(self, columns: dict[str, pa.Array], rows: int) -> pa.Array:
        """Which rows fulfil the condition. It is not fulfilled where it is null."""
        return pc.fill_null(self.values(columns, rows).cast(pa.bool_()), False)

    def evaluated(self, node: Node, columns: Mapping[str, pa.Array]) -> Any:
        """The values of a part of the tree: a scalar if it is the same in all rows. `columns`: in their plain types."""
        if isinstance(node, Constant):
            return constant(node.value)
        if isinstance(node, Column):
            return columns[node.name]
        function, args = self._function(node), [self.evaluated(arg, columns) for arg in node.args]
        if node.name != "is null":
            self._check(node, function, args)
        fixed = all(isinstance(arg, pa.Scalar) for arg in args)
        if fixed:
            args[0] = pa.repeat(args[0], 1)
        try:
            found = applied(node.name, tuple(args))
        except Unfit as fault:
            self._fail(node, fault.fault, fault.remedy)
        except (pa.ArrowInvalid, OverflowError) as fault:
            if fixed or not any(len(array) for array in columns.values()):
                self._fail(node, f"'{node.name}' cannot be computed: {fault}", "use smaller numbers")
            remedy = "integers must stay within 64 bits: multiply by 1.0 to calculate with other numbers"
            raise DataError(
                f"{self.source}: '{node.name}' cannot be computed, at character {node.at + 1}: {fault}",
                remedy if "overflow" in str(fault) or "Integer" in str(fault) else "fix the values of the column",
            ) from fault
        return found[0] if fixed else found

    def _function(self, node: Apply) -> Function:
        function = FUNCTIONS.get(node.name)
        if function is None:
            usable = [name for name in FUNCTIONS if name not in SIGNS]
            near = "".join(f"did you mean {each}? " for each in get_close_matches(node.name, usable, n=1))
            if node.name == "log":
                near = "ln is the natural logarithm, log10 the decimal one. "
            self._fail(node, f"unknown function '{shown(node.name)}'", f"{near}The functions are {', '.join(usable)}")
        if len(node.args) < function.fewest or len(node.args) > (function.most or len(node.args)):
            wanted = f"{function.fewest}" if function.fewest == function.most else f"at least {function.fewest}"
            self._fail(node, f"{node.name} of {len(node.args)} values", f"give {wanted}")
        return function

    def _check(self, node: Apply, function: Function, args: list[Any]) -> None:
        for place, (arg, part) in enumerate(zip(args, node.args, strict=True)):
            if plain_type(arg.type) is None:
                name = part.name if isinstance(part, Column) else node.name
                self._fail(part, f"column '{shown(name)}' is of type {arg.type}", "only its nulls can be asked for")
            held = kind_of(arg.type)
            if held not in (*function.takes, NULL):
                self._fail(part, f"a {held} cannot be used with '{node.name}'", function.remedy)
            if function.constants and place and not isinstance(arg, pa.Scalar):
                fault = f"'{node.name}' needs values that are the same in all rows"
                self._fail(part, fault, "join comparisons with or")

    def _fail(self, node: Node, fault: str, remedy: str) -> NoReturn:
        raise self.source.error(fault, node.at, remedy)


@lru_cache(maxsize=256)
def _type_of(expression: Expression, leaves: tuple[tuple[str, pa.DataType], ...]) -> pa.DataType:
    """The type of the result for no rows."""
    columns = {name: pa.nulls(0, plain_type(kind) or types.storage_of(kind)) for name, kind in leaves}
    return expression.evaluated(expression.tree, columns).type


def condition(text: str) -> Expression:
    """The expression of --where."""
    return expression_of("--where", text)


@lru_cache(maxsize=128)
def expression_of(flag: str, text: str) -> Expression:
    source = Source(flag, text)
    return Expression(source, parsed(source))


def check_condition(expression: Expression, leaves: Mapping[str, pa.DataType]) -> None:
    """OptionError unless it is true or false."""
    held = kind_of(expression.type_of(leaves))
    if held not in (BOOLEAN, NULL):
        remedy = "compare it with a value, such as COLUMN > 0"
        raise OptionError(f"{expression.source} is a {held}, not a condition", remedy)


def check_label(expression: Expression, leaves: Mapping[str, pa.DataType]) -> None:
    """OptionError unless it can be predicted."""
    held = kind_of(expression.type_of(leaves))
    if held not in (BOOLEAN, NUMBER, STRING):
        remedy = "give a condition, a number or a string"
        raise OptionError(f"{expression.source} is a {held}, which cannot be predicted", remedy)
    if not expression.columns:
        raise OptionError(f"{expression.source} names no column", "give the name of a column, or an expression of some")


def known(expressions: Iterable[Expression]) -> str:
    """The condition that no column of the expressions is null."""
    names = dict.fromkeys(name for one in expressions for name in one.columns)
    return " and ".join(f"{quoted(name)} is not null" for name in names)


# The rows of a batch.


def columns_by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def selected(
    batch: pa.RecordBatch,
    where: Expression | None,
    computed: Sequence[Expression],
    columns_of: Callable[[pa.RecordBatch], dict[str, pa.Array]] = columns_by_name,
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """The rows that fulfil the condition with the labels that are expressions, and their places in the batch.
    `columns_of` gives the columns of a batch by name, with those that are not in the file."""
    places = np.arange(batch.num_rows)
    if where is not None:
        chosen = where.selects(columns_of(batch), batch.num_rows)
        places = np.flatnonzero(chosen)
        if len(places) < batch.num_rows:
            arrays = [_filtered(types.plain(column), chosen) for column in batch.columns]
            batch = pa.RecordBatch.from_arrays(arrays, batch.schema.names)
    for label in computed:
        batch = batch.append_column(str(label), label.values(columns_of(batch), batch.num_rows))
    return batch, places


def _filtered(array: pa.Array, chosen: pa.Array) -> pa.Array:
    try:
        return array.filter(chosen)
    except pa.ArrowNotImplementedError:  # strings of views inside of lists: pyarrow copies whole runs of rows only
        ends = np.flatnonzero(np.diff(np.asarray(chosen).astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        return pa.concat_arrays([array.slice(first, stop - first) for first, stop in ends] or [array.slice(0, 0)])
