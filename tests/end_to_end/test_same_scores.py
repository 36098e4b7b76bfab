"""A row has the same score however it is given: every way of giving rows, for every encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

import streampgs
from streampgs.base.errors import DataError
from streampgs.encoding.encoding import Encoding
from streampgs.model.model import Model
from streampgs.model.prediction import predict
from streampgs.options.commands import EncodingOptions
from tests.encoding import tables

WIDTH = 5
VECTOR_FEATURES = 2100  # of the vectors in tests.encoding.tables


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Its weights and its encoding are replaced in each test."""
    run = tmp_path_factory.mktemp("runs") / "run"
    streampgs.train(np.eye(8), np.arange(8) % 2, run=run, sigma=0.1, epochs=1)
    return Model.load(run)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    return (str(folder / str(number)) for number in count())


def with_encoding(trained: Model, encoding: Encoding | None, layout: str, features: int) -> Model:
    random = np.random.default_rng(features)
    return replace(
        trained,
        weights=random.normal(size=features),
        intercept_=0.25,
        encoding=encoding,
        row_map=None,
        settings=replace(trained.settings, layout=layout),
    )


def of_file(model: Model, table: pa.Table, name: str, ending: str) -> Any:
    """The scores of a shard's rows."""
    path = Path(name + ending)
    if ending == ".parquet":
        pq.write_table(table, path, row_group_size=5)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    out = Path(name + "-scores.parquet")
    predict(model, [str(path)], out)
    return pq.read_table(out)["score"].to_numpy()


def result(score: Callable[[], Any]) -> Any:
    """The bits of the scores, or that a row was refused."""
    try:
        return np.asarray(score()).tobytes()
    except DataError as error:
        assert " row " in f" {error}"
        return "refused"


# Tables, for all kinds of columns.


def _of_polars(table: pa.Table) -> Any:
    """Polars aborts the process when it exports dictionaries or decimals inside other columns."""
    for one in table.schema:
        risky = "dictionary" in str(one.type) or "decimal" in str(one.type)
        if risky and (pa.types.is_nested(one.type) or pa.types.is_decimal256(one.type)):
            raise NotImplementedError
    return pl.from_arrow(table)


TABLE_WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "batches": lambda table: iter(table.to_batches(max_chunksize=3)),
    "polars": _of_polars,
    "turned columns": lambda table: table.select(table.schema.names[::-1]),
    "more columns": lambda table: table.append_column("more", pa.array(["x"] * table.num_rows)),
}


@pytest.mark.parametrize("standardize", ["auto", "on", "off"])
@settings(max_examples=40)
@given(data=st.data())
def test_tables_of_all_kinds_of_columns(data: Any, standardize: str, trained: Model, names: Iterator[str]) -> None:
    drawn = data.draw(tables.tables())
    categories = [spec.name for spec in drawn.specs if spec.role == "category"]
    pairs = tuple(pairwise(categories))
    options = drawn.options(standardize=standardize, hash_bits=8, cross=pairs[:1])
    encoding = tables.learnt(drawn, options)
    layout = "dense" if encoding.dense else "sparse"
    model = with_encoding(trained, encoding, layout, encoding.features or encoding.unbounded_first + VECTOR_FEATURES)
    table = pa.table(drawn.arrays)
    expected = result(lambda: model.decision_function(table))
    for name, way in TABLE_WAYS.items():
        try:
            rows = way(table)
        except (pa.ArrowException, pl.exceptions.PolarsError, NotImplementedError, ValueError):
            continue  # a type that the library does not know
        assert result(lambda rows=rows: model.decision_function(rows)) == expected, name
    for ending in (".parquet", ".arrow"):
        try:
            found = result(lambda ending=ending: of_file(model, table, next(names), ending))
        except (pa.ArrowException, NotImplementedError):
            continue
        assert found == expected, ending


# Matrices of numbers, for all encodings that can hold one.


@dataclass(frozen=True)
class Numbers:
    """How the table was written that the model is trained on."""

    table: Callable[[Any], pa.Table]
    sparse: bool
    encoded: bool


def fixed(matrix: Any) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), WIDTH)


def entries(matrix: Any) -> tuple[pa.Array, pa.Array]:
    rows = sparse.csr_matrix(matrix)
    indices, values = (pa.ListArray.from_arrays(pa.array(rows.indptr), pa.array(a)) for a in (rows.indices, rows.data))
    return indices, values


def columns(matrix: Any) -> pa.Table:
    return pa.table({f"x {number}": column for number, column in enumerate(np.asarray(matrix).T)})


