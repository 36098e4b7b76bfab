"""Delta tables: the files of the log, their order and columns, and changes."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streampgs.base.checks import decode, encode
from streampgs.base.errors import DataError
from streampgs.table.delta import change_of, list_table
from streampgs.table.layout import Layout
from streampgs.table.locate import locate
from streampgs.table.partitions import with_partitions


def append(table: Path, first: int, rows: int = 3, **options: Any) -> list[str]:
    """Append rows; return the names of all files."""
    data = pa.table({"x": range(first, first + rows), "label": [0.0] * rows})
    write_deltalake(str(table), data, mode="append", **options)
    return counted(table)


def counted(table: Path) -> list[str]:
    """The files that another reader of Delta tables finds."""
    paths = pa.table(DeltaTable(str(table)).get_add_actions()).column("path").to_pylist()
    return sorted(unquote(path) for path in paths)


def listed(table: Path) -> list[str]:
    return [path.relative_to(table).as_posix() for path in locate([str(table)]).paths]


def fields(*names: str, **metadata: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": "double", "nullable": True, "metadata": metadata} for name in names]


def written_log(table: Path, *, features: tuple[str, ...] = (), add: dict[str, Any] | None = None, **meta: Any) -> Path:
    """A table of one version that has only a log."""
    metadata = {
        "id": "a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": meta.pop("fields", fields("x"))}),
        "partitionColumns": [],
        "configuration": meta,
        "createdTime": 1,
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    file = {"path": "a.parquet", "partitionValues": {}, "size": 5, "modificationTime": 1, "dataChange": True}
    commit(table, 0, {"protocol": protocol}, {"metaData": metadata}, {"add": file | (add or {})})
    return table


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, actions))
    (table / "_delta_log" / f"{version:020}.json").write_text(text)


def forget_old_versions(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for old in sorted((table / "_delta_log").glob("*.json"))[:-1]:
        old.unlink()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions, each with a file."""
    for first in (0, 3, 6):
        append(tmp_path / "table", first)
    return tmp_path / "table"


# Files and their order.


def test_files_that_the_log_does_not_list_are_ignored(table: Path) -> None:
    (table / "left-behind.parquet").write_bytes((table / listed(table)[0]).read_bytes())
    DeltaTable(str(table)).delete("x < 2")
    append(table, 100)
    assert len(list(table.glob("*.parquet"))) == 6
    assert len(listed(table)) == 4
    assert sorted(listed(table)) == counted(table)
    write_deltalake(str(table), pa.table({"x": [1], "label": [1.0]}), mode="overwrite")
    assert listed(table) == counted(table)
    assert len(listed(table)) == 1


# Refused tables.


