"""`streampgs inspect DATA`: what a table holds, also without a label, and if it has thousands of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataError
from streampgs.model.inspection import inspect_data
from streampgs.options.commands import EncodingOptions, ModelOptions, Resources
from tests.end_to_end.commands import streampgs


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def uses(path: Path, **options: object) -> dict[str, tuple[str, str]]:
    result = inspect_data([str(path)], ModelOptions(**options), EncodingOptions(), Resources())  # type: ignore[arg-type]
    return {column["name"]: (column["type"], column["use"]) for column in result["columns"]}


def test_a_table_without_a_label(tmp_path: Path) -> None:
    struct = pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}] * 50)
    path = write(tmp_path / "t.parquet", x=[0.5, 1.5] * 50, who=["a", "b"] * 50, none=pa.nulls(100), s=struct)
    assert uses(path) == {
        "x": ("double", "number"),
        "who": ("string", "category"),
        "none": ("null", "not used: has only nulls"),
        "s.a": ("int64", "number"),
        "s.b": ("string", "category"),
    }
    assert uses(path, label="who")["who"] == ("string", "label")
    done = streampgs("inspect", path)
    assert done.code == 0, done.err
    assert "clustering  unknown without a label: name it with --label COLUMN" in done.out
    assert streampgs("inspect", path, "--json").json["clustering"] is None
    with pytest.raises(DataError, match="no label column 'y'"):
        uses(path, label="y")


def test_thousands_of_columns_are_summarized(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 1_000))
    columns = {f"f{k}": rows[:, k] for k in range(1_000)}
    path = write(tmp_path / "t.parquet", **columns, who=["a", "b"] * 25, label=[0, 1] * 25)
    done = streampgs("inspect", path)
    assert len(done.out) < 1_000
    assert "1,002: 1,000 double, 1 string, 1 int64; the first are f0, f1, f2, f3, f4, f5" in done.out
    everything = streampgs("inspect", path, "--columns", "all").out
    assert "f999" in everything
    assert len(streampgs("inspect", path, "--json").json["columns"]) == 1_002
