"""Vowpal Wabbit: `label [weight [base]] [tag]|namespace[:factor] name[:value] … |…`.

Features become indices while all are whole numbers of one namespace, and a map from their names otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.packing.source import Source, all_of, lines_of, numbers, rows_of_lines, whole_numbers
from streampgs.reading.array_slices import index_array, list_array

SPACE_KEY = b"namespace"
"""Key of the namespace of the numbers, in the metadata of the field 'indices'."""
# A word that starts with a quote or touches the bar is a tag; numbers are followed by blanks.
_HEAD = r"^(?P<label>[^\s']\S*)\s+(?:(?P<weight>[^\s']\S*)\s+(?:(?P<base>[^\s']\S*)\s+)?)?(?:'\S*\s*|\S*)$"
_SPACE = r"^(?P<name>[^:]*)(?::(?P<factor>.+))?$"


def read(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return rows_of_lines(source, lambda data: _parsed(data, schema))


def _parsed(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    parts = pc.split_pattern(lines_of(data), "|", max_splits=1)
    all_of(pc.equal(pc.list_value_length(parts), 2), "no bar between label and features")
    heads, bodies = parts.flatten()[0::2], parts.flatten()[1::2]
    label, weight, base = _groups(heads, _HEAD, "no 'label [weight [base]] [tag]' before the bar")
    fields = [pa.field("label", pa.float64())]
    columns = [numbers(label, "the label is not a number")]
    weights = _weights(weight)
    _weights(base)
    if pc.any(pc.not_equal(weight, "")).as_py() or "weight" in schema.names:
        fields.append(pa.field("weight", pa.float64()))
        columns.append(weights)
    for field, column in _features(bodies, schema):
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _groups(texts: Any, pattern: str, reason: str) -> list[Any]:
    """The groups of a pattern in each text; one that is left out is empty."""
    found = pc.extract_regex(texts, pattern)
    all_of(found.is_valid(), reason)
    groups: list[Any] = found.flatten()
    return groups


def _weights(texts: Any) -> Any:
    """The numbers; 1 in place of an empty text."""
    return numbers(pc.if_else(pc.equal(texts, ""), "1", texts), "a weight is not a number")


def _features(bodies: Any, schema: pa.Schema) -> Iterator[tuple[pa.Field, pa.Array]]:
    spaces = pc.split_pattern(bodies, "|")
    words = pc.ascii_split_whitespace(spaces.flatten())  # the first touches the bar, or is empty
    space, factor = _groups(words.flatten().take(words.offsets[:-1]), _SPACE, "a weight is not a number")
    is_feature = pc.not_equal(words.flatten(), "").to_numpy(zero_copy_only=False)
    is_feature[words.offsets[:-1].to_numpy()] = False
    space_of = pc.list_parent_indices(words).filter(is_feature)
    parts = pc.split_pattern(words.flatten().filter(is_feature), ":")
    pieces = pc.list_value_length(parts)
    name, last = parts.flatten().take(parts.offsets[:-1]), parts.flatten().take(pc.subtract(parts.offsets[1:], 1))
    all_of(pc.and_(pc.less_equal(pieces, 2), pc.not_equal(name, "")), "a feature is not name or name:value")
    factors = _weights(factor).take(space_of)
    value = numbers(pc.if_else(pc.equal(pieces, 1), "1", last), "a value is not a number")
    values = pc.multiply(factors, value)
    row_of = pc.list_parent_indices(spaces).take(space_of).to_numpy()
    counts = np.bincount(row_of, minlength=len(bodies))
    space = space.take(space_of)
    numbered = _numbered(name, space, schema)
    if numbered is None:
        prefixed = pc.binary_join_element_wise(space, name, "^")
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        column = pa.MapArray.from_arrays(offsets, pc.if_else(pc.equal(space, ""), name, prefixed), values)
        yield pa.field("features", column.type), column
        return
    indices, metadata = numbered
    for field, child, known in (("indices", index_array(indices), metadata), ("values", values, None)):
        column = list_array(counts, child)
        yield pa.field(field, column.type, metadata=known), column


def _numbered(names: Any, spaces: Any, schema: pa.Schema) -> tuple[Any, dict[bytes, bytes] | None] | None:
    """The names as numbers, and their namespace; None unless all are numbers of the one namespace."""
    if "features" in schema.names:
        return None
    found = {space.encode() for space in pc.unique(spaces).to_pylist()}
    if "indices" in schema.names:
        found |= {space for key, space in (schema.field("indices").metadata or {}).items() if key == SPACE_KEY}
    indices = whole_numbers(names) if len(found) <= 1 else None
    if indices is None:
        return None
    return indices.to_numpy(), {SPACE_KEY: found.pop()} if found else None