REFUSED = {
    "unknown feature": ({"features": ("fromTheFuture",)}, "fromTheFuture", "without this feature"),
    "managed elsewhere": ({"features": ("catalogManaged",)}, "(?i)catalog", "without this feature"),
    "column mapping": (
        {
            "features": ("columnMapping",),
            "delta.columnMapping.mode": "name",
            "fields": fields("x", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-7"}),
        },
        "other column names than its files",
        "without column mapping",
    ),
    "deletion vector": (
        {
            "features": ("deletionVectors",),
            "delta.enableDeletionVectors": "true",
            "add": {
                "stats": '{"numRecords": 2000}',
                "deletionVector": {
                    "storageType": "i",
                    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
                    "sizeInBytes": 44,
                    "cardinality": 6,
                },
            },
        },
        "deleted rows that its files still hold .*a.parquet",
        "PURGE",
    ),
    "shallow clone": ({"add": {"path": "s3://bucket/a%20b.parquet"}}, "outside its folder, 's3://bucket/a b.parquet'", "clone"),
    "parent folder": ({"add": {"path": "x/../../secret/a.parquet"}}, "outside its folder", "clone"),
    "quoted parent folder": ({"add": {"path": "%2e%2e/secret/a.parquet"}}, "outside its folder", "clone"),
    "absolute path": ({"add": {"path": "/data/a.parquet"}}, "outside its folder", "clone"),
    "quoted absolute path": ({"add": {"path": "%2Fdata/a.parquet"}}, "outside its folder, '/data", "clone"),
    "quoted slash": ({"add": {"path": "..%2Fsecret/a.parquet"}}, "outside its folder", "clone"),
    "path on this disk": ({"add": {"path": "file:///data/a.parquet"}}, "outside its folder", "clone"),
    "quoted address": ({"add": {"path": "http%3A//host/a.parquet"}}, "outside its folder", "clone"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_tables_that_are_not_a_list_of_whole_files_are_refused(name: str, tmp_path: Path) -> None:
    log, found, remedy = REFUSED[name]
    written_log(tmp_path / "table", **log)
    with pytest.raises(DataError) as refused:
        locate([str(tmp_path / "table")])
    assert f"Delta table '{tmp_path / 'table'}'" in refused.value.found
    assert re.search(found, refused.value.found)
    assert remedy in refused.value.remedy
    assert "\x1b" not in refused.value.found
    assert "<unknown>" not in refused.value.found


@pytest.mark.parametrize("link", ["a.parquet", "folder"])
def test_a_link_out_of_the_table_is_refused(link: str, tmp_path: Path) -> None:
    table, secret = tmp_path / "table", tmp_path / "secret"
    secret.mkdir()
    (secret / "a.parquet").touch()
    written_log(table, add={"path": "a.parquet" if link == "a.parquet" else "folder/a.parquet"})
    (table / link).symlink_to(secret / "a.parquet" if link == "a.parquet" else secret)
    with pytest.raises(
        DataError, match=r"a\.parquet' in Delta table .* is a link to a place outside the table's folder"
    ):
        locate([str(table)])


def replaced_by_a_link(log: Path) -> None:
    log.unlink()
    log.symlink_to("/dev/zero")


def replaced_by_a_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def moved_out(log: Path) -> None:
    shutil.move(log.parent, log.parents[2] / "elsewhere")
    log.parent.symlink_to(log.parents[2] / "elsewhere")


ODD_LOGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (replaced_by_a_link, "is a link to a place outside"),
    "pipe": (replaced_by_a_pipe, "it is not a regular file"),
    "folder elsewhere": (moved_out, "is a link to a place outside"),
    "huge": (lambda log: os.truncate(log, 1 << 40), "has 1,099,511,627,776 bytes"),
    "deep lists": (lambda log: log.write_text('{"add":' + "[" * 200_000 + "]" * 200_000 + "}"), "cannot be read"),
    "deep after a break": (lambda log: log.write_text('{"a\n":' + "[" * 200_000), "cannot be read"),
    "deep objects": (lambda log: log.write_text('{"a":' * 200_000 + "1" + "}" * 200_000), "cannot be read"),
}


@pytest.mark.parametrize("name", ODD_LOGS)
def test_a_log_that_would_end_or_block_the_process_is_refused(name: str, tmp_path: Path) -> None:
    change, found = ODD_LOGS[name]
    written_log(tmp_path / "table")
    change(tmp_path / "table" / "_delta_log" / f"{0:020}.json")
    with pytest.raises(DataError, match=f"a part of a Delta table's log, .*{found}"):
        locate([str(tmp_path / "table")])


@pytest.mark.parametrize("commit", [b'["remove"]', b'{"remove": ' + b"[" * 100_000, b"\xff"])
def test_a_commit_with_another_content_is_an_error_that_names_its_version(table: Path, commit: bytes) -> None:
    before = locate([str(table)]).paths
    DeltaTable(str(table)).delete()
    newest = list_table(str(table))
    (table / "_delta_log" / f"{newest.version:020}.json").write_bytes(commit)
    with pytest.raises(DataError, match=rf"version {newest.version} of Delta table '.*' cannot be read"):
        change_of(newest, before)


# Columns from the log.


VALUES = {
    "text": (pa.string(), ["17", "a b/%é=?#", None, "-"]),
    "day": (pa.date32(), [datetime.date(2026, 1, 2), None, datetime.date(1969, 5, 1), datetime.date(2000, 1, 1)]),
    "number": (pa.float64(), [1.0, 2.5, None, -1e-30]),
    "count": (pa.int64(), [7, None, 2**60, -1]),
    "yes": (pa.bool_(), [True, False, None, True]),
    "price": (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-3.00"), Decimal("0.01")]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2026, 1, 2, 3, 4, 5, 678, datetime.UTC), None, *[datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)] * 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_partition_values_are_read_from_the_log(name: str, tmp_path: Path) -> None:
    """Folder names have no types, and some characters are quoted in them."""
    kind, values = VALUES[name]
    table = tmp_path / "a=3" / "table"  # the names of parent folders are not columns
    for number, value in enumerate(values):
        row = pa.table({"x": [number], name: pa.array([value], kind)})
        write_deltalake(str(table), row, mode="append", partition_by=[name])
    listing = list_table(str(table))
    own = pa.schema({"x": pa.int64()})
    found = []
    for log in listing.logs:
        (constant,) = log.lacking(own)
        whole = with_partitions(own, (constant,))
        assert whole.names == ["x", name]
        assert whole.field(name).type == (pa.null() if constant.value is None else kind)
        layout = Layout("sparse", ("x",), partitions=(constant,))
        assert decode(Layout, json.loads(json.dumps(encode(layout)))) == layout
        found.append(pa.scalar(constant.value).cast(kind).as_py() if constant.value else None)
    assert found == values


# Changes since a catalog was made.


def test_an_append_removes_nothing(table: Path) -> None:
    known = list_table(str(table)).files
    append(table, 9)
    listing = list_table(str(table))
    change = change_of(listing, [*known, Path("/other/part.parquet")])
    assert (change.known, change.gone, change.removals) == (3, (), ())
    assert known + change.added == listing.files
    assert len(change.added) == 1
    assert str(change) == (f"Delta table '{table}', version 3: 1 file added to the 3 known, 0 of those removed")
    assert change_of(listing, listing.files).added == ()


def test_compaction_is_distinguished_from_deletion(table: Path) -> None:
    known = list_table(str(table)).files
    append(table, 9)
    DeltaTable(str(table)).optimize.compact()
    change = change_of(list_table(str(table)), known)
    assert set(change.gone) == set(known)
    (removal,) = change.removals
    assert str(removal) == "version 4, OPTIMIZE, removed 3 files: its rows are in other files"
    assert str(removal) in str(change)
    assert change.added == list_table(str(table)).files
    assert change.rewritten == (), "the file has the rows of the append, too"
    DeltaTable(str(table)).delete("x = 4")
    later = change_of(list_table(str(table)), change.added)
    assert str(later.removals[0]) == "version 5, DELETE, removed 1 file: rows were changed or deleted"


def test_each_version_that_removed_known_files_is_reported(table: Path) -> None:
    known = list_table(str(table)).files
    DeltaTable(str(table)).delete("x = 7")
    append(table, 20)
    DeltaTable(str(table)).delete("x = 20")  # in a file that is not in the catalog
    write_deltalake(str(table), pa.table({"x": [1], "label": [1.0]}), mode="overwrite")
    change = change_of(list_table(str(table)), known)
    assert [(found.version, found.operation, found.files) for found in change.removals] == [
        (3, "DELETE", 1),
        (6, "WRITE (Overwrite)", 2),
    ]
    assert len(change.gone) == 3
    assert not all(removal.keeps_rows for removal in change.removals)


def test_removals_that_the_log_no_longer_has_are_reported(table: Path) -> None:
    known = list_table(str(table)).files
    DeltaTable(str(table)).delete("x = 1")
    DeltaTable(str(table)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    append(table, 9)
    forget_old_versions(table)
    append(table, 12)
    change = change_of(list_table(str(table)), known)
    assert [str(removal) for removal in change.removals] == ["a version that the log no longer has removed 1 file"]
    assert not change.gone[0].exists()
