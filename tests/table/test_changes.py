"""Compare a table with its catalog: new, missing, moved, rewritten and incomplete shards."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.table.catalog import build_catalog
from streampgs.table.changes import Changes, Watch
from streampgs.table.layout import Columns
from streampgs.table.locate import locate

FORMATS = ["arrow", "parquet"]


def write(path: Path, rows: int, value: float = 1.0) -> None:
    table = pa.table(
        {"label": [1.0] * rows, "indices": [[3]] * rows, "values": [[value]] * rows},
        pa.schema({"label": pa.float64(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())}),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


class Table:
    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix
        for number in range(3):
            write(self.path(number), 10, float(number))
        self.catalog = build_catalog([str(folder)], Columns())
        self.watch = Watch(settling=False)

    def path(self, number: int | str) -> Path:
        return self.folder / f"part-{number}.{self.suffix}"

    def look(self, *retired: int) -> Changes:
        return self.watch.look(self.catalog, set(retired), locate([str(self.folder)]).paths)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(tmp_path / "table", request.param)


def written_later(path: Path, rows: int, value: float) -> None:
    """Write with a later time stamp: a test may be faster than the clock of the file system."""
    before = path.stat().st_mtime_ns
    write(path, rows, value)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_a_shard_under_another_name_is_the_same_shard(table: Table) -> None:
    table.path(1).rename(table.path("x"))
    assert table.look() == Changes(moved={1: table.path("x")})
    moved = table.catalog.with_moved({1: table.path("x")})
    moved.check_unchanged()
    assert moved.digest() == table.catalog.digest()


def test_a_copy_of_a_shard_is_left_out(table: Table) -> None:
    shutil.copy(table.path(1), table.path("copy"))
    expected = Changes(copies=[(table.path("copy"), table.path(1))])
    assert table.look() == expected
    assert table.look() == expected, "in the next look as well"
    table.path(1).unlink()
    assert table.look() == Changes(moved={1: table.path("copy")}), "once the original is removed, the copy replaces it"


def test_a_file_in_the_folder_of_another_partition_holds_other_rows(table: Table) -> None:
    other = table.folder / "day=2" / table.path(1).name
    other.parent.mkdir()
    table.path(1).rename(other)
    assert table.look() == Changes(new=[other], gone=[1])


@pytest.mark.parametrize(("rows", "value"), [(11, 1.0), (10, 5.0)])
def test_a_replaced_shard_is_detected(table: Table, rows: int, value: float) -> None:
    written_later(table.path(1), rows, value)
    assert table.look() == Changes(new=[table.path(1)], replaced=[1])
    assert table.look(1) == Changes(new=[table.path(1)])


def test_an_incomplete_file_is_not_used(table: Table) -> None:
    whole = table.path(1).read_bytes()
    for size in (0, 3, 5, len(whole) // 2, len(whole) - 1):
        table.path("new").write_bytes(whole[:size])
        changes = table.look()
        assert len(changes.unfinished) == 1
        assert str(table.path("new")) in changes.unfinished[0].found
        assert changes == Changes(unfinished=changes.unfinished, incomplete=changes.incomplete)


def test_a_shard_that_is_being_overwritten_is_not_lost_yet(table: Table) -> None:
    whole = table.path(1).read_bytes()
    table.path(1).write_bytes(whole[: len(whole) // 2])
    changes = table.look()
    assert changes == Changes(doubtful=[1], unfinished=changes.unfinished, incomplete=changes.incomplete)
    assert len(changes.unfinished) == 1


def test_with_settling_a_file_is_new_after_two_equal_looks(table: Table) -> None:
    table.watch = Watch(settling=True)
    write(table.path("new"), 5)
    assert table.look().new == []
    written_later(table.path("new"), 6, 1.0)
    assert table.look().new == []
    assert table.look().new == [table.path("new")]


def test_with_settling_a_shard_that_is_being_moved_is_not_lost(table: Table) -> None:
    table.watch = Watch(settling=True)
    content = table.path(1).read_bytes()
    table.path(1).unlink()
    assert table.look().lost == [], "it may appear under another name"
    table.path("x").write_bytes(content)
    assert table.look().lost == []
    assert table.look() == Changes(moved={1: table.path("x")})
    table.path(2).unlink()
    assert [table.look().gone for _ in range(2)] == [[], [2]]
