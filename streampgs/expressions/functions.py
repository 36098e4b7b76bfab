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
    as_array,
    combined,
    kind_of,
    without_nan,
)

_ALL = (BOOLEAN, NUMBER, STRING, DATE, TIMESTAMP, TIME)
_TIMES = (DATE, TIMESTAMP)
_BLANKS = "".join(letter for letter in map(chr, range(0x3001)) if category(letter) == "Zs")
_TYPES_OF_NULLS = {BOOLEAN: pa.bool_(), NUMBER: pa.float64(), STRING: pa.large_string(), DATE: pa.date32()}


@dataclass(frozen=True)
class Function:
    """`run` takes arrays and scalars, at least one array, and gives an array."""

    run: Callable[..., Any]
    takes: tuple[str, ...]
    """The kinds of its values, besides null."""
    fewest: int = 1
    most: int | None = 1
    """How many values it takes; None: any number."""
    constants: bool = False
    """All values after the first must be constants."""
    remedy: str = ""
    """If a value of another kind is found."""


def _compared(name: str) -> Function:
    compare = getattr(pc, name)
    return Function(lambda left, right: compare(*alike(left, right)), _ALL, 2, 2)


def _joined(name: str) -> Function:
    join = getattr(pc, name)
    return Function(
        lambda *values: reduce(join, values), (BOOLEAN,), 2, None, remedy="write a condition, such as cancelled = 1"
    )


def _between(value: Any, low: Any, high: Any) -> Any:
    return pc.and_kleene(pc.less_equal(*alike(low, value)), pc.less_equal(*alike(value, high)))


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


def _calculated(name: str, count: int = 2) -> Function:
    calculate = getattr(pc, f"{name}_checked")

    def run(*values: Any) -> Any:
        whole = all(pa.types.is_integer(value.type) for value in values)
        return calculate(*(value.cast(pa.int64()) if whole else _float64(value) for value in values))

    return _of_numbers(run, count)


def _float64(value: Any) -> Any:
    return value.cast(pa.float64(), safe=False)


def _of_numbers(run: Callable[..., Any], count: int = 1) -> Function:
    return Function(run, (NUMBER,), count, count, remedy="give a number")


def _divided(left: Any, right: Any) -> Any:
    return pc.divide(_float64(left), _without_zeros(_float64(right)))


def _without_zeros(value: Any) -> Any:
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _remainder(left: Any, right: Any) -> Any:
    """The remainder with the sign of the first value, as in SQL."""
    rows = max(len(value) for value in (left, right) if isinstance(value, pa.Array))
    left, right = (as_array(value, rows) for value in combined(left, right))
    right = _without_zeros(right)
    numbers = (np.asarray(pc.fill_null(value, pa.scalar(1, value.type))) for value in (left, right))
    with np.errstate(invalid="ignore"):  # of infinity, which gives NaN
        return pa.array(np.fmod(*numbers), mask=np.asarray(pc.or_(pc.is_null(left), pc.is_null(right))))


def _above_zero(value: Any) -> Any:
    value = _float64(value)
    return pc.if_else(pc.greater(value, 0.0), value, pa.scalar(None, pa.float64()))


def _rounded(value: Any) -> Any:
    return value if pa.types.is_integer(value.type) else pc.round(value, round_mode="half_towards_infinity")


# Strings and times.


def _of_strings(run: Callable[..., Any]) -> Function:
    return Function(run, (STRING,), remedy="give a string")


def _of_times(name: str, kinds: tuple[str, ...], **options: Any) -> Function:
    calculate = getattr(pc, name)

    def run(value: Any) -> Any:
        value = value.cast(pa.timestamp("s")) if kind_of(value.type) == DATE else value
        return calculate(value, **options).cast(pa.int64())

    return Function(run, kinds, remedy="give a column of times")


def _first_known(*values: Any) -> Any:
    known = [value for value in values if kind_of(value.type) != NULL] or values[:1]
    return reduce(lambda one, other: pc.coalesce(*combined(one, other)), known)


FUNCTIONS: dict[str, Function] = {
    "and": _joined("and_kleene"),
    "or": _joined("or_kleene"),
    "not": Function(pc.invert, (BOOLEAN,), remedy="write a condition, such as not cancelled = 1"),
    "=": _compared("equal"),
    "!=": _compared("not_equal"),
    "<": _compared("less"),
    "<=": _compared("less_equal"),
    ">": _compared("greater"),
    ">=": _compared("greater_equal"),
    "is null": Function(pc.is_null, _ALL),
    "between": Function(_between, _ALL, 3, 3),
    "in": Function(_in, _ALL, 2, None, constants=True),
    "like": Function(_like, (STRING,), 2, 2, constants=True, remedy="give a string"),
    "+": _calculated("add"),
    "-": _calculated("subtract"),
    "*": _calculated("multiply"),
    "negative": _calculated("negate", 1),
    "/": _of_numbers(_divided, 2),
    "%": _of_numbers(_remainder, 2),
    "abs": _calculated("abs", 1),
    "ceil": _of_numbers(lambda value: pc.ceil(_float64(value))),
    "floor": _of_numbers(lambda value: pc.floor(_float64(value))),
    "round": _of_numbers(_rounded),
    "exp": _of_numbers(lambda value: pc.exp(_float64(value))),
    "ln": _of_numbers(lambda value: pc.ln(_above_zero(value))),
    "log10": _of_numbers(lambda value: pc.log10(_above_zero(value))),
    "sqrt": _of_numbers(lambda value: pc.sqrt(_float64(value))),
    "length": _of_strings(lambda value: pc.utf8_length(value).cast(pa.int64())),
    "lower": _of_strings(pc.utf8_lower),
    "upper": _of_strings(pc.utf8_upper),
    "trim": _of_strings(partial(pc.utf8_trim, characters=_BLANKS)),
    "year": _of_times("year", _TIMES),
    "month": _of_times("month", _TIMES),
    "day": _of_times("day", _TIMES),
    "dayofweek": _of_times("day_of_week", _TIMES, week_start=7),
    "hour": _of_times("hour", (*_TIMES, TIME)),
    "minute": _of_times("minute", (*_TIMES, TIME)),
    "coalesce": Function(_first_known, _ALL, 2, None),
}
SIGNS = frozenset(
    name for name in FUNCTIONS if not name.isalnum() or name in ("and", "or", "not", "in", "like", "between")
)
"""Written in another way than name(…)."""


def applied(name: str, values: tuple[Any, ...]) -> Any:
    function = FUNCTIONS[name]
    if function.takes != _ALL:  # values that are always null get a type
        kind = _TYPES_OF_NULLS[function.takes[0]]
        values = tuple(value.cast(kind) if kind_of(value.type) == NULL else value for value in values)
    return without_nan(function.run(*values))
