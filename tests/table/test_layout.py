"""Columns of all types become numbers in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.encoding.labels import LABEL_NULL
from streampgs.encoding.rows import LENGTHS_DIFFER
from streampgs.reading.decode import rows_of_table
from streampgs.reading.placing import _of_width, targets_of
from streampgs.table.layout import Columns, find_layout

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
NUMBERS = [*INTEGERS, *FLOATS]

INDICES = [[0, 3, 5], [], [1], [2, 127]]
VALUES = [[1.0, 2.0, 100.0], [], [0.0], [7.0, 3.0]]
LABELS = [1, 0, 1, 0]

# List types. A fixed-size list needs rows of the same length.
LISTS = {"list": pa.list_, "large_list": pa.large_list}
FIXED = {"fixed-size list of 3": lambda child: pa.list_(child, 3)}


def column(values: list, kind: pa.DataType) -> pa.Array:
    """An array of any number type. For some types pyarrow does not accept Python's int or float."""
    types = {pa.float16(): np.float16, pa.bool_(): bool}
    convert = types.get(kind, lambda value: value)
    return pa.array([None if value is None else convert(value) for value in values], kind)


@dataclass
class Rows:
    """Rows as arrays, like those of a window."""

    reasons: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    bounds: np.ndarray
    indices: np.ndarray | None
    values: np.ndarray | None

    def __len__(self) -> int:
        return len(self.reasons)


def rows(columns: dict[str, pa.Array], names: Columns = Columns(), classifies: bool = True, width: int | None = None):
    """The rows of a table with these columns."""
    schema = pa.schema({name: array.type for name, array in columns.items()})
    layout = find_layout(schema, names, "s")
    assert set(layout.columns) <= set(columns)
    block = rows_of_table({name: columns[name] for name in layout.columns}, names)
    reasons, values = block.faults.copy(), block.values
    targets, weights = targets_of(block, names, classifies, layout.classes, reasons)
    if block.indices is None and (width or layout.width) is not None:
        values = _of_width(block, values, width or layout.width, reasons)
    return Rows(reasons, targets, weights, block.bounds, block.indices, values)


def entries(arrays: Rows) -> list[tuple[list[int], list[float]]]:
    spans = [slice(arrays.bounds[r], arrays.bounds[r + 1]) for r in range(len(arrays))]
    return [(arrays.indices[s].tolist(), arrays.values[s].tolist()) for s in spans]


def sparse(indices=None, values=None, labels=None) -> dict[str, pa.Array]:
    return {
        "label": pa.array(LABELS, pa.int8()) if labels is None else labels,
        "indices": pa.array(INDICES, pa.list_(pa.int32())) if indices is None else indices,
        "values": pa.array(VALUES, pa.list_(pa.float32())) if values is None else values,
    }


EXPECTED = list(zip(INDICES, VALUES, strict=True))


# Columns of every type.


@pytest.mark.parametrize("holder", LISTS)
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_indices_may_have_every_integer_type(holder, kind):
    arrays = rows(sparse(indices=pa.array(INDICES, LISTS[holder](kind))))
    assert entries(arrays) == EXPECTED
    assert not arrays.reasons.any()


@pytest.mark.parametrize("holder", LISTS)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_values_may_have_every_number_type(holder, kind):
    values = [[np.float16(v) for v in row] if kind == pa.float16() else row for row in VALUES]
    assert entries(rows(sparse(values=pa.array(values, LISTS[holder](kind))))) == EXPECTED


