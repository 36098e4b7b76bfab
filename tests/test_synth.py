"""Synthetic rows are pure functions of the seed and the row number."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

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


# --------------------------------------------------------------------------------------------- the plain twin

MASK = (1 << 64) - 1


def twin_mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def twin_word(key: int, position: int) -> int:
    return twin_mixed((key + (position + 1) * 0x9E3779B97F4A7C15) & MASK)


def twin_next(word: int) -> int:
    return twin_word(word, 0)


def twin_row_key(seed: int, number: int) -> int:
    return twin_word(twin_word(twin_mixed(seed), synth._ROWS), number)


def twin_uniform(word: int) -> float:
    return ((word >> 11) + 0.5) / 2**53


def twin_normal(word: int) -> float:
    edges = synth._EDGES.tolist()
    while True:
        layer = word % 256
        sign = -1.0 if word >> 63 else 1.0
        signed = ((word >> 11) - (1 << 53 if word >> 63 else 0)) / 2**52
        x = signed * edges[layer]
        if abs(x) < edges[layer + 1]:
            return x
        word = twin_next(word)
        while layer == 0:
            beyond = -math.log(twin_uniform(word)) / edges[1]
            word = twin_next(word)
            if -2.0 * math.log(twin_uniform(word)) > beyond**2:
                return sign * (edges[1] + beyond)
            word = twin_next(word)
        low, high = (math.exp(-0.5 * edge**2) for edge in edges[layer : layer + 2])
        if low + twin_uniform(word) * (high - low) < math.exp(-0.5 * x**2):
            return x
        word = twin_next(word)


def twin_sparse_row(seed: int, number: int, vocabulary: synth.Sparse) -> tuple[int, list[int], list[float]]:
    key = twin_row_key(seed, number)
    wished = math.exp(synth._LENGTH_LOG_MEAN + synth._LENGTH_LOG_SPREAD * twin_normal(twin_word(key, 0)))
    length = min(synth.LONGEST_ROW, 1 + math.floor(wished))
    spacings = [-math.log(twin_uniform(twin_word(key, 2 + draw))) for draw in range(length + 1)]
    *sums, total = itertools.accumulate(spacings)
    cumulative = vocabulary.cumulative.tolist()
    times = Counter(bisect.bisect_right(cumulative, part / total) for part in sums)
    values = {feature: vocabulary.rarity[feature] * (1 + math.log(times[feature])) for feature in sorted(times)}
    norm = math.sqrt(sum(value**2 for value in values.values()))
    score = sum(vocabulary.weights[feature] * value for feature, value in values.items()) / norm
    label = 1 if score + vocabulary.bias > 0 else -1
    if twin_uniform(twin_word(key, 1)) < synth.SPARSE_LABEL_NOISE:
        label = -label
    return label, list(values), [value / norm for value in values.values()]


def twin_draw(kind: str, seed: int, number: int) -> tuple[float, float]:
    """(target, position)"""
    key = twin_row_key(seed, number)
    z, word = twin_normal(twin_word(key, 0)), twin_word(key, 1)
    if kind == "regression":
        return 3.0 + 2.0 * z + twin_normal(word), z
    if kind == "gaussian":
        label = 1.0 if twin_uniform(word) < 0.5 else -1.0
        return label, label * synth.GAUSSIAN_DISTANCE / 2 + z
    return float(twin_uniform(word) < 1 / (1 + math.exp(-synth._LOGISTIC_SLOPE * z))), z


def twin_dense_row(seed: int, number: int, position: float, cloud: synth.Cloud) -> np.ndarray:
    key = twin_row_key(seed, number)
    factors, features = cloud.loadings.shape
    chance = np.array([twin_normal(twin_word(key, 2 + i)) for i in range(factors + features)])
    free = cloud.own * chance[factors:] + chance[:factors] @ cloud.loadings
    return cloud.centre + free + (position - cloud.direction @ free) * cloud.along


ANY_NUMBERS = [*range(30), synth.FIRST_TEST_ROW, synth.FIRST_TEST_ROW + 1, 2**62]


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 11])
@pytest.mark.parametrize("features", [2, 300])
def test_a_sparse_row_equals_its_plain_twin(seed, features):
    vocabulary = synth.Sparse(seed, features)
    numbers = np.array(ANY_NUMBERS)
    offsets, indices, values, scores = vocabulary.rows(numbers)
    labels = vocabulary.labels(numbers, scores)
    for row, number in enumerate(ANY_NUMBERS):
        label, expected_indices, expected_values = twin_sparse_row(seed, number, vocabulary)
        part = slice(offsets[row], offsets[row + 1])
        assert labels[row] == label
        assert indices[part].tolist() == expected_indices
        np.testing.assert_allclose(values[part], expected_values, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 11])
@pytest.mark.parametrize("kind", ["dense", "regression", "gaussian"])
def test_a_dense_row_equals_its_plain_twin(kind, seed):
    source = synth._KINDS[kind][0](seed, 5)
    numbers = np.array(ANY_NUMBERS)
    targets, positions = source.draws(numbers)
    rows = source.rows(numbers, positions)
    cloud = dataclasses.replace(source.cloud, centre=source._centre)
    for row, number in enumerate(ANY_NUMBERS):
        target, position = twin_draw(kind, seed, number)
        assert targets[row] == pytest.approx(target, rel=1e-12)
        assert positions[row] == pytest.approx(position, rel=1e-12)
        np.testing.assert_allclose(rows[row], twin_dense_row(seed, number, position, cloud), atol=1e-5)


def test_normal_numbers_equal_their_plain_twins_in_every_branch():
    words = synth.words_of(synth.key_for(7, synth._ROWS), np.arange(2_000))
    # Low byte 0 with a large absolute value is the tail, other low bytes with a large one are wedges.
    extreme = [sign | low for sign in (0x7FF << 52, 0x800 << 52) for low in range(256)]
    tried = np.array([*words.tolist(), *extreme], np.uint64)
    assert synth.normals(tried).tolist() == pytest.approx([twin_normal(word) for word in tried.tolist()], rel=1e-12)


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
