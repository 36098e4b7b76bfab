"""Feature maps against slow plain twins, and against the kernels that they stand for."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from streampgs.data.feature_maps import FeatureMap, MapRecord, found_map, map_of
from streampgs.data.feature_maps.approximate import Monomials, TensorSketch
from streampgs.kernels import feature_map_loop as loops
from streampgs.kernels.randomness import STRIDE, mix
from streampgs.options.commands import ModelOptions
from streampgs.reading.window import Window

GAMMA = 0.2
RECORDS = {
    "rbf": MapRecord("rbf", GAMMA, 2, 512, 3, "dense", 6, 6),
    "rbf, too wide for orthogonal projections": MapRecord("rbf", GAMMA, 2, 64, 3, "sparse", 5000, 5000),
    "products": MapRecord("polynomial", GAMMA, 3, 512, 3, "dense", 6, 6),
    "sketch": MapRecord("polynomial", GAMMA, 3, 64, 3, "sparse", 400, 400),
}


def rows_of(record: MapRecord, count: int = 40, seed: int = 0) -> np.ndarray:
    """A matrix; of many features, most are zero."""
    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((count, record.inputs)).astype(np.float32)
    if record.layout == "sparse":
        matrix *= chance.random(matrix.shape) < 20 / record.inputs
    return matrix


def window_of(matrix: np.ndarray, layout: str) -> Window:
    window = Window()
    if layout == "dense":
        window.starts = np.arange(len(matrix), dtype=np.int64) * matrix.shape[1]
        window.stops = window.starts + matrix.shape[1]
        window.values = matrix.astype(np.float32).ravel()
    else:
        rows, columns = np.nonzero(matrix)
        bounds = np.searchsorted(rows, np.arange(len(matrix) + 1))
        window.starts, window.stops = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
        window.indices, window.values = columns.astype(np.uint32), matrix[rows, columns].astype(np.float32)
    window.features = matrix.shape[1]
    return window


def mapped(own: FeatureMap, matrix: np.ndarray) -> np.ndarray:
    window = own.mapped(window_of(matrix, own.record.layout))
    return window.values.reshape(len(matrix), own.width)


def kernel(record: MapRecord, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if record.kernel == "rbf":
        return np.exp(-record.gamma * ((a[:, None].astype(float) - b[None]) ** 2).sum(-1))
    return (record.gamma * a.astype(float) @ b.T + 1.0) ** record.degree


# Twins.


def test_cosines_and_sines_are_those_of_the_angles() -> None:
    record = RECORDS["rbf"]
    matrix, frequencies = rows_of(record), np.random.default_rng(1).normal(0.0, 3.0, (6, 9)).astype(np.float32)
    out, window = np.empty((40, 18), np.float32), window_of(matrix, "dense")
    loops.fourier_rows(*map_of(record).entries(window), 6, frequencies, np.uint64(1), out)
    angles = 2.0 * np.pi * matrix.astype(float) @ frequencies.astype(float)
    assert np.allclose(out, np.hstack([np.cos(angles), np.sin(angles)]) / 3.0, atol=1e-6)


def test_features_beyond_the_table_share_its_rows_with_random_signs() -> None:
    table = np.random.default_rng(1).normal(0.0, 0.1, (7, 4)).astype(np.float32)
    record = replace(RECORDS["sketch"], kernel="rbf", most=8)
    matrix, out, key = rows_of(record), np.empty((40, 8), np.float32), 5
    loops.fourier_rows(*map_of(record).entries(window_of(matrix, "sparse")), 300, table, np.uint64(key), out)
    folded = np.zeros((40, 7))
    for i in range(300):  # the others are not known
        with np.errstate(over="ignore"):
            word = int(mix(np.uint64(key) + STRIDE * np.uint64(i)))
        place, sign = (i, 1.0) if i < 7 else (((word >> 32) * 7) >> 32, -1.0 if word & 1 else 1.0)
        folded[:, place] += sign * matrix[:, i]
    angles = 2.0 * np.pi * folded @ table.astype(float)
    assert np.allclose(out, np.hstack([np.cos(angles), np.sin(angles)]) / 2.0, atol=1e-6)


def test_products_are_all_products() -> None:
    record = RECORDS["products"]
    own, matrix = map_of(record), rows_of(record)
    assert isinstance(own, Monomials)
    expected = Counter()
    for size in range(1, record.degree + 1):
        for powers in itertools.combinations_with_replacement(range(record.inputs), size):
            orders = math.factorial(size) // math.prod(math.factorial(n) for n in Counter(powers).values())
            factor = math.sqrt(math.comb(record.degree, size) * orders * record.gamma**size)
            name = " × ".join(f"{i}^{n}" if n > 1 else f"{i}" for i, n in Counter(powers).items())
            expected[name] = factor * np.prod(matrix[:, list(powers)].astype(float), axis=1)
    found = mapped(own, matrix)
    names = [own.name_of(place, str) for place in range(own.width)]
    assert sorted(names) == sorted(expected)
    for place, name in enumerate(names):
        assert np.allclose(found[:, place], expected[name], rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_a_sketch_is_the_convolution_of_count_sketches(degree: int) -> None:
    record = replace(RECORDS["sketch"], degree=degree)
    own, matrix = TensorSketch(record), rows_of(record, 8)
    spectrum = np.ones((8, 64), complex)
    for key in own._keys:
        sketch = np.zeros((8, 64))
        for i in [*range(400), 1 << 40]:
            with np.errstate(over="ignore"):
                word = int(mix(key + STRIDE * np.uint64(i)))
            value = math.sqrt(GAMMA) * matrix[:, i].astype(float) if i < 400 else np.ones(8)
            sketch[:, ((word >> 32) * 64) >> 32] += value * (-1.0 if word & 1 else 1.0)
        spectrum *= np.fft.fft(sketch, axis=1)
    assert np.allclose(mapped(own, matrix), np.fft.ifft(spectrum, axis=1).real, rtol=1e-4, atol=1e-5)


# Kernels.


def test_inner_products_approximate_the_rbf_kernel() -> None:
    record = RECORDS["rbf"]
    matrix, exact = rows_of(record, 60), kernel(record, rows_of(record, 60), rows_of(record, 60))
    for seed in range(3):
        features = mapped(map_of(replace(record, seed=seed, most=4096)), matrix)
        assert np.sqrt(np.mean((features @ features.T - exact) ** 2)) < 0.02
        assert np.allclose((features**2).sum(1), 1.0, atol=1e-5)


def test_sketches_give_the_polynomial_kernel_on_average() -> None:
    record = RECORDS["sketch"]
    matrix = rows_of(record, 10)
    products = []
    for seed in range(400):
        features = mapped(map_of(replace(record, seed=seed)), matrix).astype(float)
        products.append(features @ features.T)
    mean, error = np.mean(products, 0), np.std(products, 0) / np.sqrt(400)
    assert (np.abs(mean - kernel(record, matrix, matrix)) < 5.0 * error).all()


# Laws.


@pytest.mark.parametrize("name", RECORDS)
def test_the_features_of_a_row_do_not_depend_on_other_rows(name: str) -> None:
    record = RECORDS[name]
    own, matrix = map_of(record), rows_of(record, 37)
    whole = mapped(own, matrix)
    for size in (1, 2, 5, 16):
        parts = [mapped(map_of(record), matrix[first : first + size]) for first in range(0, 37, size)]
        assert np.array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(2).permutation(37)
    assert np.array_equal(mapped(own, matrix[order]), whole[order])


@pytest.mark.parametrize("name", RECORDS)
def test_dense_and_sparse_rows_have_the_same_features(name: str) -> None:
    record = RECORDS[name]
    matrix = rows_of(record)
    dense, sparse = (mapped(map_of(replace(record, layout=layout)), matrix) for layout in ("dense", "sparse"))
    assert np.array_equal(dense, sparse)


@pytest.mark.parametrize("name", RECORDS)
def test_columns_that_join_leave_earlier_rows_as_they_were(name: str) -> None:
    record = RECORDS[name]
    own, matrix = map_of(record), rows_of(record)
    before = mapped(own, matrix)
    grown = replace(record, inputs=record.inputs + 2)
    own.grow(grown.inputs)
    wider = np.hstack([matrix, np.zeros((len(matrix), 2), np.float32)])
    after = mapped(own, wider)
    assert np.array_equal(after[:, : before.shape[1]], before)
    assert not after[:, before.shape[1] :].any()
    assert np.array_equal(mapped(map_of(grown), wider), after)  # as after a pause
    wider[:, -1] = 1.0
    assert not np.array_equal(mapped(own, wider), after)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_gamma_is_found_as_scikit_learn_does(layout: str) -> None:
    matrix = 3.0 + 2.0 * np.random.default_rng(4).standard_normal((500, 8)).astype(np.float32)
    own = found_map(ModelOptions(kernel="rbf"), layout, 8, window_of(matrix, layout))
    assert own.record.gamma == pytest.approx(1.0 / (8 * matrix.var()), rel=1e-4)