@pytest.mark.parametrize("kind", [*NUMBERS, pa.bool_()], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_labels_may_have_every_number_type_and_bool(kind, nulls):
    arrays = rows(sparse(labels=column([None if nulls else 1, 0, 1, 0], kind)))
    assert arrays.labels.tolist()[1:] == [-1.0, 1.0, -1.0]
    assert arrays.labels.dtype == np.float64
    assert arrays.reasons.tolist() == [LABEL_NULL if nulls else 0, 0, 0, 0]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("holder", [*LISTS, *FIXED])
def test_dense_rows_may_have_every_number_type(holder, kind):
    make = {**LISTS, **FIXED}[holder]
    table = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    features = pa.array([[np.float16(v) if kind == pa.float16() else v for v in row] for row in table], make(kind))
    arrays = rows({"label": pa.array([1, 0, 1]), "features": features}, width=3)
    assert arrays.values.reshape(3, 3).tolist() == table
    assert not arrays.reasons.any()


# Slices: arrays that begin inside their buffers.


@pytest.mark.parametrize("start", range(5))
def test_slices_have_the_rows_of_the_whole_array(start):
    nested = sparse(
        indices=pa.array([[0, 1], None, [2], [], [3, 4]], pa.large_list(pa.uint16())),
        values=pa.array([[0.5, 1.5], None, [2.5], [], [3.5, 4.5]], pa.list_(pa.float16())),
        labels=pa.array([True, False, None, True, False]),
    )
    whole = rows(nested)
    part = rows({name: array.slice(start) for name, array in nested.items()})
    assert entries(part) == entries(whole)[start:]
    assert part.labels.tolist() == whole.labels.tolist()[start:]
    assert part.reasons.tolist() == whole.reasons.tolist()[start:]


def test_values_and_indices_may_have_different_offsets():
    """Null lists may hide entries, so the offsets of the two columns can differ although the lengths are the same."""
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 4, 5], pa.int32()), pa.array([9, 9, 1, 2, 3], pa.int32()))
    values = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array([0.5, 1.5, 2.5, 3.5], pa.float32()))
    arrays = rows({"label": pa.array([1, 1, 1]), "indices": hidden, "values": values})
    assert arrays.reasons.tolist() == [LENGTHS_DIFFER, 0, 0]
    assert entries(arrays)[1:] == [([1, 2], [1.5, 2.5]), ([3], [3.5])]


# Names of columns.


@pytest.mark.parametrize(("labels", "expected"), [([-1, 1], [-1, 1]), ([0, 1], [-1, 1]), ([-1.0, 1.0], [-1, 1])])
def test_labels_of_two_classes_are_minus_one_or_zero_and_one(labels, expected):
    arrays = rows(sparse(labels=pa.array([*labels, 1, 1])))
    assert arrays.labels.tolist() == [*expected, 1, 1]


# Wrong types: the error names the shard, the column and the expected type.

LABEL = pa.field("label", pa.int8())
GOOD_INDICES = pa.field("indices", pa.list_(pa.int32()))

WRONG = {
    "no label": ([GOOD_INDICES], "no label column 'label'", "--label COLUMN"),
    "two labels": ([LABEL, LABEL, GOOD_INDICES], "no label column 'label'", "--label"),
    "text as label": ([("label", pa.string()), GOOD_INDICES], "label column 'label' is of type string", "numbers"),
    "list as label": ([("label", pa.list_(pa.int8())), GOOD_INDICES], "'label' is of type list", "numbers"),
    "dictionary as label": (
        [("label", pa.dictionary(pa.int8(), pa.string())), GOOD_INDICES], "'label' is of type dictionary", "numbers"
    ),
    "decimal as label": ([("label", pa.decimal128(9, 2)), GOOD_INDICES], "'label' is of type decimal128", "numbers"),
    "time as label": ([("label", pa.timestamp("s")), GOOD_INDICES], "'label' is of type timestamp", "numbers"),
    "one index": ([LABEL, ("indices", pa.int32())], "column 'indices' is of type int32", "list of integers"),
    "float indices": ([LABEL, ("indices", pa.list_(pa.float32()))], "column 'indices' is of type list", "list of integers"),
    "fixed indices": ([LABEL, ("indices", pa.list_(pa.int32(), 4))], "'indices' is of type fixed_size_list", "list of integers"),
    "text values": ([LABEL, GOOD_INDICES, ("values", pa.list_(pa.string()))], "column 'values' is of type list", "floats"),
    "one value": ([LABEL, GOOD_INDICES, ("values", pa.float32())], "column 'values' is of type float", "floats"),
    "features of lists": (
        [LABEL, ("features", pa.list_(pa.list_(pa.float32())))], "column 'features' is of type list", "floats or integers"
    ),
    "one feature": ([LABEL, ("features", pa.float64())], "column 'features' is of type double", "floats or integers"),
    "no features": ([LABEL, ("text", pa.string())], "no features among its columns (label, text)", "'features' for dense"),
    "values alone": ([LABEL, ("values", pa.list_(pa.float32()))], "no features among its columns", "'indices'"),
    "two columns of indices": ([LABEL, GOOD_INDICES, GOOD_INDICES], "2 columns are called 'indices'", "rename"),
    "two columns of features": (
        [LABEL, ("features", pa.list_(pa.float32())), ("features", pa.int8())], "2 columns are called 'features'", "rename"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_columns_of_a_wrong_type_are_named(what):
    fields, found, remedy = WRONG[what]
    with pytest.raises(DataError) as refused:
        find_layout(pa.schema(fields), Columns(), "part-7.parquet")
    assert "shard 'part-7.parquet'" in refused.value.found
    assert found in refused.value.found
    assert remedy in refused.value.remedy
