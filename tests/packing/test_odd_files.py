"""Files with quirks: each is packed with the right values, or there is an error that names the place. Nothing is silently
lost, joined or rounded."""

from __future__ import annotations

import datetime
import decimal
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from streampgs.base.errors import DataError
from streampgs.packing.packer import pack
from tests.packing.conftest import table_of

BOM = b"\xef\xbb\xbf"


def packed(folder: Path, files: dict[str, bytes], **options: Any) -> pa.Table:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    pack([folder / name for name in files], folder / "out", **options)
    return table_of(folder / "out")


# Text that cannot be read: (name, content, the error, rows that remain with --on-bad-row skip; None: it stops in any case).
BAD_TEXT = {
    "decimal commas": ("a.csv", b"a;b\n1,5;2\n3,25;4\n", r"column 'a' holds numbers with commas, like '1,5'", None),
    "separators of thousands": ("a.csv", b'a,b\n"1,500",2\n', "column 'a' holds numbers with commas", None),
    "JSON integers too large": ("a.jsonl", b'{"a":18446744073709551615}\n{"a":1}\n', "line 1: a whole number that 64 bits", 1),
    "Latin 1": ("a.jsonl", b'{"x":"a"}\n{"x":"\xe9"}\n', "line 2: a line that is not UTF-8", 1),
    "lines of old computers": ("a.svm", b"1 1:2\n0 2:3\r1 3:4\n", "line 2: a carriage return without", 1),
    "row of numbers without colon": ("a.vw", b"1 | a:1\r0 | b:1\n1 | a:1\n", "line 1: a carriage return without", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TEXT)
def test_text_that_would_be_misread_is_an_error_or_a_counted_row(name: str, tmp_path: Path) -> None:
    file, content, message, rest = BAD_TEXT[name]
    options: dict[str, Any] = {"delimiter": ";"} if name == "decimal commas" else {}
    with pytest.raises(DataError, match=message) as refused:
        packed(tmp_path, {file: content}, **options)
    assert file in refused.value.found
    assert refused.value.remedy
    if rest is None:
        with pytest.raises(DataError):
            pack(tmp_path / file, tmp_path / "rest", on_bad_row="skip", **options)
    else:
        report = pack(tmp_path / file, tmp_path / "rest", on_bad_row="skip", **options)
        assert (report.rows, sum(report.skipped_rows.values())) == (rest, 1)


# Text that is read: (files, the rows, the type of the first column).
TEXT = {
    "order mark": ({"a.csv": BOM + b"a,b\n1,2\n"}, [(1, 2)], "int64"),
    "mixed line ends": ({"a.csv": b"a,b\r\n1,x\n2,y\r\n3,z\n"}, [(1, "x"), (2, "y"), (3, "z")], "int64"),
    "other order of columns": ({"a.csv": b"a,b\n1,2\n", "b.csv": b"b,a\n20,10\n"}, [(1, 2), (10, 20)], "int64"),
    "column missing": ({"a.csv": b"a,b\n1,2\n", "b.csv": b"a\n10\n"}, [(1, 2), (10, None)], "int64"),
    "column more": ({"a.csv": b"a\n1\n", "b.csv": b"a,b\n2,3\n"}, [(1, None), (2, 3)], "int64"),
    "blank line": ({"a.csv": b"a,b\n1,2\n\n3,4\n"}, [(1, 2), (3, 4)], "int64"),
    "blanks count in strings": ({"a.csv": b"a\nx \nx\n x\n"}, [("x ",), ("x",), (" x",)], "string"),
    "the header of one column": ({"a.csv": b"word\nthe\nword\n"}, [("the",), ("word",)], "string"),
    "large integers": ({"a.csv": b"a\n9007199254740993\n9223372036854775807\n"}, [(2**53 + 1,), (2**63 - 1,)], "int64"),
    "integers too large": ({"a.csv": b"a\n9223372036854775808\n1\n"}, [(str(2**63),), ("1",)], "string"),
    "large floats": ({"a.csv": b"a\n1e30\n1\n"}, [(1e30,), (1.0,)], "double"),
    "JSON floats of many digits": ({"a.jsonl": b'{"a":0.12345678901234567890}\n{"a":1}\n'}, [(0.12345678901234568,), (1.0,)], "double"),
    "JSON strings like keys": ({"a.jsonl": b'{"a":"\\"b\\": null, \\"b\\": 1"}\n'}, [('"b": null, "b": 1',)], "string"),
    "JSON nulls": ({"a.jsonl": b'{"a":null,"b":{"c":null,"d":[{"e":null},null]}}\n'}, [(None, {"c": None, "d": [{"e": None}, None]})], "null"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXT)
def test_odd_text_has_the_right_values(name: str, tmp_path: Path) -> None:
    files, rows, kind = TEXT[name]
    found = packed(tmp_path, files)
    assert [tuple(row.values()) for row in found.to_pylist()] == rows
    assert str(found.schema[0].type) == kind


@pytest.mark.parametrize(
    "times",
    [
        ["2020-01-01T10:00:00Z", "2020-06-01 12:30:00+02:00"],
        ["2020-01-01 10:00:00", "1969-06-01T12:30:00"],
    ],
)
def test_times_are_instants_if_they_have_zones(times: list[str], tmp_path: Path) -> None:
    found = packed(tmp_path, {"a.csv": "\n".join(["t", *times]).encode()})["t"]
    has_zone = times[0].endswith("Z")
    expected = pd.to_datetime(pd.Series(times), utc=has_zone, format="ISO8601")
    assert found.to_pandas().astype(f"datetime64[us{', UTC' * has_zone}]").tolist() == expected.tolist()
    assert getattr(found.type, "tz", None) == ("UTC" if has_zone else None)


# Arrays.

MATRIX = scipy.sparse.random(50, 7, 0.4, format="csr", random_state=0)


def npz(**changed: Any) -> bytes:
    """A sparse matrix as SciPy writes it, with other arrays in place of some of its own; None: without."""
    arrays = {"indices": MATRIX.indices, "indptr": MATRIX.indptr, "data": MATRIX.data, "shape": np.array(MATRIX.shape)}
    file = io.BytesIO()
    np.savez(file, **{name: one for name, one in {**arrays, "format": b"csr", **changed}.items() if one is not None})
    return file.getvalue()


def archive(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, content in members:
            zipped.writestr(name, content)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


BAD_ARRAYS = {
    "fewer rows than the shape": (lambda: npz(shape=np.array([51, 7])), "not a matrix of 51 rows"),
    "a column beyond the shape": (lambda: npz(shape=np.array([50, 6])), "not within the matrix of 6 columns"),
    "a column before the first": (lambda: npz(indices=MATRIX.indices - 1, shape=None), "a column number is not within"),
    "a shape of three axes": (lambda: npz(shape=np.array([50, 7, 1])), "is damaged"),
    "a negative shape": (lambda: npz(shape=np.array([50, -7])), "not a matrix of 50 rows|not within"),
    "a large shape": (lambda: npz(shape=np.zeros(10_000)), "is damaged"),
    "a shape of objects": (lambda: npz(shape=np.array([{}, None])), "is damaged"),
    "entries beyond the pointers": (lambda: npz(indptr=np.minimum(MATRIX.indptr, 9)), "its row pointers end at 9"),
    "pointers beyond the entries": (lambda: npz(indptr=MATRIX.indptr + np.arange(51)), "its row pointers end at"),
    "fewer values than columns": (lambda: npz(data=MATRIX.data[1:]), "are not a matrix"),
    "pointers of floats": (lambda: npz(indptr=MATRIX.indptr * 1.0), "are not a matrix"),
    "columns of floats": (lambda: npz(indices=MATRIX.indices + 0.5), "are not a matrix"),
    "columns in a matrix": (lambda: npz(indices=MATRIX.indices[:, None]), "are not a matrix"),
    "a file that is no array": (lambda: archive(("x.npy", npy(np.arange(3))), ("readme.txt", b"hi")), "does not hold arrays of different names alone"),
    "an array without a name": (lambda: archive((".npy", npy(np.arange(3)))), "does not hold arrays of different names alone"),
    "bytes that are not text": (lambda: archive(("x.npy", npy(np.array([b"\xff"])))), "bytes that are not ASCII"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_that_contradict_each_other_are_refused(name: str, tmp_path: Path) -> None:
    make, message = BAD_ARRAYS[name]
    with pytest.raises(DataError, match=message) as refused:
        packed(tmp_path, {"a.npz": make()})
    assert "a.npz" in refused.value.found


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "columns first": np.asfortranarray,
    "big endian": lambda array: array.astype(">f4"),
    "big endian columns": lambda array: np.asfortranarray(array.astype(">i2")),
    "half": lambda array: array.astype(np.float16),
    "long": lambda array: array.astype(np.longdouble),
    "unsigned": lambda array: array.astype(np.uint64) + np.uint64(2**63),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_in_any_order_of_bytes_and_axes_has_its_values(name: str, tmp_path: Path) -> None:
    array = ARRAYS[name](np.arange(12.0).reshape(4, 3))
    assert packed(tmp_path, {"a.npy": npy(array)})["features"].to_pylist() == array.tolist()


# Types that change between files.

_MOMENT = datetime.datetime(2020, 1, 1, 10)
VALUES = {
    "int8": pa.array([-1, 1], pa.int8()),
    "int64": pa.array([1, 2**53 + 1]),
    "uint64": pa.array([1, 2**64 - 1], pa.uint64()),
    "float": pa.array([0.5, 1.1], pa.float32()),
    "double": pa.array([0.5, 1.5]),
    "bool": pa.array([True, False]),
    "string": pa.array(["a", "1"]),
    "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.5")], pa.decimal128(10, 2)),
    "wide decimal": pa.array([decimal.Decimal("12345678901234567890.1234"), None], pa.decimal128(38, 4)),
    "date": pa.array([_MOMENT.date(), None]),
    "timestamp": pa.array([_MOMENT, None], pa.timestamp("ns")),
    "ancient": pa.array([datetime.datetime(1, 1, 1), None], pa.timestamp("us")),
    "zoned": pa.array([_MOMENT, None], pa.timestamp("us", "UTC")),
    "time": pa.array([_MOMENT.time(), None]),
    "duration": pa.array([datetime.timedelta(1), None]),
}


@pytest.mark.parametrize("first", VALUES)
def test_values_of_two_types_are_kept_exactly_or_refused(first: str, tmp_path: Path) -> None:
    for second in VALUES:
        files = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
        for file, name in zip(files, (first, second), strict=True):
            pq.write_table(pa.table({"x": VALUES[name]}), file)
        out = tmp_path / second
        try:
            pack(files, out)
        except DataError as refused:
            assert first != second
            assert ".parquet': column 'x'" in refused.found
            continue
        expected = [*VALUES[first].to_pylist(), *VALUES[second].to_pylist()]
        for value, found in zip(expected, table_of(out)["x"].to_pylist(), strict=True):
            if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
                value = found if isinstance(found, datetime.datetime) and found.date() == value else value
            same = np.float64(value) == found if isinstance(found, float) else value == found
            assert same, (second, value, found)
