"""--where and labels that are expressions: a run on the selected rows is a run on a table that has only these rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError, StreampgsError
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run
from streampgs.model.prediction import predict
from streampgs.run.saved import saved_run
from tests.end_to_end.commands import streampgs as command
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


def test_neither_memory_nor_cache_change_the_bits(shards: Path, tmp_path: Path) -> None:
    found = {
        trained(shards, tmp_path / str(number), where=WHERE, **more).dual_sha256
        for number, more in enumerate([{}, {"memory": "90MB"}, {"cache": tmp_path / "cache"}])
    }
    assert len(found) == 1


def test_rows_of_features_can_be_selected(tmp_path: Path) -> None:
    """Uncompressed Arrow files are otherwise read in place."""
    chance = np.random.default_rng(0)
    lists = [np.sort(chance.choice(50, 5, replace=False)) for _ in range(2_000)]
    rating = np.where([row[0] < 7 for row in lists], 5.0, 1.0) + chance.integers(0, 2, len(lists)) * 0.5
    table = pa.table({"rating": rating, "indices": pa.array(lists, pa.list_(pa.int32()))})
    kept = pa.array(np.flatnonzero(rating != 1.5))
    bare = table.set_column(0, "label", pa.array(rating > 3)).take(kept)
    write(table, tmp_path / "whole" / "rows.arrow", "arrow", group_rows=5_000)
    write(bare, tmp_path / "part" / "rows.arrow", "zstd", group_rows=5_000)
    one = trained(tmp_path / "whole", tmp_path / "one", where="rating != 1.5", label="rating > 3")
    other = trained(tmp_path / "part", tmp_path / "other")
    assert one.rows == other.rows == 2 * len(kept)
    assert one.dual_sha256 == other.dual_sha256


def test_pauses_change_nothing(shards: Path, run: Path, tmp_path: Path) -> None:
    chance, folder = random.Random(4), tmp_path / "paused"
    expected = inspect_run(run)["dual_sha256"]
    total = saved_run(run).meter.rows
    stops = sorted(chance.sample(range(1, total), 3))
    trained(shards, folder, where=WHERE, label=YES, ignore="label", rows=stops[0])
    for stop in stops[1:]:
        streampgs.resume(folder, rows=stop)
    assert streampgs.resume(folder, epochs=2).dual_sha256 == expected


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


def test_validation_rows_are_selected(table: pa.Table, shards: Path, tmp_path: Path) -> None:
    part = write_chosen(mixed(ROWS, seed=5), tmp_path / "part", "parquet")
    whole = write_shards(mixed(ROWS, seed=5), tmp_path / "whole")
    losses = [
        trained(shards, tmp_path / str(number), where=where, validation=str(rows)).judged_loss
        for number, (rows, where) in enumerate([(whole, WHERE), (part, WHERE)])
    ]
    assert losses[0] == losses[1]


def test_bad_rows_are_named_by_their_place_in_the_file(table: pa.Table, tmp_path: Path) -> None:
    labels = table["label"].to_pylist()
    bad = int(chosen(table)[700])
    labels[bad] = None
    labels[int(np.setdiff1d(np.arange(ROWS), chosen(table))[100])] = None  # it is not selected
    broken = table.set_column(0, "label", pa.array(labels))
    write(broken, tmp_path / "data" / "rows.parquet", "parquet", group_rows=ROWS)
    with pytest.raises(DataError, match=rf"row {bad} \(row {bad} of the file\): no label\n"):
        trained(tmp_path / "data", tmp_path / "run", where=WHERE)


def test_a_column_of_a_folder_name_selects_shards(table: pa.Table, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write(table.slice(0, 500 * day), tmp_path / "data" / f"day={day}" / "rows.parquet", "parquet")
    trained(tmp_path / "data", tmp_path / "run", where="day >= 2 and day < 3")
    catalog = saved_run(tmp_path / "run").catalog()
    assert catalog is not None
    assert [shard.rows for shard in catalog.shards] == [0, 1000, 0]


@pytest.mark.parametrize("writer", ["pandas", "polars", "polars-arrow", "duckdb"])
def test_files_of_other_tools(table: pa.Table, tmp_path: Path, writer: str) -> None:
    """Their strings are views or dictionaries, also inside of lists; pyarrow cannot filter all of them."""
    plain = table.set_column(3, "city", table["city"].cast(pa.string()))
    data = tmp_path / "data"
    data.mkdir()
    if writer == "pandas":
        frame = plain.drop_columns(["scores"]).to_pandas()
        frame["city"] = pd.Categorical(frame["city"])
        frame.to_parquet(data / "rows.parquet", row_group_size=GROUP_ROWS)
    elif writer == "duckdb":
        with duckdb.connect() as database:
            database.register("plain", plain)
            database.execute(f"COPY plain TO '{data / 'rows.parquet'}' (ROW_GROUP_SIZE 2048)")
    else:
        frame = pl.from_arrow(plain).with_columns(pl.col("city").cast(pl.Categorical))
        if writer == "polars":
            frame.write_parquet(data / "rows.parquet", row_group_size=GROUP_ROWS)
        else:
            frame.write_ipc(data / "rows.arrow", compression="zstd")
    report = trained(data, tmp_path / "run", where=WHERE, label=YES, ignore="label", text="text")
    assert report.rows == 2 * len(chosen(table))


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


def test_a_number_is_predicted_as_a_number(shards: Path, tmp_path: Path) -> None:
    trained(shards, tmp_path / "run", label="income / 1e6 + 1", loss="squared")
    result = evaluate(streampgs.Model.load(tmp_path / "run"), [str(shards)])
    assert result["rows"] == ROWS


def test_a_column_may_be_called_like_an_expression(table: pa.Table, tmp_path: Path) -> None:
    named = table.rename_columns(["age > 40" if name == "label" else name for name in table.schema.names])
    trained(write_shards(named, tmp_path / "data"), tmp_path / "run", label="age > 40")
    assert saved_run(tmp_path / "run").record.options.label_expressions == ()


def test_a_label_that_is_null_is_a_bad_row(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'no label .*\n  → leave out rows without one by where="age is not null"'):
        trained(shards, tmp_path / "run", label="age > 40")


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


def test_predict_writes_all_rows_or_the_selected_ones(table: pa.Table, shards: Path, run: Path, tmp_path: Path) -> None:
    model = streampgs.Model.load(run)
    for name, where in (("all", None), ("some", WHERE)):
        predict(model, [str(shards)], tmp_path / f"{name}.parquet", keep=["age"], where=where)
    every, some = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("all", "some"))
    assert every.num_rows == ROWS
    assert some.equals(every.take(pa.array(chosen(table))))


def test_the_command_line_names_and_counts_what_is_left_out(table: pa.Table, shards: Path, tmp_path: Path) -> None:
    kept = len(chosen(table))
    data = command("inspect", shards, "--where", WHERE, "--label", YES)
    assert f"{ROWS - kept:,} rows left out by --where" in data.out
    done = command("train", shards, "--run", tmp_path / "run", "--where", WHERE, "--label", YES, "--epochs", 1)
    assert f"{kept:,} rows ({ROWS - kept:,} rows left out by --where)" in done.err
    assert "note: the label is label = 'yes': not used as features: 'label'" in done.err
    measured = command("evaluate", tmp_path / "run", shards)
    assert f'{ROWS - kept:,} rows left out by --where "{WHERE}" of the run; --where true takes all rows' in measured.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "aeg > 3"}, r"where=\"aeg > 3\": unknown column 'aeg', at character 1\n  → did you mean 'age'\?"),
        ({"label": "aeg > 3"}, r"label=\"aeg > 3\": unknown column 'aeg'"),
        ({"where": "age"}, r"where=\"age\" is a number, not a condition"),
        ({"where": "age > 1000"}, r"none of 3,000 rows of .* fulfils where=\"age > 1000\""),
        ({"where": "age = 'x'"}, r"a number is compared with a string, at character 5"),
        ({"where": "tags = 'x'"}, r"column 'tags' is of type list<.*string.*>"),
        ({"label": "joined"}, r"label column 'joined' is of type timestamp"),
        ({"label": "coalesce(joined, joined)"}, r"is a timestamp, which cannot be predicted"),
        ({"label": "my label"}, r"no label column 'my label'; as an expression, .*'label' was not expected"),
        ({"label": "1 + 1"}, r"label=\"1 \+ 1\" names no column"),
        ({"where": "age * 4611686018427387904 > 0"}, r"'\*' cannot be computed, at character 5: overflow"),
    ],
    ids=str,
)
def test_an_expression_that_does_not_fit_is_refused(
    shards: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StreampgsError, match=message):
        trained(shards, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_shard_without_a_column_of_the_condition_is_refused(table: pa.Table, shards: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(shards, data)
    trained(data, tmp_path / "run", where=WHERE)
    write(table.drop_columns(["income"]), data / "part-9.parquet", "parquet")
    with pytest.raises(DataError, match=r"part-9.parquet': where=.*: unknown column 'income'"):
        streampgs.resume(tmp_path / "run", epochs=3)
