"""The values of expressions: a few kinds, and Arrow arrays of few types for them."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.encoding import types

BOOLEAN, NUMBER, STRING, DATE, TIMESTAMP, TIME, NULL = (
    "boolean", "number", "string", "date", "timestamp", "time of day", "null"
)  # fmt: skip
_MICROSECONDS = pa.timestamp("us")
_UNITS = ("s", "ms", "us", "ns")
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
    kind, known = types.storage_of(kind), pa.types
    if known.is_dictionary(kind) or known.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if known.is_uint64(kind) or known.is_boolean(kind) or known.is_timestamp(kind) or known.is_null(kind):
        return kind
    if known.is_integer(kind):
        return pa.int64()
    if known.is_float16(kind) or known.is_float32(kind):
        return pa.float32()
    if known.is_floating(kind) or known.is_decimal(kind):
        return pa.float64()
    if known.is_date(kind):
        return pa.date32()
    if known.is_time(kind):
        return pa.time64("ns")
    return pa.large_string() if types.class_of(kind) == types.STRING else None


def kind_of(kind: pa.DataType) -> str:
    """Of a type that `plain_type` gives."""
    known = pa.types
    if known.is_boolean(kind):
        return BOOLEAN
    if known.is_integer(kind) or known.is_floating(kind):
        return NUMBER
    if known.is_date(kind):
        return DATE
    if known.is_timestamp(kind):
        return TIMESTAMP
    if known.is_time(kind):
        return TIME
    return NULL if known.is_null(kind) else STRING


def plain_values(array: pa.Array) -> pa.Array:
    """A column in its plain type, if it has one. NaN counts as null."""
    array = types.undictionaried(array)
    wanted = plain_type(array.type)
    if wanted is None or array.type == wanted:
        return without_nan(array)
    if pa.types.is_decimal(array.type):
        return array.cast(wanted, safe=False)
    return without_nan(array.cast(wanted))


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


# Two values of one type.


def alike(left: Any, right: Any) -> tuple[Any, ...]:
    """Two values (arrays or scalars) in types that can be compared; Unfit if there are none."""
    left, right = _as_times(left, right)
    right, left = _as_times(right, left)
    kinds = kind_of(left.type), kind_of(right.type)
    if set(kinds) == {DATE, TIMESTAMP}:
        days = [
            value.cast(_MICROSECONDS) if kind == DATE else value
            for value, kind in zip((left, right), kinds, strict=True)
        ]
        return _alike_times(*days)
    if kinds[0] != kinds[1]:
        raise Unfit(f"a {kinds[0]} is compared with a {kinds[1]}", _remedy(kinds))
    if kinds[0] == NUMBER:
        return _alike_numbers(left, right)
    if kinds[0] == TIMESTAMP:
        return _alike_times(left, right)
    return left, right


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
    for wanted, value in ((one, right), (other, left)):
        if isinstance(value, pa.Scalar) and value.is_valid and _holds(wanted, value):
            return left.cast(wanted, safe=False), right.cast(wanted, safe=False)
    both = _ANY_INTEGER if pa.types.is_integer(one) and pa.types.is_integer(other) else pa.float64()
    return left.cast(both, safe=False), right.cast(both, safe=False)


def _holds(kind: pa.DataType, value: pa.Scalar) -> bool:
    if pa.types.is_float32(kind):
        return not pa.types.is_integer(value.type) or abs(value.as_py()) <= _EXACT_IN_FLOAT32
    return bool(pa.types.is_uint64(kind) and pa.types.is_integer(value.type) and value.as_py() >= 0)


def _alike_times(left: Any, right: Any) -> tuple[Any, ...]:
    if (left.type.tz is None) != (right.type.tz is None):
        raise Unfit("a time with a time zone is compared with one without", "compare times of the same kind")
    if left.type.unit == right.type.unit:
        return left, right
    finer = max(left.type.unit, right.type.unit, key=_UNITS.index)
    try:
        return tuple(value.cast(pa.timestamp(finer, value.type.tz)) for value in (left, right))
    except pa.ArrowInvalid:  # the year 3000 in nanoseconds: then no difference is as small as that
        coarser = min(left.type.unit, right.type.unit, key=_UNITS.index)
        return tuple(value.cast(pa.timestamp(coarser, value.type.tz), safe=False) for value in (left, right))


# Times in quotes.


def _as_times(value: Any, pattern: Any) -> tuple[Any, Any]:
    """If a string in quotes meets a time: both as times. The precision of the text decides."""
    kind = kind_of(pattern.type)
    if not isinstance(value, pa.Scalar) or kind_of(value.type) != STRING or kind not in (DATE, TIMESTAMP, TIME):
        return value, pattern
    text = value.as_py()
    try:
        if kind == TIME:
            return _with_nanoseconds(pa.scalar(time.fromisoformat(text), pa.time64("ns")), text), pattern
        if kind == DATE and "T" not in text and " " not in text.strip():
            return pa.scalar(date.fromisoformat(text)), pattern
        return _with_nanoseconds(_instant(datetime.fromisoformat(text), pattern.type), text), pattern
    except ValueError:
        form = {TIME: "'14:30:00'", DATE: "'2024-06-30'", TIMESTAMP: "'2024-06-30 14:30:00'"}[kind]
        raise Unfit(f"'{text:.50}' is not a {kind}", f"write it like {form}") from None


def _with_nanoseconds(found: pa.Scalar, text: str) -> pa.Scalar:
    """Python leaves out what follows the microseconds."""
    digits = re.search(r"[.,][0-9]{6}([0-9]+)", text)
    rest = "" if digits is None else digits[1].rstrip("0")
    if not rest:
        return found
    if len(rest) > 3:
        raise ValueError("less than a nanosecond")
    kind = pa.timestamp("ns", found.type.tz) if pa.types.is_timestamp(found.type) else found.type
    return pc.add(found.cast(kind), pa.scalar(int(rest.ljust(3, "0")), pa.duration("ns")))


def _instant(found: datetime, kind: pa.DataType) -> pa.Scalar:
    """A time without a zone is in the zone of the column."""
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    if found.tzinfo is None:
        here = pa.scalar(found, _MICROSECONDS)
        return here if zone is None else pc.assume_timezone(here, zone, ambiguous="earliest", nonexistent="earliest")
    if zone is None:
        raise Unfit("a time with a time zone is compared with a column without one", "leave out the time zone")
    return pa.scalar(found, pa.timestamp("us", zone))
