"""The bytes that rows take when dictionaries and runs are written out, and batches in parts of bounded size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streampgs.encoding.sizes import parts, row_bytes

TEXTS = ["aaa", None, "b" * 100, "", "cc", "aaa"]
LISTS = [["a", "bb"], None, [], ["ccc"], [None], ["d"]]
STRING = 4
"""Bytes for the place of a string or a list."""


def size_of(value: Any) -> int:
    """By hand; a null string has its place only."""
    if isinstance(value, list):
        return STRING + sum(map(size_of, value))
    if isinstance(value, tuple):
        return sum(map(size_of, value))
    return 8 if isinstance(value, float) else STRING + len(value or "")


FORMS = {
    "strings": (pa.array(TEXTS), TEXTS),
    "large strings": (pa.array(TEXTS, pa.large_string()), TEXTS),
    "dictionary": (pa.array(TEXTS).dictionary_encode(), TEXTS),
    "runs": (pc.run_end_encode(pa.array(TEXTS)), TEXTS),
    "lists": (pa.array(LISTS), [value or [] for value in LISTS]),
    "lists of a dictionary": (
        pa.array(LISTS).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        [value or [] for value in LISTS],
    ),
    "maps": (
        pa.array([[("k", 1.0)], [], [("l", 2.0), ("mm", 3.0)]] * 2, pa.map_(pa.string(), pa.float64())),
        [[("k", 1.0)], [], [("l", 2.0), ("mm", 3.0)]] * 2,
    ),
    "nested lists": (pa.array([[["a"], ["bb", "c"]], [], [[]]] * 2), [[["a"], ["bb", "c"]], [], [[]]] * 2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_each_row_has_the_size_of_its_value(form, first):
    array, values = FORMS[form]
    assert row_bytes(array[first:]).tolist() == [size_of(value) for value in values[first:]]


def test_views_count_as_often_as_they_are_used():
    array = pa.array(["x" * 50, "x" * 50, None, "y"]).cast(pa.string_view())
    assert row_bytes(array[1:]).tolist() == [50, 0, 1]
    lists = pa.ListViewArray.from_arrays(
        pa.array([0, 1, 0], pa.int32()), pa.array([2, 1, 3], pa.int32()), pa.array(["a", "bb", "ccc"])
    )
    assert row_bytes(lists).tolist() == [size_of(["a", "bb"]), size_of(["bb"]), size_of(["a", "bb", "ccc"])]


@pytest.mark.parametrize("form", FORMS)
def test_parts_have_all_rows_in_order_and_are_small_or_one_row(form):
    array, _ = FORMS[form]
    batch = pa.record_batch({"c": array, "x": pa.array(np.arange(6.0))})
    found = list(parts(batch, 60))
    assert pa.Table.from_batches([part for part, _ in found]).equals(pa.Table.from_batches([batch]))
    for part, size in found:
        assert size <= 60 or part.num_rows == 1
        assert size == pytest.approx(int(row_bytes(part["c"]).sum()) + 8 * part.num_rows) or len(found) == 1


def test_a_dictionary_that_stays_counts_once():
    codes = pa.array(np.zeros(1000, np.int32))
    batch = pa.record_batch({"c": pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 10_000]))})
    assert len(list(parts(batch, 1 << 16, coded={"c"}))) == 1
    assert max(part.num_rows for part, _ in parts(batch, 1 << 16)) == 6
