"""Tables and matrices in memory become record batches of bounded size with the same rows."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas
import polars
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
import scipy.sparse

from streampgs.base.errors import DataError, OptionError
from streampgs.packing.shards import write_shards
from streampgs.reading import array_slices
from streampgs.reading.in_memory import batches_of
from tests.packing.conftest import table_of

RANDOM = np.random.default_rng(4)
TABLE = pa.table({"x": RANDOM.normal(size=900), "word": [f"w{i % 7}" for i in range(900)]})


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(array_slices, "SLICE_BYTES", 2000)


def test_tables_of_all_libraries_are_accepted(tmp_path):
    sources = {
        "pyarrow": TABLE,
        "batch": TABLE.to_batches()[0],
        "polars": pl.from_arrow(TABLE),
        "duckdb": duckdb.from_arrow(TABLE),
        "reader": TABLE.to_reader(100),
        "dataset": pa.dataset.dataset(TABLE),
        "list": TABLE.to_batches(100),
        "iterator": iter(TABLE.to_batches(100)),
        "tables": [TABLE.slice(0, 300), pl.from_arrow(TABLE.slice(300))],
    }
    for name, source in sources.items():
        batches = list(batches_of(source))
        assert all(batch.nbytes <= 2500 for batch in batches), name
        shards = write_shards(iter(batches), tmp_path / name, rows_per_shard=250)
        assert [shard.rows for shard in shards] == [250, 250, 250, 150]
        assert table_of(tmp_path / name).to_pylist() == TABLE.to_pylist(), name


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["f8", "f4", "i2", "?", ">f8"])
def test_dense_matrices_are_accepted(order, kind):
    rows = np.asarray(RANDOM.integers(0, 2, (333, 5)).astype(kind), order=order)
    table = pa.Table.from_batches(batches_of(rows, np.arange(333)))
    assert table["features"].to_pylist() == rows.astype(float).tolist()
    assert table["label"].to_pylist() == list(range(333))


@pytest.mark.parametrize("make", ["csr_matrix", "csr_array", "csc_array", "coo_array"])
def test_sparse_matrices_are_accepted(make):
    dense = RANDOM.normal(size=(200, 50)) * (RANDOM.random((200, 50)) < 0.1)
    dense[7] = 1.0
    batches = list(batches_of(getattr(scipy.sparse, make)(dense), np.arange(200)))
    assert len(batches) > 5
    back = np.zeros(dense.shape)
    for row in pa.Table.from_batches(batches).to_pylist():
        back[row["label"], row["indices"]] = row["values"]
    assert np.array_equal(back, dense)


@pytest.mark.parametrize(
    ("source", "labels", "found"),
    [
        (5, None, "cannot read rows from a int"),
        ("a.csv", None, "cannot read rows from a str"),
        ([[1, 2], [3]], None, "different lengths"),
        ([["a", "b"]], None, "does not hold rows of numbers"),
        ({"a": [1, "b"]}, None, "the columns cannot become a table"),
        (polars.DataFrame({"a": [1]}).lazy(), None, "a LazyFrame has no rows yet"),
        ([{"a": 1}, 5], None, "the list cannot become a table"),
        (np.zeros(5), None, "has 1 axes"),
        (np.zeros((5, 0)), None, r"the shape \(5, 0\)"),
        (np.zeros((5, 2), complex), None, "of type complex128"),
        (np.zeros((5, 2)), np.zeros(4), "4 values for column 'label' and more rows"),
        (np.zeros((5, 2)), np.zeros(6), "6 values for column 'label' and 5 rows"),
        (np.zeros((5, 2)), np.zeros((5, 2)), r"column 'label' has the shape \(5, 2\)"),
        (pa.table({"label": [1]}), [1], "a column 'label'"),
    ],
)
def test_objects_without_rows_are_refused(source, labels, found):
    with pytest.raises(DataError, match=found):
        list(batches_of(source, labels))


@pytest.mark.parametrize(
    "source",
    [
        {"a": [1, 2], "b": ["x", None]},
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        pandas.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 3]),
        pandas.DataFrame({"a": [1, 2], "b": ["x", None]}, index=pandas.Index([7, 3], name="customer")),
    ],
    ids=["columns", "records", "shuffled rows of pandas", "a named index of pandas"],
)
def test_tables_of_python_have_their_columns_and_nothing_else(source):
    found = pa.Table.from_batches(batches_of(source))
    assert found.to_pydict() == {"a": [1, 2], "b": ["x", None]}


def test_shards_are_complete_or_absent(tmp_path):
    def failing():
        yield from TABLE.to_batches(100)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        write_shards(failing(), tmp_path / "out", rows_per_shard=400)
    assert list((tmp_path / "out").iterdir()) == []
    write_shards(iter(TABLE.to_batches()), tmp_path / "out")
    with pytest.raises(OptionError, match="not empty"):
        write_shards(iter([]), tmp_path / "out")
    with pytest.raises(DataError, match="different columns"):
        write_shards(iter([*TABLE.to_batches(), pa.record_batch({"x": [1]})]), tmp_path / "other")
