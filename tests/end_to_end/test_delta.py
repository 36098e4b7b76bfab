"""Delta tables from log to prediction: the same model as from plain files, and growth by versions."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict
from streampgs.table.locate import locate

ROWS = 600
SMALL: dict[str, Any] = {"memory": "60MB", "window": "300kB", "sigma": 1e-4}

DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 2, 3), None, datetime.date(2026, 1, 1)]
PLACES = ["a b/%é=", "17", "18", None]
RATES = [1.0, None, 2.5, 4.0]
PARTITIONS = {"day": pa.date32(), "place": pa.string(), "rate": pa.float64()}


def rows(seed: int, count: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 2))
    labels = (x[:, 0] - x[:, 1] + random.normal(size=count) > 0).astype(np.int8)
    words = pa.array(np.array(["red", "green", "blue"])[random.integers(0, 3, count)])
    return pa.table({"x0": x[:, 0], "x1": x[:, 1], "word": words, "label": labels})


def with_constants(table: pa.Table, number: int) -> pa.Table:
    for (name, kind), values in zip(PARTITIONS.items(), (DAYS, PLACES, RATES), strict=True):
        table = table.append_column(name, pa.repeat(pa.scalar(values[number], kind), len(table)))
    return table


def in_files(table: Path, folder: Path) -> Path:
    """The files that the table counts, under names that keep their order, away from its log."""
    folder.mkdir(exist_ok=True)
    for number, path in enumerate(locate([str(table)]).paths):
        shutil.copy2(path, folder / f"part-{number:03}.parquet")
    return folder


def trained(data: Path, run: Path, **options: Any) -> str:
    return str(streampgs.train(data, run=run, **{"epochs": 2, **SMALL, **options}).dual_sha256)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for seed in range(3):
        write_deltalake(str(tmp_path / "table"), rows(seed), mode="append")
    return tmp_path / "table"


def test_a_table_gives_the_same_model_as_its_files(table: Path, tmp_path: Path) -> None:
    (table / "left-behind.parquet").write_bytes(b"PAR1")
    assert trained(table, tmp_path / "run") == trained(in_files(table, tmp_path / "files"), tmp_path / "other")


def test_partition_columns_are_columns_of_the_logs_types(tmp_path: Path) -> None:
    """As if each file held them: dates and doubles, null, strings that look like numbers, and what names must quote."""
    table, files = tmp_path / "year=1999" / "table", tmp_path / "files"
    files.mkdir()
    for number in range(4):
        whole = with_constants(rows(number), number)
        write_deltalake(str(table), whole, mode="append", partition_by=list(PARTITIONS))
        pq.write_table(whole, files / f"part-{number}.parquet")
    assert trained(table, tmp_path / "run") == trained(files, tmp_path / "other")
    model = streampgs.Model.load(tmp_path / "run")
    assert model.encoding is not None
    kinds = {column.name: column.kind for column in model.encoding.columns}
    assert kinds == {
        **{"x0": "number", "x1": "number", "word": "category"},
        **{"day": "number", "place": "category", "rate": "number"},
    }
    assert evaluate(model, [str(table)]) == evaluate(model, [str(files)])
    for where in ("day is null", "place = '17' or rate > 3", "x0 > 0"):
        some = evaluate(model, [str(table)], where=where)
        assert some == evaluate(model, [str(files)], where=where)
        assert 0 < some["left_out"] < 4 * ROWS
    for column in ("day", "rate", "place"):
        by_log, by_file = (evaluate(model, [str(data)], by=column)["by"] for data in (table, files))
        assert len(by_log["groups"]) > 1
        assert sorted(by_log["groups"], key=str) == sorted(by_file["groups"], key=str)
    predict(model, [str(table)], tmp_path / "kept.parquet", keep=("all",))
    kept, own = pq.read_table(tmp_path / "kept.parquet"), DeltaTable(str(table)).to_pyarrow_table()
    assert set(own.schema.names) < set(kept.schema.names)
    alike = kept.select(own.schema.names).cast(own.schema)
    order = [(name, "ascending") for name in own.schema.names]
    assert alike.sort_by(order).equals(own.sort_by(order))


def test_columns_of_a_new_version_are_learned_at_a_resume_with_any_pauses(tmp_path: Path) -> None:
    """Old files lack them, and so may new ones that an old writer appends."""
    digests = set()
    for paused in (False, True):
        table, run = tmp_path / f"table-{paused}", tmp_path / f"run-{paused}"
        write_deltalake(str(table), rows(0))
        streampgs.train(table, run=run, rows=400, **SMALL)
        more = rows(1).append_column("height", pa.array(np.linspace(0, 1, ROWS)))
        more = more.append_column("s", pa.array([{"a": f"name {number % 3}"} for number in range(ROWS)]))
        write_deltalake(str(table), more, mode="append", schema_mode="merge")
        write_deltalake(str(table), rows(2), mode="append", schema_mode="merge")
        for end in (500, 700, 1_300) if paused else ():
            streampgs.resume(run, rows=end)
            shutil.rmtree(run / "cache", ignore_errors=True)
        digests.add(streampgs.resume(run, epochs=3).dual_sha256)
        encoding = streampgs.Model.load(run).encoding
        assert encoding is not None
        assert [column.name for column in encoding.columns] == ["height", "s.a"]
        assert evaluate(streampgs.Model.load(run), [str(table)])["rows"] == 3 * ROWS
    assert len(digests) == 1


def test_a_compacted_table_has_no_new_rows(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table, run=run, epochs=2, passes=1, replay=0.0, **SMALL)
    before = streampgs.resume(run)
    DeltaTable(str(table)).optimize.compact()
    report = streampgs.resume(run)
    assert (report.rows_this_call, report.dual_sha256, report.found.new_shards) == (0, before.dual_sha256, [])
    assert any("the rows of 3 shards are in 1 other shard now" in note for note in report.notes)
    assert streampgs.resume(run).rows_this_call == 0
    write_deltalake(str(table), rows(3), mode="append")
    assert streampgs.resume(run).rows_this_call == ROWS
    DeltaTable(str(table)).optimize.compact()
    assert streampgs.resume(run, epochs=3).rows_this_call == 4 * ROWS
    write_deltalake(str(table), rows(4), mode="append")
    DeltaTable(str(table)).optimize.compact()  # new rows are in the same file
    with pytest.raises(streampgs.StreampgsError, match="its rows are in other files"):
        streampgs.resume(run)
    assert streampgs.resume(run, accept_changes=True).rows_this_call == 5 * ROWS
