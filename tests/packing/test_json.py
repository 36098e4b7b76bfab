"""JSON lines: fields that appear late are not lost."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.packing.packer import pack
from tests.packing.conftest import table_of

ROWS = [
    {"id": i, "score": i if i < 50 else i + 0.5, "tags": ["a"] * (i % 3), "deep": {"x": i}, "text": f"é {i}\n"}
    for i in range(80)
]
ROWS[60]["late"] = "here"
ROWS[61]["deep"] = {"x": 5, "y": "new"}
ROWS[62]["tags"] = None


@pytest.mark.parametrize("chunk", [300, 1 << 22])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json.gz"])
def test_a_field_that_appears_late_is_not_lost(tmp_path, small_chunks, chunk, name):
    small_chunks(chunk)
    text = "".join(json.dumps(row) + "\n\n" for row in ROWS).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    pack(tmp_path / name, tmp_path / "out", rows_per_shard=30)
    table = table_of(tmp_path / "out")
    assert table.schema.field("score").type == pa.float64()
    wanted = [{**row, "late": row.get("late"), "deep": {"y": None, **row["deep"]}} for row in ROWS]
    assert table.to_pylist() == wanted


@pytest.mark.parametrize("chunk", [20, 1 << 22])
def test_a_number_that_turns_into_text_is_an_error(tmp_path, small_chunks, chunk):
    small_chunks(chunk)
    (tmp_path / "rows.jsonl").write_text('{"id": 7}\n' * 9 + '{"id": "a1"}\n')
    with pytest.raises(DataError, match="column 'id' is of type string, which does not fit int64") as refused:
        pack(tmp_path / "rows.jsonl", tmp_path / "out")
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"a": 1', "line 4: it cannot be read: JSON parse error"),
        ("[1, 2]", "line 4: it cannot be read: JSON parse error"),
        ("5", "line 4: it cannot be read: JSON parse error"),
        ('{"a": [1]}', "does not fit int64"),
    ],
)
def test_a_bad_line_is_named_or_counted(tmp_path, line, found):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n' + line + '\n{"a": 3}\n')
    with pytest.raises(DataError, match=found):
        pack(tmp_path / "rows.jsonl", tmp_path / "out")
    if "line 4" in found:
        report = pack(tmp_path / "rows.jsonl", tmp_path / "skipped", on_bad_row="skip")
        assert table_of(tmp_path / "skipped")["a"].to_pylist() == [1, 2, 3]
        assert report.skipped_rows.keys() == set(report.skipped_rows)


def test_only_empty_objects_are_an_error(tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}\n" * 5)
    with pytest.raises(DataError, match="line 1: objects without fields"):
        pack(tmp_path / "rows.jsonl", tmp_path / "out")


def test_types_can_be_set(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1, "day": "2020-01-01"}\n')
    pack(tmp_path / "rows.jsonl", tmp_path / "out", types={"a": "double", "day": "string"})
    assert table_of(tmp_path / "out").to_pylist() == [{"a": 1.0, "day": "2020-01-01"}]
