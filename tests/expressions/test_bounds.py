"""In every row group, rows have only values that the statistics of the Parquet file allow, also in files of other writers."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.encoding import types
from streampgs.expressions.bounds import Outcomes, outcomes
from streampgs.expressions.expression import condition
from streampgs.formats.registry import open_shard

from .test_as_duckdb import CHECKED, TABLE

_GROUP_ROWS = 4


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Some groups are sorted, so that statistics decide something; some are as they come."""
    folder = tmp_path_factory.mktemp("files")
    tables = [TABLE.sort_by(name) for name in ("whole", "part", "name", "seen", "flag")]
    table = pa.concat_tables([TABLE, *tables], promote_options="permissive").unify_dictionaries()
    pq.write_table(table, folder / "pyarrow.parquet", row_group_size=_GROUP_ROWS)
    pl.from_arrow(table).write_parquet(folder / "polars.parquet", row_group_size=_GROUP_ROWS)
    with duckdb.connect() as database:
        database.register("rows", table)
        for number in range(0, table.num_rows, 60):
            path = folder / f"duckdb-{number}.parquet"
            database.execute(f"COPY (SELECT * FROM rows LIMIT 60 OFFSET {number}) TO '{path}'")
    return {path.stem: path for path in folder.iterdir()}


def _found(path: Path, text: str) -> list[tuple[Outcomes, set[bool | None]]]:
    """For each group: what its statistics allow, and what its rows have."""
    expression, found = condition(text), []
    with open_shard(path) as shard, pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            columns = {name: types.plain(rows.column(name)) for name in rows.column_names}
            possible = outcomes(
                expression, dict(types.leaves_of(shard.schema)), shard.bounds(group, expression.columns)
            )
            values = expression.values(columns, rows.num_rows).cast(pa.bool_()).to_pylist()
            found.append((possible, set(values)))
    return found


@pytest.mark.parametrize("text", CHECKED)
def test_every_row_has_a_value_that_the_statistics_allow(files: dict[str, Path], text: str) -> None:
    names = {True: Outcomes.TRUE, False: Outcomes.FALSE, None: Outcomes.NULL}
    for name, path in files.items():
        for possible, values in _found(path, text):
            assert all(names[value] in possible for value in values), name


@pytest.mark.parametrize(
    "text",
    ["whole > 15", "whole = 2024", "whole in (15, 16)", "seen >= '2024-01-01'", "name < 'a'", "not whole < 1", "flag"],
)
def test_statistics_decide_simple_conditions(files: dict[str, Path], text: str) -> None:
    """Of sorted rows, in many groups."""
    for name in ("pyarrow", "polars"):
        decided = [possible for possible, _ in _found(files[name], text) if possible in (Outcomes.TRUE, Outcomes.FALSE)]
        assert Outcomes.TRUE in decided
        assert Outcomes.FALSE in decided
