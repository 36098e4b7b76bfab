"""No column dominates the others, and no impossible value dominates its column."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.rows import joined
from streampgs.encoding.scales import LARGEST_NUMBER
from streampgs.reading.packed_rows import packed, unpacked
from streampgs.reading.reused import Scratch
from tests.encoding.test_learning import column_of_scale, matrix_of, taught

ROWS = 400
MAP, VECTOR = pa.map_(pa.string(), pa.float64()), pa.map_(pa.int32(), pa.float64())


def numbers(values: Any) -> pa.Array:
    return pa.array(values)


def lists(values: Any) -> pa.Array:
    return pa.array([[value] for value in values])


def maps(values: Any) -> pa.Array:
    return pa.array([[("key", value)] for value in values], MAP)


def vectors(values: Any) -> pa.Array:
    return pa.array([[(3, value)] for value in values], VECTOR)


FORMS = {form.__name__: form for form in (numbers, lists, maps, vectors)}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def values_of(encoding: Encoding, arrays: dict[str, pa.Array], column: str = "x") -> np.ndarray:
    """The value of each row in the features of the column, of which it has one."""
    rows = len(arrays[column])
    block = Encoder(encoding).encode({column: arrays[column]}, rows, (), None)
    assert block.values is not None
    return np.asarray([block.values[start:stop].sum() for start, stop in pairwise(block.bounds)])


def with_another(values: Any, form: Any) -> dict[str, pa.Array]:
    return {"other": pa.array(column_of_scale(1.0, ROWS, 9)), "x": form(values)}


# Scales.


@every_form
@pytest.mark.parametrize("size", [1e-300, 1e-6, 1e4, 1e300])
def test_values_of_another_scale_than_other_columns_are_scaled(form: Any, size: float) -> None:
    arrays = with_another(size * (2.0 + column_of_scale(0.1, ROWS)), form)
    found = np.abs(values_of(taught(arrays), arrays))
    assert np.sqrt(np.mean(found**2)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("form", [lists, maps, vectors])
@pytest.mark.parametrize("size", [0.1, 1.0, 2.5])
def test_values_of_the_scale_of_other_columns_stay_as_they_are(form: Any, size: float) -> None:
    values = column_of_scale(size, ROWS)
    arrays = with_another(values, form)
    assert np.abs(values_of(taught(arrays), arrays)) == pytest.approx(np.abs(values), rel=1e-6)


# Impossible values.


@every_form
@pytest.mark.parametrize("wild", [1e3, -1e5, 1e300, -1.7e308])
def test_an_impossible_value_is_clipped(form: Any, wild: float) -> None:
    values = 5.0 + column_of_scale(1.0, ROWS)
    arrays = with_another(values, form)
    encoding = taught(arrays, standardize="on")
    (found,) = np.abs(values_of(encoding, {"x": form([wild])}))
    assert found == LARGEST_NUMBER


@every_form
@pytest.mark.parametrize("wild", [1e3, 1e30, -1e300])
def test_a_few_impossible_values_in_the_sample_do_not_change_the_scale(form: Any, wild: float) -> None:
    values = 5.0 + column_of_scale(1.0, ROWS)
    spoilt = np.append(values, [wild, 2.0 * wild / 3.0])
    sound, arrays = {"x": form(values)}, {"x": form(spoilt)}
    before, after = (taught(one, standardize="on").columns[0] for one in (sound, arrays))
    assert (after.centre, after.scale) == (before.centre, before.scale)


@every_form
def test_nan_and_infinite_values_stay_faults(form: Any) -> None:
    arrays = with_another(5.0 + column_of_scale(1.0, ROWS), form)
    encoding = taught(arrays, standardize="on")
    for value in (math.nan, math.inf, -math.inf):
        block = Encoder(encoding).encode({"x": form([1e9, value])}, 2, (), None)
        assert block.values is not None
        assert not np.isfinite(block.values[block.bounds[1] :]).all()
        assert block.clipped.tolist() == [1, 0]


def test_clipped_numbers_agree_with_the_formula() -> None:
    random = np.random.default_rng(4)
    values = random.standard_t(1.5, size=(5000, 3)) * [1.0, 100.0, 1e-3] + [0.0, 1e3, 5.0]
    table = {name: pa.array(column) for name, column in zip("abc", values.T, strict=True)}
    encoding = taught({name: array[:1000] for name, array in table.items()})
    centres, scales = (np.array([getattr(c, part)[0] for c in encoding.columns]) for part in ("centre", "scale"))
    expected = np.clip((values - centres) * scales, -8.0, 8.0)
    assert np.count_nonzero(np.abs(expected) == 8.0) > 20
    np.testing.assert_allclose(matrix_of(encoding, table), expected, rtol=1e-6, atol=1e-9)


# Marks of rows.


def test_rows_with_clipped_values_are_marked_wherever_they_go() -> None:
    encoding = taught({"x": pa.array(column_of_scale(1.0, ROWS)), "y": lists(column_of_scale(1e3, ROWS))})
    x, y = np.zeros(9), np.zeros(9)
    x[[2, 7]], y[7] = 55.0, -1e9
    block = Encoder(encoding).encode({"x": pa.array(x), "y": lists(y)}, 9, (), None)
    assert np.flatnonzero(block.clipped).tolist() == [2, 7]
    assert block.examples == {"x": (2, 55.0), "y": (7, -1e9)}
    cut = block.slice(3)
    assert np.flatnonzero(cut.clipped).tolist() == [4]
    assert cut.examples == {"y": (4, -1e9)}
    whole = joined([cut, block])
    assert np.flatnonzero(whole.clipped).tolist() == [4, 8, 13]
    assert whole.examples == {"y": (4, -1e9), "x": (8, 55.0)}
    kept = unpacked(np.frombuffer(packed(block)[0], np.uint8), Scratch().take)
    assert kept.clipped.tolist() == block.clipped.tolist()
