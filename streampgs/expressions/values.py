"""The values of expressions: a few kinds, and Arrow arrays of few types for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    """The kind of a type that `plain_type` gives."""
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
