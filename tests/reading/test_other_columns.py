"""Columns that are read besides the features: the same values as pyarrow reads, in the order of the files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.reading.other_columns import ALL, OtherColumns
from streampgs.table.catalog import Catalog, survey

ROWS = 230
COLUMNS: dict[str, Any] = {
    "integers": pa.array(range(ROWS), pa.int16()),
    "nulls": pa.nulls(ROWS),
    "booleans": pa.array([None if r % 5 == 0 else r % 2 == 0 for r in range(ROWS)]),
    "decimals": pa.array([f"{r}.25" for r in range(ROWS)]).cast(pa.decimal128(9, 2)),
    "dates": pa.array(range(ROWS), pa.int32()).cast(pa.date32()),
    "times": pa.array(range(ROWS), pa.int64()).cast(pa.timestamp("us", "UTC")),
    "strings": pa.array([None if r % 7 == 0 else f"é{r}" for r in range(ROWS)]),
    "binary": pa.array([bytes([r % 256]) for r in range(ROWS)]),
    "dictionary": pa.array([f"d{r % 3}" for r in range(ROWS)]).dictionary_encode(),
    "lists": pa.array([[r] * (r % 4) for r in range(ROWS)]),
    "struct": pa.array([{"a": r, "b": {"c": str(r)}} for r in range(ROWS)]),
    "map": pa.array([[(str(r), r)] for r in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "a.dotted name": pa.array(np.arange(ROWS) / 3),
}
TABLE = pa.table(COLUMNS)


def write(table: pa.Table, path: Path, **options: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=options.get("rows", 70))
    else:
        with pa.ipc.new_file(
            path, table.schema, options=pa.ipc.IpcWriteOptions(compression=options.get("codec"))
        ) as out:
            out.write_table(table, max_chunksize=options.get("rows", 70))
    return path


def read(paths: list[Path], names: tuple[str, ...], portions: list[int] | None = None) -> pa.Table:
    surveyed = survey(paths, None, {})
    catalog = Catalog([one.shard for one in surveyed])
    columns = OtherColumns.find(surveyed, names, None)
    taker = columns.rows(catalog, None)
    parts = [part for rows in portions or [catalog.rows] for part in taker.take(rows)]
    return pa.Table.from_batches(parts, columns.schema)


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.parquet", {}), ("a.arrow", {}), ("a.arrow", {"codec": "zstd"}), ("a.parquet", {"rows": 1_000})],
    ids=["parquet", "arrow", "compressed arrow", "one group"],
)
@pytest.mark.parametrize("column", [*COLUMNS, "all"])
def test_all_types_are_read_as_they_are(tmp_path: Path, name: str, options: dict[str, Any], column: str) -> None:
    path = write(TABLE, tmp_path / name, **options)
    found = read([path], (column,))
    names = TABLE.column_names if (column,) == ALL else [column]
    assert found.column_names == names
    for one in names:
        assert found[one].to_pylist() == TABLE[one].to_pylist()
        assert not pa.types.is_dictionary(found.schema.field(one).type)


@given(st.data())
def test_any_portions_give_the_same_rows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("portions")
    names = ("integers", "strings")
    sizes = data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=4).filter(sum))
    ends = np.cumsum([0, *sizes])
    ends = np.minimum(ends, ROWS)
    paths = [
        write(TABLE.select(names)[first:stop], folder / f"{number}.parquet", rows=data.draw(st.integers(1, 50)))
        for number, (first, stop) in enumerate(pairwise(ends))
    ]
    rows, portions = int(ends[-1]), []
    while rows:
        portions.append(data.draw(st.integers(0, rows)))
        rows -= portions[-1]
    assert read(paths, names, portions).to_pydict() == TABLE.select(names)[: int(ends[-1])].to_pydict()


def test_types_of_several_shards_are_unified_and_missing_columns_are_null(tmp_path: Path) -> None:
    tables = [
        pa.table({"x": pa.array([1, 2], pa.int8()), "y": ["a", "b"]}),
        pa.table({"y": pa.array(["c"]).dictionary_encode(), "x": pa.array([3.5])}),
        pa.table({"x": pa.nulls(2), "z": [True, False]}),
    ]
    paths = [write(table, tmp_path / f"{number}.parquet") for number, table in enumerate(tables)]
    found = read(paths, ALL)
    assert found.to_pydict() == {
        "x": [1.0, 2.0, 3.5, None, None],
        "y": ["a", "b", "c", None, None],
        "z": [None, None, None, True, False],
    }


def test_unknown_columns_and_types_that_differ_are_refused(tmp_path: Path) -> None:
    paths = [
        write(pa.table({"x": [1]}), tmp_path / "a.parquet"),
        write(pa.table({"x": ["one"]}), tmp_path / "b.parquet"),
    ]
    with pytest.raises(DataError, match="no column 'y' in the table") as refused:
        read(paths, ("y",))
    assert refused.value.remedy == "its columns are x"
    with pytest.raises(DataError, match="column 'x' is of type int64 in shard"):
        read(paths, ("x",))
