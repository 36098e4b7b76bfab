"""One schema for all rows of a pack: the narrowest that holds every batch.

Each batch has its natural schema. `joined_schema` is associative, and commutative except for the order of columns, so
that the result depends on the rows and not on the bounds of batches.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.base.errors import DataError
from streampgs.encoding.types import undictionaried

# The types of --types.
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
_SIGNED = {pa.int8(), pa.int16(), pa.int32(), pa.int64()}


class DoNotFit(Exception):
    """No type holds the values of both."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves, without dictionaries or extensions."""
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
    """The narrowest type for the values of both; with `as_text`, strings hold any plain values."""
    if pa.uint64() in (one, other) and _SIGNED & {one, other}:
        return pa.float64()
    one, other = _widened(one, other), _widened(other, one)
    try:
        both = [pa.schema([("", kind)]) for kind in (one, other)]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException:
        pass
    if _is_moment(one) and _is_moment(other) and getattr(one, "tz", None) == getattr(other, "tz", None):
        finer = "ns" if "ns" in (getattr(one, "unit", "s"), getattr(other, "unit", "s")) else "us"
        return pa.timestamp(finer)
    if _is_list(one) and _is_list(other):
        return pa.list_(joined_type(one.value_type, other.value_type, as_text))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(_joined_fields(list(one), list(other), as_text))
    if as_text and not (pa.types.is_nested(one) or pa.types.is_nested(other)):
        return pa.string()
    raise DoNotFit


def _widened(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Integers and decimals with a type that has room for all of them next to decimals and floats."""
    is_integer = pa.types.is_integer(kind)
    if (is_integer or pa.types.is_decimal(kind)) and pa.types.is_floating(other):
        return pa.float64()
    return pa.decimal128(len(str(2**kind.bit_width)), 0) if is_integer and pa.types.is_decimal(other) else kind


def joined_schema(one: pa.Schema, other: pa.Schema, as_text: bool, where: str) -> pa.Schema:
    """All columns of both. Rows with named features (a map) include those whose features are numbers."""
    for first, second in ((one, other), (other, one)):
        if "features" in first.names and pa.types.is_map(first.field("features").type) and "indices" in second.names:
            kept = [field for field in second if field.name not in ("indices", "values")]
            return joined_schema(first, pa.schema(kept), as_text, where)
    return pa.schema(_joined_fields(list(one), list(other), as_text, where))


def _joined_fields(
    ones: list[pa.Field], others: list[pa.Field], as_text: bool, where: str | None = None
) -> list[pa.Field]:
    by_name = {field.name: field for field in others}
    joined = []
    for field in ones:
        other = by_name.pop(field.name, field)
        try:
            kind = joined_type(field.type, other.type, as_text)
        except DoNotFit:
            if where is None:
                raise
            raise DataError(
                f"{where}: column '{field.name}' is of type {other.type}, which does not fit {field.type} of the rows before",
                "make the column of one type everywhere, or pack the files into separate folders",
            ) from None
        joined.append(pa.field(field.name, kind, metadata=field.metadata or other.metadata))
    return [*joined, *by_name.values()]


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def conformed(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The same rows under a wider schema; missing columns are null."""
    columns: list[Any] = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{where}: column '{field.name}' is {column.type}, and {field.type} in other rows: {error}",
                f"give it one type everywhere: in text by `--types {field.name}=string` or =double",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows decoded; `schema` is the `plain_schema` of theirs."""
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
