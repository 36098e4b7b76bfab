"""Arrow arrays of all forms and slices as numbers, bytes and lists."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.encoding.types import bytes_of, class_of, leaf, lists_of, numbers_of, pairs_of, plain

TICKS = np.random.default_rng(0).integers(-(2**40), 2**41, 20_000)


@pytest.mark.parametrize("kind", [pa.timestamp, pa.duration])
def test_an_instant_is_the_same_number_in_every_unit(kind: Any) -> None:
    """Writers use different units: milliseconds, micro- or nanoseconds."""
    found = [
        numbers_of(pa.array(TICKS * factor, pa.int64()).view(kind(unit)))
        for unit, factor in (("ms", 1), ("us", 10**3), ("ns", 10**6))
    ]
    assert found[0][:500].tolist() == [float(Fraction(int(tick), 1000)) for tick in TICKS[:500]]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    whole = pa.array(TICKS, pa.int64()).view(kind("s"))
    assert np.array_equal(numbers_of(whole), TICKS.astype(np.float64))
    assert np.array_equal(numbers_of(whole.cast(kind("ms"))), TICKS.astype(np.float64))


@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=8),
    first=st.integers(0, 8),
    count=st.integers(0, 8),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_bytes_of_slices(texts: list[str | None], first: int, count: int, kind: pa.DataType) -> None:
    array = pa.array(texts, pa.string())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    data, bounds = bytes_of(array[first : first + count])
    found = [data[start:stop].tobytes().decode() for start, stop in itertools.pairwise(bounds)]
    assert found == [text or "" for text in texts[first : first + count]]


LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


@given(
    lists=st.lists(st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)), max_size=8),
    first=st.integers(0, 8),
    count=st.integers(0, 8),
    kind=st.sampled_from(LISTS),
)
def test_lists_of_slices(lists: list[Any], first: int, count: int, kind: Any) -> None:
    offsets, child = lists_of(pa.array(lists, kind(pa.int8()))[first : first + count])
    expected = [one or [] for one in lists[first : first + count]]
    assert [child[start:stop].to_pylist() for start, stop in itertools.pairwise(offsets)] == expected
    assert len(child) == offsets[-1]


def test_values_below_a_null_are_not_read() -> None:
    """A null list or struct may have values all the same."""
    offsets = pa.array([0, 2, 4, 5], pa.int32())
    mask = pa.array([False, True, False])
    values = pa.array([1, 2, 3, 4, 5])
    lists = pa.ListArray.from_arrays(offsets, values, mask=mask)
    assert [part.tolist() for part in (lists_of(lists)[0], numbers_of(lists_of(lists)[1]))] == [[0, 2, 2, 3], [1, 2, 5]]
    struct = pa.StructArray.from_arrays([values[:3]], ["x"], mask=mask)
    assert leaf({"s": struct}, "s.x").to_pylist() == [1, None, 3]
    pairs = pa.StructArray.from_arrays([values, values], ["index", "value"])
    found = pairs_of(pa.ListArray.from_arrays(offsets, pairs, mask=mask))
    assert [found[0].tolist(), found[1].to_pylist()] == [[0, 2, 2, 3], [1, 2, 5]]
    maps = pa.MapArray.from_arrays(pa.array([0, None, 2, 5], pa.int32()), values.cast(pa.string()), values)
    found = pairs_of(maps[1:])
    assert [found[0].tolist(), found[2].to_pylist()] == [[0, 0, 3], [3, 4, 5]]


def test_wrapped_arrays_are_unwrapped() -> None:
    uneven = pa.chunked_array([pa.array([1, 2]), pa.array([], pa.int64()), pa.array([3])])
    assert plain(uneven).to_pylist() == [1, 2, 3]
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["x", None]))
    assert plain(ends[1:4]).to_pylist() == ["x", None, None]
    views = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["x", "y"], pa.string_view()))
    assert plain(views).dictionary_decode().to_pylist() == ["y", None, "x"]
    known = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))
    assert class_of(plain(known).type) == "string"
    assert plain(pa.chunked_array([], pa.int8())).to_pylist() == []
