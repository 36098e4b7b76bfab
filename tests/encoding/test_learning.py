"""Learning from a sample: centres and scales, widths, words and their rarity, the number of hashed features, names."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.encoding.encoding import Encoding
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.options.commands import EncodingOptions
from tests.encoding.plain_encoding import distinct_strings, plain_learn
from tests.encoding.tables import Table, encoded, learnt, tables


def taught(arrays: dict[str, pa.Array], **options: Any) -> Encoding:
    chosen = EncodingOptions(**options)
    schema = pa.schema([(name, array.type) for name, array in arrays.items()])
    return learn(plan_columns(schema, chosen, {}, "a table"), chosen, [arrays])


def matrix_of(encoding: Encoding, arrays: dict[str, pa.Array]) -> np.ndarray:
    """The rows of an encoding of numbers only."""
    rows = len(next(iter(arrays.values())))
    found = np.zeros((rows, encoding.unbounded_first))
    for r, row in enumerate(encoded(encoding, arrays, rows)):
        for index, bits in row:
            found[r, index] = np.frombuffer(bits, np.float32)[0]
    return found


def column_of_scale(scale: float, rows: int = 200, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=rows) * scale


# Centres and scales.

TINY = float(np.finfo(np.float64).tiny)
SCALES = [1e-300, 1e-100, 1e-6, 1.0, 1e6, 1e100, 1e300]


@pytest.mark.parametrize("standardize", ["auto", "on"])
def test_columns_of_numbers_get_mean_0_and_spread_1(standardize):
    arrays = {str(scale): pa.array(column_of_scale(scale) + scale, pa.float64()) for scale in SCALES}
    arrays["time"] = pa.array((column_of_scale(1e6) + 1.7e9).astype(np.int64), pa.timestamp("s"))
    found = matrix_of(taught(arrays, standardize=standardize), arrays)
    assert found.mean(axis=0) == pytest.approx(0.0, abs=1e-6)
    assert found.std(axis=0) == pytest.approx(1.0, abs=1e-6)


def test_lists_of_numbers_are_scaled_if_their_scales_differ_widely():
    wild = np.stack([column_of_scale(scale, seed=k) + scale for k, scale in enumerate(SCALES)], axis=1)
    alike = np.stack([column_of_scale(scale, seed=k) for k, scale in enumerate([0.02, 0.5, 1.5])], axis=1)
    arrays = {name: pa.array(list(rows), pa.list_(pa.float64())) for name, rows in (("wild", wild), ("alike", alike))}
    found = matrix_of(taught(arrays), arrays)
    assert found[:, : len(SCALES)].mean(axis=0) == pytest.approx(0.0, abs=1e-6)
    assert found[:, : len(SCALES)].std(axis=0) == pytest.approx(1.0, abs=1e-6)
    assert np.array_equal(found[:, len(SCALES) :], alike.astype(np.float32))
    scaled = matrix_of(taught(arrays, standardize="on"), arrays)
    assert scaled.std(axis=0) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-300, 1e-6, 1.0, 1e6, 1e300])
def test_a_column_that_is_mostly_zero_keeps_its_zeros(size):
    values = [0.0] * 95 + [size] * 4 + [-size]
    arrays = {"x": pa.array(values)}
    found = matrix_of(taught(arrays), arrays)[:, 0]
    assert np.count_nonzero(found[:95]) == 0
    assert np.isfinite(found).all()
    if size >= 1e-300:
        assert found[95:] == pytest.approx([1.0] * 4 + [-1.0])
    rows = encoded(taught(arrays), {**arrays}, 100)
    assert len(rows) == 100


@pytest.mark.parametrize("value", [0.0, 1.0, -3.7, 1e-320, 1e-300, 1e300, 1.7e9 + 1 / 3])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_constant_column_has_no_effect(value, rows):
    """A later value that differs from the constant is finite, and not larger than its ratio to the constant."""
    arrays = {"x": pa.array([value] * rows)}
    encoding = taught(arrays)
    found = matrix_of(encoding, arrays)
    assert np.abs(found).max() < 1e-12
    later = matrix_of(encoding, {"x": pa.array([value + 2.0 * max(abs(value), TINY)])})
    assert np.isfinite(later).all()
    assert np.abs(later).max() <= 2.01


def test_nulls_nan_and_infinity_are_ignored_and_null_is_the_mean():
    plain, dirty = [1.0, 2.0, 6.0], [1.0, None, math.nan, 2.0, math.inf, 6.0, -math.inf, None]
    assert taught({"x": pa.array(dirty)}).columns[0].centre == taught({"x": pa.array(plain)}).columns[0].centre
    assert taught({"x": pa.array(dirty)}).columns[0].scale == taught({"x": pa.array(plain)}).columns[0].scale
    found = matrix_of(taught({"x": pa.array(dirty)}), {"x": pa.array(dirty)})[:, 0]
    assert found[[1, 7]].tolist() == [0.0, 0.0]
    assert np.isnan(found[2])
    assert found[[4, 6]].tolist() == [math.inf, -math.inf]


# Lists.


def test_a_list_is_as_wide_as_most_of_its_rows():
    lists = [[1.0], [1.0, 2.0], None, [3.0, 4.0], []]
    encoding = taught({"x": pa.array(lists)})
    assert encoding.features == 2
    assert [isinstance(row, int) for row in encoded(encoding, {"x": pa.array(lists)}, 5)] == [
        True,
        False,
        False,
        False,
        True,
    ]


# Strings.


@given(table=tables(most_rows=40, kinds=("category", "text", "tokens", "weighed", "number")))
def test_hashed_features_are_many_enough_for_the_strings_of_the_sample(table):
    """A thousand for each different string, between 2^10 and 2^20."""
    options = table.options(cross=_first_pair(table))
    encoding = learnt(table, options)
    if encoding.has_hashed:
        specs = [*table.specs, *_cross_specs(options)]
        different = distinct_strings(specs, options, table.values)
        assert encoding.hash_bits == min(20, max(10, (1024 * different).bit_length()))
        assert encoding.features == encoding.numbers + 2**encoding.hash_bits


def _first_pair(table: Table) -> tuple[tuple[str, str], ...]:
    categories = [column.spec.name for column in table.columns if column.spec.role == "category"]
    return ((categories[0], categories[1]),) if len(categories) > 1 else ()


def _cross_specs(options: EncodingOptions) -> list[Any]:
    from tests.encoding.plain_encoding import Spec

    return [Spec(f"{a}×{b}", "cross", (a, b)) for a, b in options.cross]


@given(table=tables(most_rows=30, kinds=("category", "text", "tokens", "weighed")), bits=st.sampled_from([1, 4, 12]))
def test_the_vocabulary_is_the_most_frequent_strings(table, bits):
    options = table.options(vocabulary=True, hash_bits=bits)
    encoding = learnt(table, options)
    plain = plain_learn(table.specs, options, table.values)
    assert [(int(key) >> 32, int(key) % 2**32) for key in encoding.words] == list(plain.words)
    assert len(encoding.words) <= 2**bits
    assert encoding.book.slots_first == encoding.hashed_first + len(encoding.words)
    assert encoding.unbounded_first == encoding.book.slots_first + 2**bits


# Names.


def test_features_have_names():
    arrays = {
        "n": pa.array([1.0, None]),
        "when": pa.array([0, 86_400 * 40], pa.timestamp("s")),
        "l": pa.array([[1.0, 2.0], None]),
        "c": pa.array(["red", None]),
        "d": pa.array(["x", "y"]),
        "t": pa.array(["One two", ""]),
        "tags": pa.array([["p", "q"], []]),
        "m": pa.array([[("k", 2.0)], []], pa.map_(pa.string(), pa.float64())),
        "v": pa.array([[(7, 1.0)], []], pa.map_(pa.int32(), pa.float64())),
    }
    options = dict(cyclic="when", null_flags=True, text="t", ngrams=(1, 2), char_ngrams=(3, 3), cross="c,d")
    encoding = taught(arrays, **options, hash_bits=20)
    own = [encoding.name_of(feature) for feature in range(encoding.hashed_first)]
    waves = [
        f"when {wave} of {c} of {p}"
        for c, p in [("hour", "day"), ("day", "week"), ("day", "year")]
        for wave in ("sine", "cosine")
    ]
    assert own == ["n", "n is null", "when", *waves, "when is null", "l[0]", "l[1]", "l is null"]
    expected = {
        "c=red",
        "c is null",
        "d=x",
        "d=y",
        "c=red d=x",
        "c=None d=y",
        "t: one",
        "t: two",
        "t: one two",
        "tags: p",
        "tags: q",
        "m: k",
    }
    expected |= {f"t: {gram}" for gram in ("^on", "one", "ne ", "e t", " tw", "two", "wo$")}
    assert set(encoding.names) == expected
    assert [encoding.name_of(int(feature)) for feature in encoding.named] == list(encoding.names)
    assert encoding.name_of(encoding.unbounded_first + 7) == "v[7]"
    unnamed = next(f for f in range(encoding.hashed_first, encoding.unbounded_first) if f not in encoding.named)
    assert re.fullmatch(r"hashed \d+", encoding.name_of(unnamed))
    found = {name: number for number, name in enumerate(encoding.names)}
    (row,) = encoded(encoding, {name: array[:1] for name, array in arrays.items()}, 1)
    indices = {index for index, _ in row}
    assert int(encoding.named[found["c=red"]]) in indices
    assert int(encoding.named[found["t: one two"]]) in indices
    assert int(encoding.named[found["d=y"]]) not in indices
    assert encoding.unbounded_first + 7 in indices


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("standardize", ["on", "off"])
def test_scaled_and_unscaled_lists_have_names(flags, standardize):
    encoding = taught({"l": pa.array([[1.0, 2.0], [3.0, 5.0]])}, null_flags=flags, standardize=standardize)
    names = [encoding.name_of(feature) for feature in range(encoding.unbounded_first)]
    assert names == ["l[0]", "l[1]", *(["l is null"] if flags else [])]
