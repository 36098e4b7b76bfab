"""The label column at the start of a run: read whole where that is quick, and sampled otherwise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.data import label_column
from streampgs.data.label_column import count_labels, first_place
from streampgs.data.open import columns_of
from streampgs.encoding.labels import LabelCounts
from streampgs.encoding.plan import Plan
from streampgs.options.commands import ModelOptions
from streampgs.table.catalog import Catalog, build_catalog
from tests.end_to_end.mixed_tables import write

ROWS = 5_000


def catalog_of(path: Path, options: ModelOptions) -> Catalog:
    return build_catalog([str(path)], columns_of(options, Plan((), {})))


def counted(path: Path, **given: Any) -> LabelCounts:
    options = ModelOptions(**given)
    [found] = count_labels(options, catalog_of(path, options), columns_of(options, Plan((), {})))
    return found


def kinds() -> list[str]:
    """Seven rare kinds, each in one row, among two frequent ones."""
    kinds = ["normal", "smurf"] * (ROWS // 2)
    for place in range(7):
        kinds[300 + 611 * place] = f"rare {place}"
    return kinds


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "zstd"])
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str)
def test_every_label_of_a_table_is_counted(file_format, kind, tmp_path):
    labels = pa.array(kinds())
    labels = labels.dictionary_encode() if pa.types.is_dictionary(kind) else labels.cast(kind)
    path = write(pa.table({"label": labels, "x": range(ROWS)}), tmp_path / f"data.{file_format}", file_format)
    found = counted(path)
    assert dict(zip(found.values, found.counts.tolist(), strict=True)) == Counter(kinds())
    assert found.complete


def test_a_table_with_rare_classes_starts_with_all_of_them(tmp_path):
    data = tmp_path / "data.parquet"
    pl.DataFrame({"kind": kinds(), "x": np.random.default_rng(1).normal(size=ROWS)}).write_parquet(
        data, row_group_size=500
    )
    report = streampgs.train(data, run=tmp_path / "run", label="kind", sigma=1e-3, epochs=1)
    assert sorted(streampgs.Model.load(tmp_path / "run").targets) == sorted(set(kinds()))
    assert (report.rows, report.skipped_rows) == (ROWS, {})


def test_a_column_that_takes_long_to_read_is_sampled(tmp_path, monkeypatch):
    path = write(pa.table({"label": kinds(), "x": range(ROWS)}), tmp_path / "data.parquet", "parquet")
    for bound, most in (("MOST_ROWS", ROWS - 1), ("_MOST_GROUPS", 0), ("_MOST_BYTES", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(label_column, bound, most)
            assert not counted(path).complete
    assert counted(path).complete
    assert not counted(path, loss="squared").complete  # a sample tells whether they are strings


def test_the_first_row_with_a_label_is_named(tmp_path):
    for part in range(2):
        labels = pa.array(["a", "b"] * 50 + ["zebra"] * part)
        pq.write_table(pa.table({"label": labels}), tmp_path / f"part-{part}.parquet", row_group_size=30)
    name = first_place(
        catalog_of(tmp_path, ModelOptions()), columns_of(ModelOptions(), Plan((), {})), "label", ["zebra"]
    )
    assert name.endswith("part-1.parquet', row group 3, row 10 (row 100 of the file)")


def test_a_label_that_the_sample_missed_is_named_with_its_row(tmp_path, monkeypatch):
    labels = ["a", "b"] * (ROWS // 2)
    pq.write_table(pa.table({"label": labels, "x": range(ROWS)}), tmp_path / "data.parquet")
    labels[4321] = "zebra"
    pq.write_table(pa.table({"label": labels, "x": range(ROWS)}), tmp_path / "other.parquet")
    for given in ({"classes": ["a", "b"]}, {"classes": ["a", "b", "c"]}):
        with pytest.raises(DataError, match=r"other.parquet.*row 4321 of the file\).*'zebra' in column 'label'"):
            streampgs.train(tmp_path / "other.parquet", run=tmp_path / f"{len(given['classes'])}", **given)
