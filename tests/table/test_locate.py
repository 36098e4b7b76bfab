"""Find shards: which files are used, in which order, and which are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataError
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns
from streampgs.table.locate import locate

ROWS = pa.table({"label": [1, 0], "indices": [[0], [1, 2]]})


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")


def names(found: list[Path], folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in found]


# Which files.


def test_a_folder_is_searched_recursively_in_the_order_of_the_paths(tmp_path):
    touch(
        tmp_path / "b.arrow",
        tmp_path / "a/2.parquet",
        tmp_path / "a/1.ipc",
        tmp_path / "a/deep/er/0.pq",
        tmp_path / "c.feather",
    )
    assert names(locate([str(tmp_path)]).paths, tmp_path) == [
        "a/1.ipc",
        "a/2.parquet",
        "a/deep/er/0.pq",
        "b.arrow",
        "c.feather",
    ]


def test_marker_files_of_spark_are_not_shards(tmp_path):
    touch(
        tmp_path / "_SUCCESS",
        tmp_path / "._SUCCESS.crc",
        tmp_path / "part-00000-c000.snappy.parquet",
        tmp_path / ".part-00000-c000.snappy.parquet.crc",
        tmp_path / "day=1/part-00001-c000.snappy.parquet",
        tmp_path / "_temporary/0/part-00002-c000.snappy.parquet",
        tmp_path / ".hidden/part-00003-c000.snappy.parquet",
        tmp_path / "day=1/_part-00004-c000.snappy.parquet",
    )
    expected = ["day=1/part-00001-c000.snappy.parquet", "part-00000-c000.snappy.parquet"]
    assert names(locate([str(tmp_path)]).paths, tmp_path) == expected
    assert sorted(names(locate([f"{tmp_path}/**/*.parquet"]).paths, tmp_path)) == expected
    assert sorted(names(locate([f"{tmp_path}/*"]).paths, tmp_path)) == expected


def test_sources_keep_their_order_and_a_file_named_twice_counts_once(tmp_path, monkeypatch):
    touch(tmp_path / "z.parquet", tmp_path / "a.parquet", tmp_path / "in/b.parquet")
    monkeypatch.chdir(tmp_path)
    sources = ["z.parquet", str(tmp_path), "./in/../a.parquet", "in", "*.parquet"]
    assert names(locate(sources).paths, tmp_path) == ["z.parquet", "a.parquet", "in/b.parquet"]
    assert locate(sources).paths == locate(sources).paths


# Refused sources. Each message names the file or pattern and a remedy.


def stream_file(path: Path) -> None:
    with pa.ipc.new_stream(path, ROWS.schema) as writer:
        writer.write_table(ROWS)


def feather_v1_file(path: Path) -> None:
    # pyarrow no longer writes this format. Its files begin and end with these bytes.
    path.write_bytes(b"FEA1" + bytes(64) + b"FEA1")


def arrow_file(path: Path) -> None:
    feather.write_feather(ROWS, path, compression="uncompressed")


def truncated(write, path: Path, keep: float) -> None:
    write(path)
    os.truncate(path, int(path.stat().st_size * keep))


REFUSED = {
    "an Arrow stream": (stream_file, "is an Arrow stream, not a file", "pyarrow.ipc.new_file"),
    "Feather V1": (feather_v1_file, "is in the Feather V1 format", "Feather V2"),
    "an empty file": (touch, "is empty", "remove it"),
    "text": (lambda path: path.write_text("label,a,b\n1,2,3\n"), "is not in a known format (arrow, parquet)", "streampgs pack"),
    "one byte": (lambda path: path.write_bytes(b"A"), "has no beginning yet", "let its writer finish"),
    "half an Arrow file": (lambda path: truncated(arrow_file, path, 0.5), "has no footer", "still being written|finished"),
    "half a Parquet file": (
        lambda path: truncated(lambda p: pq.write_table(ROWS, p), path, 0.5), "has no footer", "still being written|finished"
    ),
    "only the magic bytes of Arrow": (lambda path: path.write_bytes(b"ARROW1"), "has no footer", "finished"),
    "only the magic bytes of Parquet": (lambda path: path.write_bytes(b"PAR1"), "has no footer", "finished"),
    "magic bytes at both ends and no footer": (lambda path: path.write_bytes(b"PAR1" + bytes(4) + b"PAR1"), "", ""),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_that_cannot_be_a_shard_is_refused_and_named(tmp_path, what):
    write, found, remedy = REFUSED[what]
    path = tmp_path / "shard-7.arrow"
    write(path)
    with pytest.raises(DataError) as refused:
        surveyed(path, Columns())
    assert str(path) in refused.value.found
    assert found in refused.value.found
    assert any(word in refused.value.remedy for word in remedy.split("|"))


@pytest.mark.parametrize("write", [arrow_file, lambda path: pq.write_table(ROWS, path)], ids=["arrow", "parquet"])
def test_every_truncation_is_detected(tmp_path, write):
    path = tmp_path / "shard"
    write(path)
    whole = path.read_bytes()
    assert sum(surveyed(path, Columns()).shard.group_rows) == len(ROWS)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="shard"):
            surveyed(path, Columns())


@pytest.mark.parametrize("name", ["shard.parquet", "shard.arrow", "shard"])
def test_the_format_is_detected_by_the_first_bytes_and_not_by_the_name(tmp_path, name):
    path = tmp_path / name
    arrow_file(path)
    assert surveyed(path, Columns()).shard.format == "arrow"
    pq.write_table(ROWS, path)
    assert surveyed(path, Columns()).shard.format == "parquet"
