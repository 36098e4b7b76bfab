"""One schema for all rows of a pack: the narrowest that holds what every piece of the input holds.

Each piece comes with its natural schema. `joined_schema` is associative and commutative but for the order of columns, so
the outcome depends on what the rows are and not on where one piece ended and the next began.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.encoding.types import undictionaried
from streampgs.errors import DataError

# The types that a user may ask for by name.
TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class DoNotFit(Exception):
    """Two types that no type holds both of."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The same values without an encoding that batches of a file would have to share."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain_type(field.type), metadata=field.metadata) for field in schema])


def joined_type(one: pa.DataType, other: pa.DataType, as_text: bool = False) -> pa.DataType:
    """The narrowest type for the values of both; `as_text`: what is written down fits a string at the worst."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _is_number(one) and _is_number(other):
        return _joined_numbers(one, other)
    if _is_string(one) and _is_string(other):
        return pa.large_string() if pa.large_string() in (one, other) else pa.string()
    if _is_moment(one) and _is_moment(other) and getattr(one, "tz", None) == getattr(other, "tz", None):
        finer = "ns" if "ns" in (getattr(one, "unit", "s"), getattr(other, "unit", "s")) else "us"
        return pa.timestamp(finer)
    if _is_list(one) and _is_list(other):
        return _joined_lists(one, other, as_text)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(list(_joined_fields(list(one), list(other), as_text)))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, joined_type(one.item_type, other.item_type, as_text))
    if as_text and not (pa.types.is_nested(one) or pa.types.is_nested(other)):
        return pa.string()
    raise DoNotFit


def joined_schema(one: pa.Schema, other: pa.Schema, as_text: bool, where: str) -> pa.Schema:
    """All columns of both. Rows with named features (a map) take up those whose features are numbers."""
    for first, second in ((one, other), (other, one)):
        if "features" in first.names and pa.types.is_map(first.field("features").type) and "indices" in second.names:
            kept = [field for field in second if field.name not in ("indices", "values")]
            return joined_schema(first, pa.schema(kept), as_text, where)
    fields = _joined_fields(list(one), list(other), as_text, where)
    return pa.schema(fields)


def _joined_fields(
    ones: list[pa.Field], others: list[pa.Field], as_text: bool, where: str | None = None
) -> list[pa.Field]:
    by_name = {field.name: field for field in others}
    joined = []
    for field in ones:
        other = by_name.pop(field.name, None)
        if other is None:
            joined.append(field)
            continue
        try:
            kind = joined_type(field.type, other.type, as_text)
        except DoNotFit:
            if where is None:
                raise
            raise DataError(
                f"{where}: column '{field.name}' is of type {other.type}, which does not fit {field.type} of the rows before",
                "make the column of one type everywhere, or pack the files into folders of their own",
            ) from None
        joined.append(pa.field(field.name, kind, metadata=field.metadata or other.metadata))
    return [*joined, *by_name.values()]


def _joined_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        both = {one, other}
        return pa.float32() if both <= {pa.float16(), pa.float32()} else pa.float64()
    if pa.types.is_unsigned_integer(one) and pa.types.is_unsigned_integer(other):
        return one if one.bit_width >= other.bit_width else other
    if pa.uint64() in (one, other):
        return pa.float64()
    bits = max(kind.bit_width * (2 if pa.types.is_unsigned_integer(kind) else 1) for kind in (one, other))
    return next(kind for kind in _SIGNED if kind.bit_width >= bits)


def _joined_lists(one: pa.DataType, other: pa.DataType, as_text: bool) -> pa.DataType:
    child = joined_type(one.value_type, other.value_type, as_text)
    if pa.types.is_fixed_size_list(one) and pa.types.is_fixed_size_list(other) and one.list_size == other.list_size:
        return pa.list_(child, one.list_size)
    if pa.types.is_large_list(one) or pa.types.is_large_list(other):
        return pa.large_list(child)
    return pa.list_(child)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_string(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows under a schema that holds theirs; columns that they lack are null."""
    columns: list[Any] = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            column = batch.column(place)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Decoded to `schema`, which is the `plain_schema` of the batch's own."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        columns.append(column if column.type == field.type else _decoded(column).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _decoded(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        return undictionaried(column)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column
