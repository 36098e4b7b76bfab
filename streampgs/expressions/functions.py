"""The operators and functions of expressions, one entry each in `FUNCTIONS`.

Nulls are as in SQL: a result is null where a value that it needs is null. NaN counts as null, and so does the result of
a division by zero or of a function outside of its range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any
from unicodedata import category

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.expressions.values import (
    BOOLEAN,
    DATE,
    NULL,
    NUMBER,
    STRING,
    TIME,
    TIMESTAMP,
    alike,
    combined,
    kind_of,
    without_nan,
)

_ALL = (BOOLEAN, NUMBER, STRING, DATE, TIMESTAMP, TIME, NULL)
_TIMES = (DATE, TIMESTAMP)
_BLANKS = "".join(letter for letter in map(chr, range(0x3001)) if category(letter) == "Zs")


@dataclass(frozen=True)
class Function:
    """`run` takes arrays and scalars, at least one array, and gives an array."""

    run: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str | None
    """The kind of the result; None: the kind of the first value."""
    fewest: int = 1
    most: int | None = 1
    """How many values it takes; None: any number."""
    constants: bool = False
    """All values after the first must be constants."""
    handles_nulls: bool = False
    """Else the result is null where a value is null."""
    remedy: str = ""
    """If a value of another kind is found."""


def _compared(name: str) -> Function:
    compare = getattr(pc, name)
    return Function(lambda left, right: compare(*alike(left, right)), _ALL, BOOLEAN, 2, 2)


def _joined(name: str) -> Function:
    join, remedy = getattr(pc, name), "write a condition, such as cancelled = 1"
    run = partial(_reduced, join)
    return Function(run, (BOOLEAN, NULL), BOOLEAN, 2, None, handles_nulls=True, remedy=remedy)


def _reduced(join: Callable[[Any, Any], Any], *conditions: Any) -> Any:
    return reduce(join, (condition.cast(pa.bool_()) for condition in conditions))


def _between(value: Any, low: Any, high: Any) -> Any:
    return pc.and_kleene(_at_most(low, value), _at_most(value, high))


def _at_most(left: Any, right: Any) -> Any:
    known = [value.type for value in (left, right) if kind_of(value.type) != NULL]
    if len(known) < 2:
        return pc.equal(*(value.cast(known[0] if known else pa.bool_()) for value in (left, right)))
    return pc.less_equal(*alike(left, right))


def _in(value: Any, *constants: pa.Scalar) -> Any:
    pairs = [alike(value, each) for each in constants]
    if len({(one.type, other.type) for one, other in pairs}) > 1:
        return reduce(pc.or_, (pc.equal(*pair) for pair in pairs))
    wanted = pa.concat_arrays([pa.repeat(other, 1) for _, other in pairs])
    found = pc.is_in(_one_zero(pairs[0][0].cast(wanted.type)), value_set=_one_zero(wanted))
    return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), found)


def _one_zero(values: Any) -> Any:
    """Without -0.0: pyarrow looks for values by their bits."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _like(value: Any, pattern: pa.Scalar) -> Any:
    return pc.match_like(value, pattern.as_py().replace("\\", "\\\\"))


# Numbers. Integers are int64, and a larger one is an error; others are float64.


def _calculated(name: str) -> Function:
    calculate = getattr(pc, f"{name}_checked")

    def run(*values: Any) -> Any:
        if all(pa.types.is_integer(value.type) for value in values):
            return calculate(*(value.cast(pa.int64()) for value in values))
        return calculate(*map(_float64, values))

    return _of_numbers(run, 1 if name in ("negate", "abs") else 2)


def _float64(value: Any) -> Any:
    return value.cast(pa.float64(), safe=False)


def _of_numbers(run: Callable[..., Any], count: int = 1) -> Function:
    return Function(run, (NUMBER, NULL), NUMBER, count, count, remedy="give a number")


def _divided(left: Any, right: Any) -> Any:
    return pc.divide(_float64(left), _without_zeros(_float64(right)))


def _without_zeros(value: Any) -> Any:
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _remainder(left: Any, right: Any) -> Any:
    """With the sign of the first value, as in SQL."""
    left, right = combined(left, right)
    rows = max(len(value) for value in (left, right) if isinstance(value, pa.Array))
    right = _without_zeros(right)
    nulls = pc.or_(pc.is_null(left), pc.is_null(right))
    numbers = [np.broadcast_to(_numpy(value), rows) for value in (left, right)]
    mask = np.broadcast_to(np.asarray(nulls), rows) if isinstance(nulls, pa.Array) else np.full(rows, nulls.as_py())
    with np.errstate(invalid="ignore"):  # of infinity, which gives NaN
        return pa.array(np.fmod(*numbers), mask=mask)


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    """Any number but 0 in place of null."""
    filled = pc.fill_null(value, pa.scalar(1, value.type))
    if isinstance(filled, pa.Array):
        return np.asarray(filled.to_numpy(zero_copy_only=False))
    return np.asarray(filled.as_py(), filled.type.to_pandas_dtype())


