"""--where and labels that are expressions: a run on the selected rows is a run on a table that has only these rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.model.evaluation import evaluate
from streampgs.run.saved import saved_run
from tests.end_to_end.mixed_tables import mixed, write, write_shards

ROWS, GROUP_ROWS = 3_000, 250
SMALL: dict[str, Any] = {"memory": "60MB", "window": "200kB", "epochs": 2}
WHERE = "age > 35 and city != 'city 3' or income is null"
YES = "label = 'yes'"


def chosen(table: pa.Table, where: str = WHERE) -> np.ndarray[Any, Any]:
    """Which rows fulfil the condition, by DuckDB."""
    plain = table.select(["age", "city", "income"])
    numbered = plain.append_column("n", pa.array(np.arange(table.num_rows)))
    with duckdb.connect() as database:
        database.register("numbered", numbered)
        return np.sort(database.execute(f"SELECT n FROM numbered WHERE {where}").fetchnumpy()["n"])


def write_chosen(
    table: pa.Table,
    folder: Path,
    file_format: str = "parquet",
    where: str = WHERE,
    change: Callable[[pa.Table], pa.Table] = lambda group: group,
) -> Path:
    """The shards of `write_shards`, without the rows that the condition leaves out, group by group."""
    folder.mkdir(parents=True)
    compression = None if file_format in ("arrow", "parquet") else file_format
    for number, first in enumerate(range(0, ROWS, ROWS // 3)):
        groups = [table.slice(start, GROUP_ROWS) for start in range(first, first + ROWS // 3, GROUP_ROWS)]
        groups = [change(group.take(pa.array(chosen(group, where)))) for group in groups]
        schema, name = groups[0].schema, f"part-{number}.{'parquet' if file_format == 'parquet' else 'arrow'}"
        if file_format == "parquet":
            writer: Any = pq.ParquetWriter(folder / name, schema)
        else:
            options = pa.ipc.IpcWriteOptions(compression=compression)
            writer = pa.ipc.new_file(str(folder / name), schema, options=options)
        with writer:
            for group in groups:
                writer.write(group.combine_chunks())
    return folder


def trained(data: Any, run: Path, **options: Any) -> Any:
    return streampgs.train(data, run=run, **{**SMALL, **options})


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return mixed(ROWS)


@pytest.fixture(scope="module")
def shards(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(table, tmp_path_factory.mktemp("data") / "whole")


@pytest.fixture(scope="module")
def run(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the selected rows, without pauses."""
    run = tmp_path_factory.mktemp("runs") / "run"
    trained(shards, run, where=WHERE, label=YES, ignore="label")
    return run


# Rows.


@pytest.mark.parametrize("file_format", ["arrow", "zstd", "parquet"])
def test_the_model_is_that_of_a_table_without_the_other_rows(table: pa.Table, tmp_path: Path, file_format: str) -> None:
    whole = write_shards(table, tmp_path / "whole", file_format)
    part = write_chosen(table, tmp_path / "part", file_format)
    one = trained(whole, tmp_path / "one", where=WHERE)
    other = trained(part, tmp_path / "other")
    assert one.rows == other.rows == 2 * len(chosen(table))
    assert one.dual_sha256 == other.dual_sha256


def test_new_shards_are_selected_too(table: pa.Table, shards: Path, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "run"
    shutil.copytree(shards, data)
    trained(data, folder, where=WHERE)
    before = len(chosen(table))
    new = mixed(600, seed=9)
    write(new, data / "new.parquet", "parquet")
    write(new.filter(pc.less(new["age"], 30)), data / "none.parquet", "parquet")
    streampgs.resume(folder, epochs=3)
    catalog = saved_run(folder).catalog()
    assert catalog is not None
    assert catalog.rows == before + len(chosen(new))
    assert catalog.shards[-1].rows == 0
    assert catalog.left_out == ROWS - before + 600 - len(chosen(new)) + catalog.shards[-1].left_out


# Labels.


def test_a_label_that_is_an_expression_gives_the_model_of_its_values(table: pa.Table, tmp_path: Path) -> None:
    """The columns that the label is made of are not used as features."""

    def with_label(group: pa.Table) -> pa.Table:
        return group.set_column(group.schema.get_field_index("age"), "old", pc.greater(group["age"], 40))

    known = "age is not null"
    whole = write_shards(table, tmp_path / "whole")
    part = write_chosen(table, tmp_path / "part", where=known, change=with_label)
    one = trained(whole, tmp_path / "one", label="age > 40", where=known)
    assert one.dual_sha256 == trained(part, tmp_path / "other", label="old").dual_sha256


# Other commands.


def test_evaluate_selects_the_rows_of_the_run_or_those_of_its_own_condition(
    table: pa.Table, shards: Path, run: Path
) -> None:
    model = streampgs.Model.load(run)
    kept = len(chosen(table))
    assert evaluate(model, [str(shards)])["rows"] == kept
    assert evaluate(model, [str(shards)])["left_out"] == ROWS - kept
    assert evaluate(model, [str(shards)], where="true")["rows"] == ROWS
    assert evaluate(model, [str(shards)], where="city = 'city 3'", by="city")["rows"] == (
        pc.sum(pc.equal(table["city"].cast(pa.string()), "city 3")).as_py()
    )
    with pytest.raises(DataError, match=r"none of 3,000 rows of .* fulfils --where"):
        evaluate(model, [str(shards)], where="city = 'city 99'")
