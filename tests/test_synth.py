"""Synthetic rows are pure functions of the seed and the row number."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from scipy.stats import kstest, norm

from streampgs.base.errors import OptionError
from streampgs.packing import synth
from streampgs.packing.options import FORMATS
from streampgs.packing.synth import KINDS, write_dataset


def read(folder: Path) -> pa.Table:
    tables = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".arrow":
            tables.append(pa.ipc.open_file(pa.memory_map(str(path))).read_all())
        else:
            tables.append(pq.read_table(path))
    return pa.concat_tables(tables).combine_chunks()


def row_bytes(table: pa.Table) -> list[tuple[bytes, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(np.asarray(cell).tobytes() for cell in row) for row in zip(*columns, strict=True)]


def csr(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, indices, values)"""
    indices, values = (table[name].combine_chunks() for name in ("indices", "values"))
    assert indices.offsets.equals(values.offsets)
    return np.asarray(indices.offsets), np.asarray(indices.values), np.asarray(values.values)


def dense(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    features = table["features"].combine_chunks()
    matrix = np.asarray(features.values, np.float64).reshape(len(features), -1)
    return np.asarray(table["label"], np.float64), matrix


# --------------------------------------------------------------------------------- same rows in all formats


def test_the_rows_of_a_seed_are_pinned(tmp_path):
    for kind in ("sparse", "dense"):
        write_dataset(tmp_path / kind, rows=12, kind=kind, shards=1)
    sparse = read(tmp_path / "sparse")
    assert sparse["label"].to_pylist() == [-1, -1, -1, -1, -1, 1, -1, -1, -1, -1, -1, 1]
    assert sparse["indices"][0].as_py()[:6] == [716, 775, 1172, 1687, 1760, 2576]
    assert csr(sparse)[0][:4].tolist() == [0, 84, 194, 265]
    assert read(tmp_path / "dense")["label"].to_pylist() == [0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_their_order_depend_on_neither_format_nor_shards(kind, tmp_path):
    tables = []
    for shards, format in itertools.product((1, 3, 7), FORMATS):
        out = tmp_path / f"{shards}-{format}"
        report = write_dataset(out, rows=5_000, kind=kind, shards=shards, format=format, seed=3)
        names = sorted(path.name for path in out.iterdir())
        assert names == [f"part-{shard:05d}.{format}" for shard in range(shards)]
        assert report.files == shards
        assert report.bytes == sum(path.stat().st_size for path in out.iterdir())
        tables.append(read(out))
    assert all(table.equals(tables[0]) for table in tables)
    assert tables[0].num_rows == 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_test_rows_differ_from_the_training_rows_and_do_not_depend_on_them(kind, tmp_path):
    report = write_dataset(tmp_path / "a", rows=2_000, kind=kind, test_rows=1_500)
    write_dataset(tmp_path / "b", rows=10, shards=1, kind=kind, test_rows=1_500, format="parquet")
    assert report.test_folder == tmp_path / "a-test"
    train, test = read(tmp_path / "a"), read(tmp_path / "a-test")
    assert not set(row_bytes(train)) & set(row_bytes(test))
    assert test.equals(read(tmp_path / "b-test"))


# ------------------------------------------------------------------------------------- properties of the rows


def test_words_become_normal_numbers():
    """256 layers, each with its wedge, and the tail."""
    numbers = synth.normals(synth.words_of(synth.key_for(7, synth._ROWS), np.arange(2_000_000)))
    assert kstest(numbers, "norm").pvalue > 1e-3
    beyond = [np.mean(np.abs(numbers) > edge) for edge in (2.0, 3.0, 4.0)]
    assert beyond == pytest.approx([2.0 * norm.sf(edge) for edge in (2.0, 3.0, 4.0)], rel=0.2)


def test_sparse_rows_have_length_1_and_rare_features_weigh_more(tmp_path):
    write_dataset(tmp_path / "set", rows=3_000, kind="sparse", shards=1)
    offsets, indices, values = csr(read(tmp_path / "set"))
    assert np.sqrt(np.add.reduceat(values.astype(float) ** 2, offsets[:-1])) == pytest.approx(1.0, rel=1e-5)
    same_row = np.diff(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))) == 0
    assert (np.diff(indices.astype(np.int64))[same_row] > 0).all()
    counts = np.bincount(indices, minlength=47_236)[indices]
    assert np.corrcoef(np.log(counts), np.log(values))[0, 1] < -0.2


def test_dense_rows_are_correlated_and_a_linear_model_has_accuracy_80(tmp_path):
    write_dataset(tmp_path / "set", rows=60_000, kind="dense", test_rows=60_000)
    labels, matrix = dense(read(tmp_path / "set"))
    test_labels, test_matrix = dense(read(tmp_path / "set-test"))
    assert matrix.shape[1] == 28
    assert matrix.std(axis=0).min() > 0.3
    assert matrix.std(axis=0).max() < 4
    assert np.abs(np.corrcoef(matrix.T) - np.eye(28)).max() > 0.3
    centre = matrix.mean(axis=0)
    fitted = np.linalg.lstsq(matrix - centre, labels - labels.mean(), rcond=None)[0]
    assert (((test_matrix - centre) @ fitted > 0) == test_labels).mean() == pytest.approx(0.805, abs=0.01)


# ------------------------------------------------------------------------------------------ files and folders


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_leaves_no_part_of_a_table_and_can_be_repeated(number, tmp_path):
    words = [sys.executable, "-m", "streampgs", "synth", str(tmp_path / "set"), "--kind", "dense", "--shards", "2000"]
    with subprocess.Popen([*words, "--rows", "4000000"], stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.glob("set/.writing/part*"))) < 3 and process.poll() is None:
            time.sleep(0.005)
        with pytest.raises(OptionError, match="another process writes into"):
            write_dataset(tmp_path / "set", rows=10, kind="dense")
        process.send_signal(number)
        assert process.wait(60) == {signal.SIGKILL: -9, signal.SIGTERM: 143}[number]
    left = [path.name for path in (tmp_path / "set").iterdir()]
    assert left == ([".writing"] if number == signal.SIGKILL else [])
    write_dataset(tmp_path / "set", rows=10, kind="dense", shards=1)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["part-00000.arrow"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"rows": 0}, "--rows 0"),
        ({"rows": 2**40 + 1}, "--rows"),
        ({"shards": 0}, "--shards 0"),
        ({"kind": "cubic"}, "cubic is unknown"),
        ({"format": "csv"}, "csv is unknown"),
        ({"features": 1}, "--features 1 with --kind sparse"),
        ({"kind": "dense", "features": 0}, "--features 0"),
        ({"kind": "dense", "features": 2**24 + 1}, "--features"),
        ({"test_rows": -1}, "--test-rows -1"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": 2**64}, f"--seed {2**64}"),
    ],
)
def test_an_impossible_option_is_named_with_a_remedy_and_nothing_is_made(options, found, tmp_path):
    with pytest.raises(OptionError, match=found) as caught:
        write_dataset(tmp_path / "set", **{"rows": 100, "kind": "sparse", **options})
    assert caught.value.remedy.startswith(("choose one", "give"))
    assert list(tmp_path.iterdir()) == []