def pairs_of(matrix: Any) -> pa.Table:
    indices, values = entries(matrix)
    return pa.table({"v": pa.StructArray.from_arrays([indices, values], ["indices", "values"])})


def index_and_value(matrix: Any) -> pa.Table:
    return pa.table(entries(matrix), ["indices", "values"])


TRAINED_ON = {
    "columns": Numbers(columns, False, True),
    "a list, encoded": Numbers(lambda matrix: pa.table({"features": fixed(matrix)}), False, True),
    "a list of another name": Numbers(lambda matrix: pa.table({"embedding": fixed(matrix)}), False, True),
    "a list, as it is": Numbers(lambda matrix: pa.table({"features": fixed(matrix)}), False, False),
    "a vector": Numbers(pairs_of, True, True),
    "indices and values, encoded": Numbers(index_and_value, True, True),
    "indices and values, as they are": Numbers(index_and_value, True, False),
}
MATRIX_WAYS: dict[str, Callable[[Any], Any]] = {
    "array": lambda matrix: matrix,
    "array in columns": np.asfortranarray,
    "every other row of an array": lambda matrix: np.repeat(matrix, 2, axis=0)[::2],
    "float32": lambda matrix: matrix.astype(np.float32),
    "big endian": lambda matrix: matrix.astype(">f8"),
    "objects": lambda matrix: matrix.astype(object),
    "long doubles": lambda matrix: matrix.astype(np.longdouble),
    "list of lists": lambda matrix: matrix.tolist(),
    "tuple of arrays": tuple,
    "csr": sparse.csr_matrix,
    "csr array": sparse.csr_array,
    "csr, 64-bit indices": lambda matrix: _with_long_indices(sparse.csr_matrix(matrix)),
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_matrix,
}
INTEGER_WAYS: dict[str, Callable[[Any], Any]] = {
    dtype: lambda matrix, dtype=dtype: matrix.astype(dtype)
    for dtype in ("int8", "int32", "int64")  # type: ignore[misc]
}


def _with_long_indices(matrix: Any) -> Any:
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


@pytest.mark.parametrize("trained_on", TRAINED_ON)
@settings(max_examples=20)
@given(data=st.data(), standardize=st.sampled_from(["auto", "on", "off"]), whole=st.booleans())
def test_matrices(
    data: Any, trained_on: str, standardize: str, whole: bool, trained: Model, names: Iterator[str]
) -> None:
    numbers = TRAINED_ON[trained_on]
    cells = st.integers(-99, 99).map(float if whole else lambda cell: cell / 8)
    matrix = data.draw(arrays.arrays(np.float64, st.tuples(st.integers(1, 9), st.just(WIDTH)), elements=cells))
    table = numbers.table(matrix)
    options, encoding = EncodingOptions(standardize=standardize), None
    if numbers.encoded:
        encoding = tables.learn(tables.plan_columns(table.schema, options, {}, "a table"), options, [_arrays(table)])
    model = with_encoding(trained, encoding, "sparse" if numbers.sparse else "dense", WIDTH)
    expected = np.asarray(model.decision_function(matrix)).tobytes()
    ways = {**MATRIX_WAYS, **(INTEGER_WAYS if whole else {}), **TABLE_WAYS}
    if trained_on == "columns":
        ways["pandas"] = lambda matrix: columns(matrix).to_pandas()
    if trained_on.startswith("a list, "):
        ways["other columns"] = pl.DataFrame
    for name, way in ways.items():
        rows = way(table if name in TABLE_WAYS else matrix)
        assert np.asarray(model.decision_function(rows)).tobytes() == expected, name
    for ending in (".parquet", ".arrow"):
        assert of_file(model, table, next(names), ending).tobytes() == expected, ending
    one = [model.decision_function(row)[0] for row in matrix]
    assert np.asarray(one).tobytes() == expected, "rows one by one"


def _arrays(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.schema.names}


def test_a_matrix_with_nulls_as_nan(trained: Model) -> None:
    table = pa.table({"a": [1.0, None, 3.0], "b": [4, 5, None], "c": [True, False, None]})
    for options in (EncodingOptions(), EncodingOptions(null_flags=True)):
        plan = tables.plan_columns(table.schema, options, {}, "a table")
        encoding = tables.learn(plan, options, [_arrays(table)])
        model = with_encoding(trained, encoding, "dense", encoding.unbounded_first)
        rows = np.column_stack([table[name].to_numpy().astype(float) for name in "abc"])
        np.testing.assert_array_equal(model.decision_function(rows), model.decision_function(table))
