"""Types of values, and Arrow arrays of these types as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NUMBER, STRING, BINARY, NULL = "number", "string", "binary", "null"
TIME, ZONED = "time without a time zone", "time with a time zone"
TIME_OF_DAY, DURATION = "time of day", "duration"
TIMES = (TIME, ZONED, TIME_OF_DAY, DURATION)
"""Instants, which are dates and timestamps without and with a time zone, and two other kinds of seconds."""
LIST, TOKENS, VECTOR, MAP, STRUCT = "list of numbers", "list of strings", "vector", "map", "struct"

_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}
_VECTOR_FIELDS = {"type", "size", "indices", "values"}
_INDEX_NAMES = ("index", "indices", "key", "id", "i")


def storage_of(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def class_of(kind: pa.DataType) -> str | None:
    """The type of a column's values, without the width of numbers; None: it cannot be a feature."""
    kind, types = storage_of(kind), pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return class_of(kind.value_type)
    if types.is_timestamp(kind) and kind.tz is not None:
        return ZONED  # the same digits without a zone may be another instant
    if types.is_struct(kind):
        return VECTOR if _is_vector(kind) else STRUCT
    if types.is_map(kind):
        return _class_of_pairs(kind.key_type, kind.item_type)
    if is_list(kind):
        return _class_of_list(storage_of(kind.value_type))
    return next((name for name, tests in _CLASSES.items() if any(is_(kind) for is_ in tests)), None)


