"""The values of expressions, which are Arrow arrays of few types, and the operators and functions on them.

Nulls are as in SQL: a result is null where a value that it needs is null. NaN counts as null, and so does the result of
a division by zero or of a function outside of its range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any
from unicodedata import category

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.encoding import types

BOOLEAN, NUMBER, STRING, DATE, TIMESTAMP, TIME, NULL = (
    "boolean", "number", "string", "date", "timestamp", "time of day", "null"
)  # fmt: skip
_UNITS = ("s", "ms", "us", "ns")
_ZONED = (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"))
_LOCAL = (pa.timestamp("us"), pa.timestamp("ns"))
_FORMS = {TIME: "'14:30:00'", DATE: "'2024-06-30'", TIMESTAMP: "'2024-06-30 14:30:00'"}
_EXACT_IN_FLOAT32 = 1 << 24
_ANY_INTEGER = pa.decimal128(20)
"""It holds the values of int64 and of uint64."""


class Unfit(Exception):
    """A value that does not fit: the fault, and the remedy."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.remedy = remedy


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which a column of this type is used; None: only its nulls can be."""
    kind, is_ = types.storage_of(kind), pa.types
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if is_.is_uint64(kind) or is_.is_boolean(kind) or is_.is_timestamp(kind) or is_.is_null(kind):
        return kind
    if is_.is_float16(kind):
        return pa.float32()
    if is_.is_integer(kind) or is_.is_date(kind):
        return pa.int64() if is_.is_integer(kind) else pa.date32()
    found = {types.NUMBER: pa.float64(), types.TIME_OF_DAY: pa.time64("ns"), types.STRING: pa.large_string()}
    return kind if is_.is_float32(kind) else found.get(str(types.class_of(kind)))


def kind_of(kind: pa.DataType) -> str:
    """The kind of a type that `plain_type` gives."""
    return next((name for is_, name in _KINDS if is_(kind)), STRING)


_KINDS = (
    *((pa.types.is_boolean, BOOLEAN), (pa.types.is_integer, NUMBER), (pa.types.is_floating, NUMBER)),
    *((pa.types.is_date, DATE), (pa.types.is_timestamp, TIMESTAMP), (pa.types.is_time, TIME), (pa.types.is_null, NULL)),
)


def plain_values(array: pa.Array) -> pa.Array:
    """A column in its plain type, if it has one. NaN counts as null."""
    array = types.undictionaried(array)
    wanted = plain_type(array.type)
    if wanted is not None and array.type != wanted:
        array = array.cast(wanted, safe=not pa.types.is_decimal(array.type))
    return without_nan(array)


def without_nan(array: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)


def constant(value: bool | int | float | str) -> pa.Scalar:
    if isinstance(value, bool):
        return pa.scalar(value)
    if isinstance(value, int):
        return pa.scalar(value, pa.int64() if value < 2**63 else pa.uint64())
    return pa.scalar(value, pa.float64() if isinstance(value, float) else pa.large_string())


def as_array(value: Any, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


# Two values of one type.


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values (arrays or scalars) in types that can be compared; Unfit if there are none."""
    left, right = _as_time(left, right.type), _as_time(right, left.type)
    kinds = kind_of(left.type), kind_of(right.type)
    if NULL in kinds:
        known = right.type if kinds[0] == NULL else left.type
        known = pa.bool_() if kinds == (NULL, NULL) else known
        return left.cast(known), right.cast(known)
    if set(kinds) == {DATE, TIMESTAMP}:
        left, right = (value.cast(_LOCAL[0]) if pa.types.is_date(value.type) else value for value in (left, right))
    elif kinds[0] != kinds[1]:
        raise Unfit(f"a {kinds[0]} is compared with a {kinds[1]}", _remedy(kinds))
    if kinds[0] == NUMBER:
        return _alike_numbers(left, right)
    return _alike_times(left, right) if TIMESTAMP in kinds else (left, right)


def combined(left: Any, right: Any) -> tuple[Any, ...]:
    """Two values in a type of this module, for a result of that type; ArrowInvalid if it does not hold an integer."""
    found = alike(left, right)
    return tuple(value.cast(pa.int64()) if pa.types.is_decimal(value.type) else value for value in found)


def _remedy(kinds: tuple[str, str]) -> str:
    if STRING in kinds and NUMBER in kinds:
        return "write numbers without quotes, strings in single quotes"
    if BOOLEAN in kinds:
        return "compare a boolean with true or false, or write the column alone"
    return "compare values of the same type"


def _alike_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """A constant gets the precision of a column: 0.1 equals a float32 0.1."""
    one, other = left.type, right.type
    if one == other:
        return left, right
    both = _ANY_INTEGER if pa.types.is_integer(one) and pa.types.is_integer(other) else pa.float64()
    for wanted, value in ((one, right), (other, left)):
        if isinstance(value, pa.Scalar) and value.is_valid and _holds(wanted, value):
            both = wanted
            break
    return left.cast(both, safe=False), right.cast(both, safe=False)


def _holds(kind: pa.DataType, value: pa.Scalar) -> bool:
    if pa.types.is_float32(kind):
        return not pa.types.is_integer(value.type) or abs(value.as_py()) <= _EXACT_IN_FLOAT32
    return bool(pa.types.is_uint64(kind) and pa.types.is_integer(value.type) and value.as_py() >= 0)


def _alike_times(left: Any, right: Any) -> tuple[Any, Any]:
    if (left.type.tz is None) != (right.type.tz is None):
        raise Unfit("a time with a time zone is compared with one without", "compare times of the same kind")
    coarser, finer = sorted((left.type.unit, right.type.unit), key=_UNITS.index)
    try:
        left_finer, right_finer = (value.cast(pa.timestamp(finer, value.type.tz)) for value in (left, right))
    except pa.ArrowInvalid:  # the year 3000 in nanoseconds: then no difference is as small as that
        return left.cast(pa.timestamp(coarser, left.type.tz), safe=False), right.cast(
            pa.timestamp(coarser, right.type.tz), safe=False
        )
    return left_finer, right_finer


def _as_time(value: Any, other: pa.DataType) -> Any:
    """A string in quotes as a time, if it meets one of the type `other`. The precision of the text decides."""
    kind = kind_of(other)
    if not isinstance(value, pa.Scalar) or kind_of(value.type) != STRING or kind not in _FORMS:
        return value
    text = value.as_py()
    if kind == TIME:
        found = _first_cast(f"1970-01-01 {text}", _LOCAL[1:])
        found = None if found is None else found.cast(pa.time64("ns"))
    else:
        found = _first_cast(text, (pa.date32(), *_LOCAL) if kind == DATE else _LOCAL)
    zone = other.tz if kind == TIMESTAMP else None
    if found is not None:  # a time without a zone is in the zone of the column
        local = zone is not None
        return pc.assume_timezone(found, zone, ambiguous="earliest", nonexistent="earliest") if local else found
    found = _first_cast(text, _ZONED)
    if found is None or kind == TIME:
        raise Unfit(f"'{text:.50}' is not a {kind}", f"write it like {_FORMS[kind]}")
    if zone is None:
        raise Unfit("a time with a time zone is compared with a column without one", "leave out the time zone")
    return found.cast(pa.timestamp(found.type.unit, zone))


def _first_cast(text: str, kinds: Sequence[pa.DataType]) -> pa.Scalar | None:
    """The text in the first of the types that takes it."""
    for kind in kinds:
        try:
            return pa.scalar(text).cast(kind)
        except (pa.ArrowInvalid, UnicodeEncodeError):
            continue
    return None


# Operators and functions.

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
