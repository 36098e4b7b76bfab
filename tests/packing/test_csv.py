"""CSV: the types fit all rows and do not depend on the blocks in which a file is read."""

from __future__ import annotations

import datetime
import gzip

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.packing.packer import pack
from tests.packing.conftest import table_of


def packed(folder, text: str | bytes, **options) -> pa.Table:
    (folder / "rows.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    pack(folder / "rows.csv", folder / "out", overwrite=True, **options)
    return table_of(folder / "out")


def frame(rows: int) -> pl.DataFrame:
    random = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "id": np.arange(rows),
            "x": random.normal(size=rows),
            "word": [f'a "quoted", {i}\nline' if i % 3 else "é" for i in range(rows)],
            "yes": random.integers(0, 2, rows).astype(bool),
            "day": [datetime.date(2020, 1, 1) + datetime.timedelta(days=i) for i in range(rows)],
        }
    )


@pytest.mark.parametrize("block", [2000, 1 << 22])
def test_files_of_polars_and_duckdb_have_the_same_rows(tmp_path, small_chunks, block):
    small_chunks(block)
    rows = frame(300)
    rows.write_csv(tmp_path / "polars.csv")
    duckdb.sql("select * from rows").write_csv(str(tmp_path / "duckdb.csv"))
    (tmp_path / "polars.csv.gz").write_bytes(gzip.compress((tmp_path / "polars.csv").read_bytes()))
    (tmp_path / "polars.csv.zst").write_bytes(pa.compress((tmp_path / "polars.csv").read_bytes(), "zstd", asbytes=True))
    rows.write_csv(tmp_path / "polars.tsv", separator="\t")
    for name in ("polars.csv", "duckdb.csv", "polars.csv.gz", "polars.csv.zst", "polars.tsv"):
        pack(tmp_path / name, tmp_path / f"{name}.out", rows_per_shard=70)
        table = table_of(tmp_path / f"{name}.out")
        assert table.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32()]
        assert table.to_pylist() == rows.to_dicts(), name


@pytest.mark.parametrize("late", ["2.5", "x"])
def test_a_late_value_of_another_type_is_an_error_with_a_remedy(tmp_path, small_chunks, late):
    small_chunks(200)
    text = "a,b\n" + "1,y\n" * 100 + f"{late},y\n"
    with pytest.raises(DataError, match=f"row 102: the value '{late}' of column 'a' is not of type int64") as refused:
        packed(tmp_path, text)
    assert "--types a=" in refused.value.remedy
    kind = "double" if late == "2.5" else "string"
    values = [1.0] * 100 + [2.5] if kind == "double" else ["1"] * 100 + ["x"]
    assert packed(tmp_path, text, types={"a": kind})["a"].to_pylist() == values


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_numbers_are_exact(tmp_path_factory, numbers):
    folder = tmp_path_factory.mktemp("csv")
    table = packed(
        folder, "x,y\n" + "".join(f"{x!r},{x:.20e}\n" for x in numbers), types={"x": "double", "y": "double"}
    )
    assert table["x"].to_pylist() == numbers
    assert table["y"].to_pylist() == [float(f"{x:.20e}") for x in numbers]


def test_missing_values_become_nulls(tmp_path):
    text = "n,s\n1,NA\n,\nNA,x\n-9,-9\n"
    table = packed(tmp_path, text)
    assert table.to_pylist() == [{"n": 1, "s": "NA"}, {"n": None, "s": ""}, {"n": None, "s": "x"}, {"n": -9, "s": "-9"}]
    table = packed(tmp_path, text, nulls=["-9", "NA", ""])
    assert table.to_pylist() == [
        {"n": 1, "s": None},
        {"n": None, "s": None},
        {"n": None, "s": "x"},
        {"n": None, "s": None},
    ]


def test_names_headers_and_delimiters_can_be_set(tmp_path):
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert (
        packed(tmp_path, "0;1\n1;2\n3;4\n", skip_lines=1, no_header=True, names=["a", "b"], delimiter=";").to_pylist()
        == rows
    )
    assert packed(tmp_path, "x,y\n1,2\n3,4\n", names=["a", "b"]).to_pylist() == rows
    assert packed(tmp_path, "1,2\n3,4\n", no_header=True).column_names == ["f0", "f1"]
    assert packed(tmp_path, "\xef\xbb\xbfa,b\r\n1,2\r\n3,4".encode("latin-1")).to_pylist() == rows
    table = packed(tmp_path, "a,b\n1,2\n", types={"a": "string", "b": "float"})
    assert table.schema.types == [pa.string(), pa.float32()]


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        ("a,b\n1,2\n3\n", {}, "row 3: expected 2 columns, got 1"),
        ("a,a\n1,2\n", {}, "two columns are called 'a'"),
        ("a,b\n1,2\nx,3\n", {"types": {"a": "int64"}}, "row 3: the value 'x' of column 'a' is not of type int64"),
        ("a,b\n1,2\n", {"types": {"c": "int64"}}, "has no column 'c'"),
        ("a,b\n", {}, "there are no rows"),
        ("", {}, "there are no rows"),
        (b"a,b\n1,\xff\n", {}, "line 2: not UTF-8"),
        ("Käfer,b\n1,é\n".encode("latin-1"), {}, "line 1: not UTF-8"),
    ],
)
def test_errors_name_the_row_of_a_csv_file(tmp_path, text, options, found):
    with pytest.raises(DataError, match=found) as error:
        packed(tmp_path, text, **options)
    assert error.value.remedy


@pytest.mark.parametrize("text", ['a,b\n1,2\n3,"4\n5,6\n', 'a,b\n1,2\n3,"4', 'a\n1\n"2\n3\n', 'a,b\n1,2\n3,"4""\n'])
@pytest.mark.parametrize("answer", ["error", "skip"])
def test_a_quote_that_is_never_closed_is_an_error(tmp_path, text, answer):
    with pytest.raises(DataError, match=r"a quote is never closed|is not of type"):
        packed(tmp_path, text, on_bad_row=answer)
