"""Shards packed from text hold exactly the numbers and strings of the file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.base.errors import DataError, OptionError, Unreadable
from streampgs.packing.options import PackOptions
from streampgs.packing.packer import pack
from streampgs.packing.source import Source, opened
from tests.packing.conftest import shards_of, table_of

NUMBERS = np.random.default_rng(5)


def svmlight_text(rows: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        indices = np.sort(random.choice(5000, random.integers(0, 20), replace=False)).tolist()
        values = random.normal(size=len(indices)) * 10.0 ** random.integers(-30, 30, len(indices))
        label = repr(float(random.integers(-1, 2)))
        lines.append(" ".join([label, *(f"{i}:{v!r}" for i, v in zip(indices, values.tolist(), strict=True))]))
    return "\n".join(lines) + "\n"


def svmlight_of(table: pa.Table) -> str:
    rows = table.to_pylist()
    entries = (" ".join(f"{i}:{v!r}" for i, v in zip(row["indices"], row["values"], strict=True)) for row in rows)
    return "".join(f"{row['label']!r} {text}".rstrip() + "\n" for row, text in zip(rows, entries, strict=True))


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 22])
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_packed_svmlight_has_the_same_rows(tmp_path, small_chunks, chunk, format):
    small_chunks(chunk)
    text = svmlight_text(150, seed=1)
    (tmp_path / "rows.svm").write_text(text)
    report = pack(tmp_path / "rows.svm", tmp_path / "out", format=format, block_bytes=4096, rows_per_shard=40)
    assert (report.rows, report.shards) == (150, 4)
    assert report.columns == {
        "label": "double",
        "indices": "list<item: int32>",
        "values": "list<item: double>",
    }
    assert svmlight_of(table_of(tmp_path / "out")) == text


@pytest.mark.parametrize("name", ["rows.svm.gz", "rows.csv.gz", "rows.jsonl.zst"])
def test_a_truncated_file_is_an_error(tmp_path, name):
    data = b"a,b\n" + b"".join(b"%d,%d\n" % tuple(pair) for pair in NUMBERS.integers(0, 10**9, (20_000, 2)).tolist())
    whole = gzip.compress(data) if name.endswith("gz") else pa.compress(data, codec="zstd", asbytes=True)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"{name}' is damaged or cut off"):
        pack(tmp_path / name, tmp_path / "out", kind="lines" if "csv" not in name else None)
    assert not shards_of(tmp_path / "out")


def test_a_late_query_or_large_index_restarts_the_pack(tmp_path, small_chunks):
    small_chunks(40)
    (tmp_path / "rows.svm").write_text("1 1:2\n" * 30 + "1 qid:5 1:2\n" + "1 1:2\n" * 30 + "-1 3000000000:1\n")
    notes = []
    pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=7, on_note=notes.append)
    table = table_of(tmp_path / "out")
    assert table["qid"].to_pylist() == [None] * 30 + [5] + [None] * 31
    assert table["indices"].type == pa.list_(pa.int64())
    assert table["indices"].to_pylist()[-1] == [3_000_000_000]
    assert len(notes) == 1
    assert "new columns or other types: qid" in notes[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("1 2:3 5", "an entry is not index:value: '1 2:3 5'"),
        ("1 x:3", "an index is not a whole number: '1 x:3'"),
        ("1 -2:3", "an index is not a whole number: '1 -2:3'"),
        ("1 2:1 0x5:3", "an index is not a whole number: '1 2:1 0x5:3'"),
        ("1 2:1 99999999999999999999:3", "an index is not a whole number: '1 2:1 99999999999999999999:3'"),
        ("1 qid:x 2:1", "the query is not a whole number after the label: '1 qid:x 2:1'"),
        ("1 2:3:4", "an entry is not index:value: '1 2:3:4'"),
        ("1 2", "an entry is not index:value: '1 2'"),
        ("1 2:three", "a value is not a number: '1 2:three'"),
        ("2:3", "the label is not a number: '2:3'"),
        ("yes 2:3", "the label is not a number: 'yes 2:3'"),
    ],
)
def test_a_bad_line_is_named_or_counted(tmp_path, small_chunks, line, found):
    small_chunks(30)
    (tmp_path / "rows.svm").write_text("1 1:1\n" * 20 + line + "\n" + "-1 1:1\n" * 20)
    with pytest.raises(DataError) as error:
        pack(tmp_path / "rows.svm", tmp_path / "out")
    assert f"rows.svm', line 21: {found}" in str(error.value)
    assert "--on-bad-row skip" in error.value.remedy
    report = pack(tmp_path / "rows.svm", tmp_path / "skipped", on_bad_row="skip")
    assert report.rows == 40
    assert report.skipped_rows == {found.split(": '")[0]: 1}


def test_labels_may_be_in_another_file(tmp_path, small_chunks):
    small_chunks(100)
    lines = [f"line {row}" for row in range(40)]
    (tmp_path / "rows.txt").write_text("\n".join(lines))
    labels = NUMBERS.integers(0, 2, 40)
    (tmp_path / "y.labels").write_text("\n".join(map(str, labels.tolist())) + "\n")
    np.save(tmp_path / "y.npy", labels)
    for name in ("y.labels", "y.npy"):
        pack(tmp_path / "rows.txt", tmp_path / name[2:], kind="lines", labels=tmp_path / name, rows_per_shard=13)
        table = table_of(tmp_path / name[2:])
        assert table["text"].to_pylist() == lines
        assert table["label"].to_pylist() == labels.tolist()


def test_there_must_be_as_many_labels_as_rows(tmp_path):
    (tmp_path / "m.txt").write_text("1 2\n3 4\n5 6\n")
    for count, found in (
        (2, "2 values for column 'label' and more rows"),
        (4, "4 values for column 'label' and 3 rows"),
    ):
        (tmp_path / "y").write_text("1\n" * count)
        with pytest.raises(DataError, match=found):
            pack(tmp_path / "m.txt", tmp_path / f"out{count}", kind="lines", labels=tmp_path / "y")
    with pytest.raises(OptionError, match="cannot be matched to rows"):
        pack(tmp_path / "m.txt", tmp_path / "o", kind="lines", labels=tmp_path / "y", on_bad_row="skip")


def test_lines_are_packed_as_strings(tmp_path, small_chunks):
    small_chunks(10)
    lines = ["ant", "", "bee colony", "Käfer", "#5", "last one without an end"]
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode())
    pack(f"{tmp_path / 'a.txt'}::label=1,group=x", tmp_path / "out", kind="lines", names=["line"])
    assert table_of(tmp_path / "out").to_pylist() == [{"line": line, "label": 1, "group": "x"} for line in lines]


@given(
    st.binary(max_size=60).filter(lambda data: not data.startswith((b"\xef\xbb\xbf", b"\x1f\x8b", b"BZh", b"\x28\xb5")))
)
@example(b"\n")
@example(b"a\n\n\xff")
@example(b"\r\n\r\r\n")
def test_every_line_is_a_row(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.txt").write_bytes(data)
    lines = data.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n") if data else []
    texts = []
    for line in lines:
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            continue
    if not texts:
        return
    pack(folder / "a.txt", folder / "out", kind="lines", on_bad_row="skip")
    assert table_of(folder / "out")["text"].to_pylist() == texts


@given(st.binary(max_size=200), st.sampled_from(["svmlight", "vw", "lines", "csv", "jsonl"]))
@example(b'"' * 100, "csv")
@example(b"[" * 5000, "jsonl")
@example(b'{"a":' * 2000, "jsonl")
@example(b"1 | " + b"a|" * 2000, "vw")
@example(b"\x1f\x8b\x08", "csv")
@example(b"BZh91AY", "jsonl")
def test_any_bytes_give_rows_or_an_error(tmp_path_factory, data, kind):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a").write_bytes(data)
    for answer in ("error", "skip"):
        try:
            report = pack(folder / "a", folder / answer, kind=kind, on_bad_row=answer)
        except DataError as error:
            assert "a'" in str(error) or "no rows" in str(error)
        else:
            assert len(table_of(folder / answer)) == report.rows


# -------------------------------------------------------------------------------------------- Vowpal Wabbit


def test_numbers_of_one_namespace_are_indices(tmp_path, small_chunks):
    small_chunks(30)
    text = "1 |f 3:0.5 7:-1e-3 7\n\n-1 'tag|f 3\n" * 10 + "1 |f\n"
    (tmp_path / "rows.vw").write_text(text)
    pack(tmp_path / "rows.vw", tmp_path / "out")
    table = table_of(tmp_path / "out")
    assert table.column_names == ["label", "indices", "values"]
    assert table.schema.field("indices").metadata == {b"namespace": b"f"}
    rows = [
        {"label": 1.0, "indices": [3, 7, 7], "values": [0.5, -0.001, 1.0]},
        {"label": -1.0, "indices": [3], "values": [1.0]},
    ]
    assert table.to_pylist() == rows * 10 + [{"label": 1.0, "indices": [], "values": []}]


@pytest.mark.parametrize("late", ["1 |f word:2", "1 |g 5:2", "1 |f 5 |g 6"])
def test_a_name_or_a_second_namespace_turns_all_features_into_names(tmp_path, small_chunks, late):
    small_chunks(30)
    (tmp_path / "rows.vw").write_text("-1 |f 3:0.5 7\n" * 20 + late + "\n")
    notes = []
    pack(tmp_path / "rows.vw", tmp_path / "out", rows_per_shard=6, on_note=notes.append)
    table = table_of(tmp_path / "out")
    assert table.column_names == ["label", "features"]
    assert table["features"].type == pa.map_(pa.string(), pa.float64())
    features = {
        "1 |f word:2": [("f^word", 2.0)],
        "1 |g 5:2": [("g^5", 2.0)],
        "1 |f 5 |g 6": [("f^5", 1.0), ("g^6", 1.0)],
    }
    assert table["features"].to_pylist() == [[("f^3", 0.5), ("f^7", 1.0)]] * 20 + [features[late]]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("1 2 3", "no bar between label and features"),
        ("| a", r"no 'label"),
        ("yes | a", "the label is not a number: 'yes | a'"),
        ("1 x | a", "a weight is not a number: '1 x | a'"),
        ("1 | a:b", "a value is not a number: '1 | a:b'"),
        ("1 | :2", "a feature is not name or name:value: '1 | :2'"),
    ],
)
def test_a_bad_line_of_vowpal_wabbit_is_named(tmp_path, line, found):
    (tmp_path / "rows.vw").write_text("1 |f a\n" + line + "\n")
    with pytest.raises(DataError) as error:
        pack(tmp_path / "rows.vw", tmp_path / "out")
    assert f"line 2: {found}" in str(error.value)


def test_real_files_are_packed(tmp_path):
    data = Path(__file__).parents[3] / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the folder of real data does not exist")
    for name, rows in (("rcv1_small.dat.gz", 1000), ("a9a.t.gz", 16_281), ("duke_west.libsvm.gz", 49)):
        report = pack(data / name, tmp_path / name, kind="vw" if "rcv1" in name else "svmlight")
        assert report.rows == rows
        assert list(report.columns) == ["label", "indices", "values"]


@given(st.lists(st.floats() | st.sampled_from([5e-324, 1.7976931348623157e308, -0.0]), min_size=1, max_size=8))
def test_packed_numbers_have_the_same_bits(tmp_path_factory, numbers):
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "a.svm").write_text("".join(f"{x!r} 1:{x!r}\n" for x in numbers))
    (folder / "a.vw").write_text("".join(f"{x!r} {x!r} |:1e-400 a |f:0.12345678901234567 b:{x!r}\n" for x in numbers))
    pack(folder / "a.svm", folder / "svm")
    pack(folder / "a.vw", folder / "vw")
    table, named = table_of(folder / "svm"), table_of(folder / "vw")
    bits = np.array(numbers).view(np.int64)
    for column in (table["label"], table["values"].combine_chunks().flatten(), named["label"], named["weight"]):
        found = column.to_numpy()
        assert np.array_equal(np.isnan(found), np.isnan(numbers))
        assert np.array_equal(found.view(np.int64)[~np.isnan(found)], bits[~np.isnan(found)])
    values = [row[1][1] for row in named["features"].to_pylist()]
    assert np.array_equal(values, 0.12345678901234567 * np.array(numbers), equal_nan=True)
    assert all(row[0] == ("a", 0.0) for row in named["features"].to_pylist())


def test_a_text_that_ends_before_its_size_is_an_error(tmp_path):
    """Else rows would be missing without a word."""
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n" * 100)
    with opened(Source(path, PackOptions())) as stream:
        os.truncate(path, 200)
        assert len(stream.read(300)) == 200
        with pytest.raises(Unreadable, match=r"rows\.csv' cannot be read"):
            stream.read(300)
