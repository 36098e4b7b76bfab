"""Bad rows are either an error that names shard, group and row, or are skipped and counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.encoding import labels
from streampgs.encoding import rows as row_layout
from streampgs.kernels import placing_loop as row_loops
from streampgs.reading.bad_rows import REASONS, counts_by_name

from .plain_reader import WRITERS, Setup, plain_window, rows_in

SKIP = "--on-bad-row skip"


@dataclass(frozen=True)
class Case:
    """A fault of one row, and the error that reports it."""

    reason: int
    changes: dict[str, Any]
    """The cells in which the bad row differs from a good row."""
    found: str
    """Words of the error that describe the fault."""
    remedy: str = SKIP
    table: str = "sparse"
    setup: dict[str, Any] = field(default_factory=dict)


L, R, Y = row_layout, row_loops, labels
WEIGHTED = {"weighted": True}
COUNTS = {"classifies": False, "lowest_label": 0.0}
NUMBERS = {"classifies": False}
OFFSET = {"offset": "exposure"}
CLASSES = {"classes": (-1.0, 0.0, 1.0)}

CASES = {
    "negative index": Case(R.NEGATIVE_INDEX, {"indices": [3, -7]}, "a negative or null index: -7"),
    "null index": Case(R.NEGATIVE_INDEX, {"indices": [None, 3]}, "a negative or null index: -1"),
    "index at or above the given number of features": Case(
        R.INDEX_TOO_LARGE, {"indices": [3, 100]}, "an index at or above the number of features: 100", "raise --feature-count",
        setup={"features": 100},
    ),
    "largest index of 32 bits": Case(
        R.INDEX_TOO_LARGE, {"indices": [2**31 - 1, 3]}, "an index at or above the number of features: 2147483647"
    ),
    "index of 64 bits": Case(R.INDEX_TOO_LARGE, {"indices": [3, 2**40 + 3]}, "the number of features: 1099511627779"),
    "repeated index": Case(R.REPEATED_INDEX, {"indices": [9, 4, 9], "values": [1.0, 2.0, 3.0]}, "an index named twice: 9"),
    "repeated neighbour": Case(R.REPEATED_INDEX, {"indices": [4, 4]}, "an index named twice: 4"),
    "null value": Case(R.VALUE_NOT_FINITE, {"values": [1.0, None]}, "null, NaN or infinite: nan at entry 1"),
    "NaN value": Case(R.VALUE_NOT_FINITE, {"values": [math.nan, 1.0]}, "null, NaN or infinite: nan at entry 0"),
    "infinite value": Case(R.VALUE_NOT_FINITE, {"values": [1.0, -math.inf]}, "null, NaN or infinite: -inf at entry 1"),
    "value beyond float32": Case(
        R.VALUE_TOO_LARGE, {"values": [1.0, 1e39]}, "beyond the range of float32: 1e+39 at entry 1", "scale the column down"
    ),
    "value just beyond float32": Case(R.VALUE_TOO_LARGE, {"values": [1.0, 3.402823466385289e38]}, "at entry 1", "scale"),
    "null label": Case(Y.LABEL_NULL, {"label": None}, "no label"),
    "NaN label": Case(Y.LABEL_NOT_FINITE, {"label": math.nan}, "a label that is NaN or infinite: nan"),
    "infinite label": Case(Y.LABEL_NOT_FINITE, {"label": math.inf}, "a label that is NaN or infinite: inf"),
    "label outside the classes": Case(Y.LABEL_NO_CLASS, {"label": 2.0}, "a label outside {-1, 0, 1}: 2.0", "--positive VALUE"),
    "unknown class": Case(Y.LABEL_UNKNOWN_CLASS, {"label": 2.0}, "none of the classes: 2.0", "--classes", setup=CLASSES),
    "null weight": Case(L.WEIGHT_BAD, {"weight": None}, "a weight that is null, negative or not finite: nan", setup=WEIGHTED),
    "NaN weight": Case(L.WEIGHT_BAD, {"weight": math.nan}, "a weight that is null, negative or not finite: nan", setup=WEIGHTED),
    "negative weight": Case(L.WEIGHT_BAD, {"weight": -0.5}, "negative or not finite: -0.5", setup=WEIGHTED),
    "infinite weight": Case(L.WEIGHT_BAD, {"weight": math.inf}, "negative or not finite: inf", setup=WEIGHTED),
    "null indices": Case(L.FEATURES_NULL, {"indices": None}, "null in place of a list of features"),
    "null values": Case(L.FEATURES_NULL, {"values": None}, "null in place of a list of features"),
    "null row": Case(L.FEATURES_NULL, {"indices": None, "values": None}, "null in place of a list of features"),
    "fewer values": Case(L.LENGTHS_DIFFER, {"values": [1.0]}, "'indices' and 'values' of different lengths"),
    "more values": Case(L.LENGTHS_DIFFER, {"values": [1.0, 2.0, 3.0]}, "'indices' and 'values' of different lengths"),
    "values without indices": Case(L.LENGTHS_DIFFER, {"indices": []}, "'indices' and 'values' of different lengths"),
    # Dense rows.
    "null feature": Case(R.VALUE_NOT_FINITE, {"features": [1.0, None]}, "infinite: nan at entry 1", table="variable"),
    "null feature of a fixed list": Case(R.VALUE_NOT_FINITE, {"features": [None, 1.0]}, "infinite: nan at entry 0", table="fixed"),
    "infinite feature": Case(R.VALUE_NOT_FINITE, {"features": [1.0, math.inf]}, "infinite: inf at entry 1", table="fixed"),
    "feature beyond float32": Case(
        R.VALUE_TOO_LARGE, {"features": [-1e300, 1.0]}, "float32: -1e+300 at entry 0", "scale the column down", table="fixed"
    ),
    "null features": Case(L.FEATURES_NULL, {"features": None}, "null in place of a list", table="variable"),
    "null fixed features": Case(L.FEATURES_NULL, {"features": None}, "null in place of a list", table="fixed"),
    "fewer features": Case(L.WIDTH_DIFFERS, {"features": [1.0]}, "another number of features than", table="variable"),
    "more features": Case(L.WIDTH_DIFFERS, {"features": [1.0, 2.0, 3.0]}, "another number of features than", table="variable"),
    "no features at all": Case(L.WIDTH_DIFFERS, {"features": []}, "another number of features than", table="variable"),
    "label of a dense row": Case(Y.LABEL_NO_CLASS, {"label": -2.0}, "outside {-1, 0, 1}: -2.0", "--positive", table="fixed"),
    "negative count": Case(Y.LABEL_TOO_LOW, {"label": -3.0}, "a negative label, but the loss is for counts: -3.0", setup=COUNTS),
    "huge number to predict": Case(
        Y.LABEL_TOO_LARGE, {"label": -1e160}, "a label beyond 1e+70: -1e+160", "scale the column down", setup=NUMBERS
    ),
    "huge weight": Case(L.WEIGHT_TOO_LARGE, {"weight": 1e300}, "a weight beyond 1e+30: 1e+300", "scale", setup=WEIGHTED),
    "huge offset": Case(L.OFFSET_TOO_LARGE, {"exposure": -1e80}, "an offset beyond 1e+70: -1e+80", "scale", setup=OFFSET),
    "null offset": Case(L.OFFSET_BAD, {"exposure": None}, "an offset that is null or not finite: nan", setup=OFFSET),
    "infinite offset": Case(L.OFFSET_BAD, {"exposure": math.inf}, "null or not finite: inf", setup=OFFSET),
    "offset of a dense row": Case(L.OFFSET_BAD, {"exposure": math.nan}, "finite: nan", table="variable", setup=OFFSET),
    "weight of a dense row": Case(L.WEIGHT_BAD, {"weight": None}, "or not finite: nan", table="variable", setup=WEIGHTED),
}  # fmt: skip

ROWS, SHARD_ROWS, GROUP_ROWS = 48, 24, 8
LISTS = {
    "sparse": {"indices": pa.list_(pa.int64()), "values": pa.list_(pa.float64())},
    "variable": {"features": pa.list_(pa.float64())},
    "fixed": {"features": pa.list_(pa.float64(), 2)},
}
HOW = [("arrow", False), ("arrow, zstd", False), ("arrow, zstd", True), ("parquet", False), ("parquet", True)]


def good_row(number: int, table: str) -> dict[str, Any]:
    """A row whose last value is its number."""
    row = {"label": float(number % 2), "weight": number / 4, "exposure": number / 8}
    if table == "sparse":
        return {**row, "indices": [5, number % 5], "values": [0.5, float(number)]}
    return {**row, "features": [0.5, float(number)]}


def write_rows(folder: Path, case: Case, bad: set[int], writer: str) -> Path:
    """Write two shards of three groups each, with the fault in the rows with the numbers `bad`."""
    folder.mkdir()
    rows = [{**good_row(n, case.table), **(case.changes if n in bad else {})} for n in range(ROWS)]
    schema = pa.schema({"label": pa.float64(), "weight": pa.float64(), "exposure": pa.float64(), **LISTS[case.table]})
    for shard, first in enumerate(range(0, ROWS, SHARD_ROWS)):
        table = pa.Table.from_pylist(rows[first : first + SHARD_ROWS], schema)
        WRITERS[writer](table, folder / f"{shard}.{'parquet' if writer == 'parquet' else 'arrow'}", GROUP_ROWS)
    return folder


def setup_of(tmp_path: Path, case: Case, cached: bool, skip: bool) -> Setup:
    """Slices of three rows where the format allows, to test that row numbers count through the slices of a group."""
    cache = tmp_path / "cache" if cached else None
    return Setup(tmp_path / "data", cache, 1 << 20, 150, skip_bad_rows=skip, seed=3, **case.setup)


def test_every_reason_has_a_case():
    assert {case.reason for case in CASES.values()} == set(REASONS) - {row_layout.NOT_SELECTED}  # no fault


@pytest.mark.parametrize(("writer", "cached"), HOW)
@pytest.mark.parametrize("fault", CASES)
def test_a_bad_row_is_named(tmp_path, fault, writer, cached):
    """Row 38 of the dataset is row 14 of the second file and row 6 of its second group."""
    case = CASES[fault]
    write_rows(tmp_path / "data", case, {38}, writer)
    suffix, group = ("parquet", "row group") if writer == "parquet" else ("arrow", "record batch")
    for epoch in range(2):
        with setup_of(tmp_path, case, cached, skip=False).reader() as reader, pytest.raises(DataError) as refused:
            reader.first_window(epoch)
        place = f"shard '{tmp_path}/data/1.{suffix}', {group} 1, row 6 (row 14 of the file): "
        assert refused.value.found.startswith(place)
        assert case.found in refused.value.found.removeprefix(place)
        assert case.remedy in refused.value.remedy
        assert SKIP in refused.value.remedy


@pytest.mark.parametrize(("writer", "cached"), HOW)
@pytest.mark.parametrize("fault", CASES)
def test_bad_rows_are_skipped_and_counted_and_all_others_are_unchanged(tmp_path, fault, writer, cached):
    case = CASES[fault]
    bad = {8, 9, 15, 38, 47}
    write_rows(tmp_path / "data", case, bad, writer)
    numbers = [list(range(first, first + GROUP_ROWS)) for first in range(0, ROWS, GROUP_ROWS)]
    with setup_of(tmp_path, case, cached, skip=True).reader() as reader:
        for window in reader.windows(epochs=2):
            order = [number for number in plain_window(window.span, numbers) if number not in bad]
            found = rows_in(window)
            assert [values[-1] for _, _, values, _ in found] == order
            for number, (label, indices, values, weight) in zip(order, found, strict=True):
                good = good_row(number, case.table)
                plain = {"classes": good["label"] + 1, "lowest_label": good["label"]}
                expected = good["label"] if case.setup == NUMBERS else 2 * good["label"] - 1
                assert label == next((plain[name] for name in plain if name in case.setup), expected)
                assert indices == tuple(good.get("indices", ()))
                assert values == tuple(good.get("values", good.get("features")))
                assert weight == (good["weight"] if case.setup == WEIGHTED else None)
            if window.span.start.epoch == 0:
                assert counts_by_name(window.counts.skipped) == {REASONS[case.reason][0]: len(bad)}
            else:  # they were counted then
                assert not window.counts.skipped
