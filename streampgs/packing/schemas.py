"""One schema for all rows of a pack, under which every batch is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.base.errors import DataError

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


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves, without dictionaries, extensions or views."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return (pa.list_ if pa.types.is_list(kind) else pa.large_list)(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with columns of plain types, without metadata."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = plain_type(column.type)
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        columns[name] = column if column.type == kind else column.cast(kind)
    if len(columns) < batch.num_columns:
        raise DataError("two columns have the same name", "rename one of them")
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def joined_schema(one: pa.Schema, other: pa.Schema, where: str) -> pa.Schema:
    """All columns of both, each of the narrowest type that holds its values. Rows with named features (a map) include
    those whose features are numbers."""
    for first, second in ((one, other), (other, one)):
        if "features" in first.names and pa.types.is_map(first.field("features").type) and "indices" in second.names:
            kept = [field for field in second if field.name not in ("indices", "values")]
            return joined_schema(first, pa.schema(kept), where)
    fields = {field.name: field for field in one}
    for field in other:
        known = fields.setdefault(field.name, field)
        try:
            kind = _joined_type(known.type, field.type)
        except pa.ArrowException:
            raise DataError(
                f"{where}: column '{field.name}' is of type {field.type}, which does not fit {known.type} of the rows "
                "before",
                f"make it of one type everywhere: in CSV by `--types {field.name}=string` or =double; or pack the files "
                "into separate folders",
            ) from None
        fields[field.name] = known.with_type(kind)
    return pa.schema(fields.values())


def _joined_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    for kind, second in ((one, other), (other, one)):
        if pa.types.is_decimal(kind) and pa.types.is_floating(second):
            return pa.float64()
    return pa.unify_schemas([pa.schema([("", one)]), pa.schema([("", other)])], promote_options="permissive").types[0]


def conformed(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The same rows under a wider schema; missing columns are null."""
    columns: list[Any] = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise DataError(
                f"{where}: column '{field.name}' is {column.type}, and {field.type} in other rows: {error}",
                f"give it one type everywhere: in CSV by `--types {field.name}=string` or =double",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
