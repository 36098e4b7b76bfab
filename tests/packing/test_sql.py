"""The result of an SQL query is packed like a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError, OptionError, StreampgsError


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.parquet"
    topics = [["earn"], ["grain", "acq"], [], ["ship"]] * 2500
    pq.write_table(pa.table({"id": range(10_000), "price": [i / 8 for i in range(10_000)], "topics": topics}), path)
    return path


def rows_in(folder: Path) -> list[dict[str, object]]:
    return [
        row
        for path in sorted(folder.glob("part-*.arrow"))
        for row in pa.ipc.open_file(pa.memory_map(str(path))).read_all().to_pylist()
    ]


def query(clicks: Path) -> str:
    return (
        "SELECT price, len(list_intersect(topics, ['earn', 'acq'])) > 0 AS label "
        f"FROM '{clicks}' WHERE id >= 4000 AND len(topics) > 0"
    )


def test_the_result_of_a_query_is_packed(clicks, tmp_path):
    report = streampgs.pack([], tmp_path / "out", sql=query(clicks), rows_per_shard=1000)
    expected = [{"price": i / 8, "label": i % 4 in (0, 1)} for i in range(4000, 10_000) if i % 4 != 2]
    assert rows_in(tmp_path / "out") == expected
    assert report.rows == len(expected)
    assert report.shards == 5


def test_a_shuffled_result_has_the_same_rows_in_another_order(clicks, tmp_path):
    for name, shuffle in (("plain", False), ("mixed", True)):
        streampgs.pack([], tmp_path / name, sql=query(clicks), shuffle=shuffle)
    plain, mixed = rows_in(tmp_path / "plain"), rows_in(tmp_path / "mixed")
    assert plain != mixed
    assert sorted(plain, key=lambda row: row["price"]) == sorted(mixed, key=lambda row: row["price"])


def test_a_bad_query_is_refused(clicks, tmp_path):
    with pytest.raises(DataError, match="the query failed"):
        streampgs.pack([], tmp_path / "a", sql="SELECT nothing FROM nowhere")
    with pytest.raises(StreampgsError, match="no rows"):
        streampgs.pack([], tmp_path / "b", sql="CREATE TABLE t (x INTEGER)")
    with pytest.raises(OptionError, match="together with other inputs"):
        streampgs.pack([str(clicks)], tmp_path / "c", sql=query(clicks))
    with pytest.raises(DataError, match="no rows"):
        streampgs.pack([], tmp_path / "d", sql=f"{query(clicks)} AND id < 0")