def _of_float64(name: str, above: float | None = None) -> Function:
    """A function that is null outside of its range: up to `above`, or where it is not a number."""
    calculate = getattr(pc, name)

    def run(value: Any) -> Any:
        value = _float64(value)
        if above is not None:
            value = pc.if_else(pc.greater(value, above), value, pa.scalar(None, pa.float64()))
        return calculate(value)

    return _of_numbers(run)


def _rounded(value: Any) -> Any:
    return value if pa.types.is_integer(value.type) else pc.round(value, round_mode="half_towards_infinity")


# Strings and times.


def _of_strings(name: str, gives: str, **options: Any) -> Function:
    calculate = partial(getattr(pc, name), **options)
    run = lambda value: calculate(value).cast(pa.int64()) if gives == NUMBER else calculate(value)  # noqa: E731
    return Function(run, (STRING, NULL), gives, remedy="give a string")


def _of_times(name: str, kinds: tuple[str, ...], **options: Any) -> Function:
    calculate = getattr(pc, name)

    def run(value: Any) -> Any:
        if kind_of(value.type) == DATE:
            value = value.cast(pa.timestamp("s"))
        return calculate(value, **options).cast(pa.int64())

    return Function(run, (*kinds, NULL), NUMBER, remedy="give a column of times")


def _first_known(*values: Any) -> Any:
    known = [value for value in values if kind_of(value.type) != NULL] or values[:1]
    return reduce(lambda one, other: pc.coalesce(*combined(one, other)), known)


FUNCTIONS: dict[str, Function] = {
    "and": _joined("and_kleene"),
    "or": _joined("or_kleene"),
    "not": Function(pc.invert, (BOOLEAN, NULL), BOOLEAN, remedy="write a condition, such as not cancelled = 1"),
    "=": _compared("equal"),
    "!=": _compared("not_equal"),
    "<": _compared("less"),
    "<=": _compared("less_equal"),
    ">": _compared("greater"),
    ">=": _compared("greater_equal"),
    "is null": Function(pc.is_null, _ALL, BOOLEAN, handles_nulls=True),
    "between": Function(_between, _ALL, BOOLEAN, 3, 3, handles_nulls=True),
    "in": Function(_in, _ALL, BOOLEAN, 2, None, constants=True),
    "like": Function(_like, (STRING, NULL), BOOLEAN, 2, 2, constants=True, remedy="give a string"),
    "+": _calculated("add"),
    "-": _calculated("subtract"),
    "*": _calculated("multiply"),
    "negative": _calculated("negate"),
    "/": _of_numbers(_divided, 2),
    "%": _of_numbers(_remainder, 2),
    "abs": _calculated("abs"),
    "ceil": _of_float64("ceil"),
    "floor": _of_float64("floor"),
    "round": _of_numbers(_rounded),
    "exp": _of_float64("exp"),
    "ln": _of_float64("ln", above=0.0),
    "log10": _of_float64("log10", above=0.0),
    "sqrt": _of_float64("sqrt"),
    "length": _of_strings("utf8_length", NUMBER),
    "lower": _of_strings("utf8_lower", STRING),
    "upper": _of_strings("utf8_upper", STRING),
    "trim": _of_strings("utf8_trim", STRING, characters=_BLANKS),
    "year": _of_times("year", _TIMES),
    "month": _of_times("month", _TIMES),
    "day": _of_times("day", _TIMES),
    "dayofweek": _of_times("day_of_week", _TIMES, week_start=7),
    "hour": _of_times("hour", (*_TIMES, TIME)),
    "minute": _of_times("minute", (*_TIMES, TIME)),
    "coalesce": Function(_first_known, _ALL, None, 2, None, handles_nulls=True),
}
SIGNS = frozenset(
    name for name in FUNCTIONS if not name.isalnum() or name in ("and", "or", "not", "in", "like", "between")
)
"""Written in another way than name(…)."""


def applied(name: str, values: tuple[Any, ...]) -> Any:
    return without_nan(FUNCTIONS[name].run(*values))


def type_for_nulls(function: Function) -> pa.DataType:
    """Of a result that is always null."""
    kinds = {BOOLEAN: pa.bool_(), NUMBER: pa.float64(), STRING: pa.large_string()}
    return kinds.get(function.gives or "", pa.null())