_CLASSES = {
    NULL: (pa.types.is_null,),
    NUMBER: (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    TIME: (pa.types.is_date, pa.types.is_timestamp),
    TIME_OF_DAY: (pa.types.is_time,),
    DURATION: (pa.types.is_duration,),
    STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    BINARY: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
}
_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def _class_of_list(inner: pa.DataType) -> str | None:
    if not is_nested(inner):
        return {NUMBER: LIST, STRING: TOKENS}.get(str(class_of(inner)))
    if pa.types.is_struct(inner) and inner.num_fields == 2:
        first, second = inner.field(0), inner.field(1)
        if second.name.lower() in _INDEX_NAMES:
            first, second = second, first
        return _class_of_pairs(first.type, second.type)
    return None


def _class_of_pairs(key: pa.DataType, value: pa.DataType) -> str | None:
    if is_nested(storage_of(value)) or class_of(value) != NUMBER:
        return None
    if pa.types.is_integer(storage_of(key)):
        return VECTOR
    return MAP if class_of(key) == STRING else None


def is_nested(kind: pa.DataType) -> bool:
    return is_list(kind) or bool(pa.types.is_struct(kind) or pa.types.is_map(kind))


def is_list(kind: pa.DataType) -> bool:
    return any(is_(kind) for is_ in _LISTS)


def _is_vector(kind: pa.DataType) -> bool:
    names = {field.name for field in kind}
    if not {"indices", "values"} <= names <= _VECTOR_FIELDS:
        return False
    indices, values = (storage_of(kind.field(name).type) for name in ("indices", "values"))
    return (
        is_list(indices)
        and pa.types.is_integer(storage_of(indices.value_type))
        and is_list(values)
        and class_of(values.value_type) == NUMBER
    )


def leaves_of(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The columns by name; fields of structs by dotted names."""
    for field in schema:
        yield from _leaves(field.name, field.type)


def _leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    kind = storage_of(kind)
    if class_of(kind) == STRUCT:
        for field in kind:
            yield from _leaves(f"{name}.{field.name}", field.type)
    else:
        yield name, kind


def leaf(columns: dict[str, pa.Array], name: str) -> pa.Array:
    """The array of a dotted name, which must exist; null where a struct above it is null."""
    found = leaf_if_there(columns, name)
    if found is None:
        raise KeyError(name)
    return found


def leaf_if_there(columns: dict[str, pa.Array], name: str) -> pa.Array | None:
    if name in columns:
        return plain(columns[name])
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        top = ".".join(parts[:split])
        found = _inside(plain(columns[top]), parts[split:]) if top in columns else None
        if found is not None:
            return plain(found)
    return None


def _inside(array: pa.Array, parts: list[str]) -> pa.Array | None:
    """The field of that name, if there is one; names of fields may contain dots too."""
    if not parts:
        return array
    if not pa.types.is_struct(array.type):
        return None
    for length in range(1, len(parts) + 1):
        number = array.type.get_field_index(".".join(parts[:length]))
        found = _inside(plain(pc.struct_field(array, [number])), parts[length:]) if number >= 0 else None
        if found is not None:
            return found
    return None


def stored(array: pa.Array) -> pa.Array:
    """Without extension type and chunks."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def plain(array: pa.Array) -> pa.Array:
    """Without extension type, chunks, run-end encoding and string views, which many Arrow functions do not support."""
    array = stored(array)
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        strings = _unviewed(values)
        return array if strings is values else pa.DictionaryArray.from_arrays(array.indices, strings)
    return _unviewed(array)


def _unviewed(array: pa.Array) -> pa.Array:
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def undictionaried(array: pa.Array) -> pa.Array:
    return plain(array).dictionary_decode() if pa.types.is_dictionary(array.type) else array


def nulls_of(array: pa.Array) -> NDArray[np.bool_] | None:
    """Which values are null; None: none."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Numbers, booleans, and times in seconds; any value in place of null."""
    array = undictionaried(array)
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return np.zeros(len(array))
    if types.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))
    if types.is_decimal(kind):
        return np.asarray(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    if class_of(kind) in TIMES:
        ticks = raw_values(array.view(pa.int64() if kind.bit_width == 64 else pa.int32()))
        if types.is_date32(kind):
            return ticks * 86400.0
        return _seconds(ticks, "ms" if types.is_date64(kind) else kind.unit)
    return raw_values(array)


def _seconds(ticks: NDArray[Any], unit: str) -> NDArray[np.float64]:
    """The same bits for the same instant in any unit. Nanoseconds are split first, because float64 cannot count them."""
    if unit != "ns":
        return np.asarray(ticks / _PER_SECOND[unit])
    whole = ticks // 10**9
    return np.asarray(whole + (ticks - whole * 10**9) / 1e9)


def with_nan(array: pa.Array) -> NDArray[Any]:
    """Numbers in the type of the column where it can be: float64 takes twice the memory of most lists. Null becomes NaN."""
    array = undictionaried(array)
    values, nulls = numbers_of(array), nulls_of(array)
    return values if nulls is None else np.where(nulls, np.nan, values)


def floats_of(array: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64; null becomes NaN."""
    return np.asarray(with_nan(array), np.float64)


def as_float64(array: pa.Array) -> pa.Array:
    """Numbers as float64; null stays null."""
    array = undictionaried(array)
    return pa.array(np.asarray(numbers_of(array), np.float64), mask=nulls_of(array))


def as_text(array: pa.Array) -> pa.Array:
    """Numbers as text; whole numbers of all types get the same text."""
    if class_of(array.type) != NUMBER:
        return array
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_decimal(array.type):
        written = array.cast(pa.string())
        if array.type.scale <= 0:
            return written
        return pc.replace_substring_regex(written, r"^(?:-?(0)E.*|([^.E]*)(?:\.0*|(\.[0-9]*[1-9])0*))$", r"\1\2\3")
    if not pa.types.is_floating(array.type):
        return array.cast(pa.string())
    values = numbers_of(array)
    whole = (np.abs(values) < 2.0**63) & (values == np.floor(values))
    integers = pa.array(np.where(whole, values, 0.0).astype(np.int64)).cast(pa.string())
    written = integers if whole.all() else pc.if_else(pa.array(whole), integers, array.cast(pa.string()))
    return written if not array.null_count else pc.if_else(array.is_null(), None, written)


def raw_values(array: pa.Array) -> NDArray[Any]:
    """The data buffer of a primitive array, unchanged."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Strings as one buffer of bytes and n + 1 offsets; null is an empty string."""
    array = _unviewed(undictionaried(array))
    if pa.types.is_null(array.type):
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int32)
    if array.null_count:
        array = array.fill_null(b"" if class_of(array.type) == BINARY else "")
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), bounds


def lists_of(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """The n + 1 offsets of lists, and their values; null is an empty list. A map is a list of pairs."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array) + 1, np.int64), pa.nulls(0)
    if pa.types.is_map(array.type):
        array = pa.concat_arrays([array])
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        mask = array.is_null() if array.null_count else None
        array = pa.ListArray.from_arrays(array.offsets, pairs, mask=mask)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, plain(pc.list_flatten(array))


def pairs_of(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Offsets, keys and values of maps or of lists of pairs."""
    offsets, pairs = lists_of(array)
    if pa.types.is_null(pairs.type):
        return offsets, pairs, pairs
    first, second = pairs.flatten()
    if pairs.type.field(1).name.lower() in _INDEX_NAMES:
        first, second = second, first
    return offsets, plain(first), plain(second)
