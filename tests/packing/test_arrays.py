"""Shards packed from arrays, Parquet and Arrow hold the same numbers."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from streampgs.base.errors import DataError
from streampgs.packing.packer import pack
from streampgs.reading import array_slices
from tests.packing.conftest import table_of

RANDOM = np.random.default_rng(2)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(array_slices, "SLICE_BYTES", 400)


def packed(tmp_path, name: str, **options) -> pa.Table:
    pack(tmp_path / name, tmp_path / "out", overwrite=True, **options)
    return table_of(tmp_path / "out")


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_a_packed_csr_matrix_has_the_same_numbers(tmp_path, compressed, kind):
    matrix = scipy.sparse.random(200, 900, 0.02, format="csr", random_state=RANDOM)
    matrix.data = (matrix.data * 1000).astype(kind)
    scipy.sparse.save_npz(tmp_path / "m.npz", matrix, compressed=compressed)
    labels = RANDOM.integers(0, 2, 200)
    (tmp_path / "y.txt").write_text("\n".join(map(str, labels.tolist())))
    table = packed(tmp_path, "m.npz", labels=tmp_path / "y.txt", rows_per_shard=77)
    assert table.schema.field("values").type == pa.list_(pa.from_numpy_dtype(kind))
    indptr = np.append(0, np.cumsum([len(row) for row in table["indices"].to_pylist()]))
    indices = table["indices"].combine_chunks().flatten().to_numpy()
    values = table["values"].combine_chunks().flatten().to_numpy()
    back = scipy.sparse.csr_matrix((values, indices, indptr), matrix.shape)
    assert (back != matrix).nnz == 0
    assert table["label"].to_pylist() == labels.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_with_a_matrix_and_labels_is_packed(tmp_path, order):
    rows = np.asarray(RANDOM.normal(size=(60, 7)), order=order)
    labels = RANDOM.integers(0, 3, 60)
    np.savez(tmp_path / "both.npz", X=rows, y=labels, weight=np.ones(60, ">f4"))
    table = packed(tmp_path, "both.npz")
    assert table.column_names == ["features", "label", "weight"]
    assert table["features"].to_pylist() == rows.tolist()
    assert table["label"].to_pylist() == labels.tolist()
    np.save(tmp_path / "rows.npy", rows)
    assert packed(tmp_path, "rows.npy")["features"].to_pylist() == rows.tolist()


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"a": np.arange(3), "b": np.arange(4)}, "4 values for column 'b' and 3 rows"),
        ({"a": np.zeros((2, 2, 2))}, "3 axes"),
        ({"a": np.array([{}, {}])}, "is damaged: Object arrays"),
        ({"a": np.zeros((2, 2)), "b": np.zeros((2, 2))}, "several matrices"),
        ({"a": np.zeros((2, 3), complex)}, "of type complex128"),
        ({"a": np.array(5)}, "has 0 axes"),
        ({"indptr": np.arange(3), "data": np.ones(2)}, "but not both of"),
        ({"indptr": np.array([1, 2, 2]), "data": np.ones(2), "indices": np.zeros(2, int)}, "are not a matrix"),
        ({"indptr": np.array([0, 9, 2]), "data": np.ones(2), "indices": np.zeros(2, int)}, "row pointers lead outside"),
        ({"indptr": np.arange(3), "data": np.ones(2), "indices": np.zeros(2, int), "format": b"csc"}, "format"),
    ],
)
def test_arrays_that_do_not_hold_rows_are_refused(tmp_path, arrays, found):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=found) as error:
        packed(tmp_path, "a.npz")
    assert error.value.remedy


def test_damaged_arrays_are_refused(tmp_path):
    file = io.BytesIO()
    np.savez_compressed(file, X=RANDOM.normal(size=(100, 4)))
    data = file.getvalue()
    np.save(tmp_path / "whole.npy", np.zeros((50, 4)))
    damages = {
        "short.npz": data[:-50],
        "bent.npz": data[:300] + bytes([data[300] ^ 1]) + data[301:],
        "short.npy": (tmp_path / "whole.npy").read_bytes()[:-8],
        "head.npy": b"\x93NUMPY\x01\x00v\x00{'descr': oh",
    }
    for name, damaged in damages.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(DataError, match=name):
            packed(tmp_path, name)


def nested() -> pa.Table:
    rows = 500
    return pa.table(
        {
            "label": RANDOM.integers(0, 2, rows),
            "word": pa.array(["a", "b", None, "c", "d"] * 100).dictionary_encode(),
            "deep": pa.array([{"x": [1.5] * (i % 3), "y": None} for i in range(rows)]),
            "when": pa.array([1_600_000_000_000_000 + i for i in range(rows)], pa.timestamp("us", "UTC")),
        }
    )


def test_packed_tables_have_the_same_rows(tmp_path):
    table = nested()
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=130)
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=130)
    with pa.ipc.new_stream(str(tmp_path / "t.arrows"), table.schema) as writer:
        writer.write_table(table, max_chunksize=130)
    with pa.ipc.new_file(
        str(tmp_path / "t.ipc"), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.arrow", "t.arrows", "t.ipc"):
        for format in ("arrow", "parquet"):
            back = packed(tmp_path, name, rows_per_shard=90, format=format)
            assert back.schema.field("word").type == pa.string()
            assert back.to_pylist() == table.to_pylist(), name
