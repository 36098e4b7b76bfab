"""New shards join a run: each row of old and new shards is trained on once an epoch, and old numbers stay."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import streampgs
from streampgs.inspection import inspect_run
from tests.end_to_end.conftest import ROWS, Tables

SHARD_ROWS = ROWS // 6
SMALL = {"memory": "60MB", "window": "200kB"}


def test_shards_that_come_in_the_middle_of_an_epoch_are_trained_on_once_in_it(tables: Tables, tmp_path: Path) -> None:
    source, data = tables.path("sparse", "parquet"), tmp_path / "table"
    shards = sorted(source.glob("*.parquet"))
    data.mkdir()
    for shard in shards[:4]:
        shutil.copy(shard, data)
    run = tmp_path / "run"
    report = streampgs.train(data, run=run, rows=SHARD_ROWS, **SMALL)
    shutil.copy(shards[4], data)
    report = streampgs.resume(run, rows=3 * SHARD_ROWS)
    shutil.copy(shards[5], data)
    report = streampgs.resume(run, epochs=1)
    assert report.rows == 6 * SHARD_ROWS
    report = streampgs.resume(run, epochs=2)
    assert report.rows == 12 * SHARD_ROWS
    paths = [arrival["shards"] for arrival in inspect_run(run)["arrivals"]]
    assert paths == [4, 5, 6]


def test_the_same_arrivals_give_the_same_bits_whatever_pauses_come_between(tables: Tables, tmp_path: Path) -> None:
    shards = sorted(tables.path("dense", "arrow").glob("*.arrow"))
    chance = random.Random(5)
    digests = set()
    for attempt in range(3):
        data, run = tmp_path / f"table-{attempt}", tmp_path / f"run-{attempt}"
        data.mkdir()
        for shard in shards[:3]:
            shutil.copy(shard, data / shard.name)
        streampgs.train(data, run=run, rows=700, **SMALL)
        for arrival, shard in zip((1_500, 2_600, 4_000), shards[3:], strict=True):
            for _ in range(attempt):
                streampgs.resume(run, rows=chance.randrange(1, arrival), checkpoint_seconds=1e-6)
            streampgs.resume(run, rows=arrival)
            shutil.copy(shard, data / shard.name)
        digests.add(streampgs.resume(run, epochs=3).dual_sha256)
    assert len(digests) == 1


def edit_in_place(shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))


def shorten(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-100])


def remove(shard: Path) -> None:
    shard.unlink()


def replace_by_another(shard: Path) -> None:
    shutil.copy(shard.with_name("part-00002.arrow"), shard)


@pytest.mark.parametrize("change", [edit_in_place, shorten, remove, replace_by_another])
def test_a_resume_refuses_changed_shards_and_names_them(change: object, tables: Tables, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    shutil.copytree(tables.path("sparse", "arrow"), data)
    streampgs.train(data, run=run, rows=100, **SMALL)
    assert callable(change)
    change(data / "part-00001.arrow")
    with pytest.raises(streampgs.StreampgsError, match=r"part-00001\.arrow") as refused:
        streampgs.resume(run, rows=200)
    assert "part-00002" not in str(refused.value)


def test_touched_shards_are_refused_until_accepted(tables: Tables, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    shutil.copytree(tables.path("sparse", "arrow"), data)
    streampgs.train(data, run=run, rows=100, **SMALL)
    (data / "part-00001.arrow").touch()
    with pytest.raises(streampgs.StreampgsError, match="--accept-touched"):
        streampgs.resume(run, rows=200)
    assert streampgs.resume(run, rows=200, accept_touched=True).rows == 200


def test_new_features_join_with_new_shards(tables: Tables, tmp_path: Path) -> None:
    import pyarrow as pa

    data, run = tmp_path / "table", tmp_path / "run"
    shutil.copytree(tables.path("sparse", "arrow"), data)
    streampgs.train(data, run=run, epochs=1, **SMALL)
    before = streampgs.Model.load(run).coef_
    table = pa.table({"label": [1, -1] * 50, "indices": [[7, 60_000]] * 100, "values": [[0.5, 1.0]] * 100})
    with pa.ipc.new_file(str(data / "part-9.arrow"), table.schema) as writer:
        writer.write_table(table)
    streampgs.resume(run, epochs=2)
    after = streampgs.Model.load(run).coef_
    assert after.size == 60_001 > before.size
