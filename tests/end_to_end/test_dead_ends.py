"""A failed command can be repeated, and mistakes are always reported."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.run.report import Observer
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.conftest import ROWS, Tables

SMALL = {"memory": "60MB", "window": "500kB"}


def test_training_that_failed_before_its_first_row_can_be_repeated(tables: Tables, tmp_path: Path) -> None:
    data = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"label": [2, 2], "indices": [[1], [2]]}), data)
    assert command("train", data, "--run", tmp_path / "run").code == 1
    assert command("train", data, "--run", tmp_path / "run", "--positive", 2).code == 0
    assert command("train", data, "--run", tmp_path / "run", "--positive", 2).code == 1


def test_impossible_options_leave_no_run(tables: Tables, tmp_path: Path) -> None:
    words = ["train", tables.path("sparse", "parquet"), "--run", tmp_path / "run", "--memory", "60MB"]
    assert command(*words, "--no-cache", "--window", "100kB").code == 2
    assert command(*words).code == 0


def test_a_folder_with_other_files_is_refused(tables: Tables, tmp_path: Path) -> None:
    data = tmp_path / "table"
    shutil.copytree(tables.path("sparse", "arrow"), data)
    done = command("train", data, "--run", data)
    assert done.code == 1
    assert "other files" in done.err
    assert not (data / "run.arrows").exists()


class ReplaceShard(Observer):
    """Replaces a shard in use by one with the same shape and footer and with other labels."""

    def __init__(self, shard: Path) -> None:
        self.shard = shard

    def choices(self, choices: dict[str, str]) -> None:
        is_arrow = self.shard.suffix == ".arrow"
        table = pa.ipc.open_file(str(self.shard)).read_all() if is_arrow else pq.read_table(self.shard)
        flipped = table.set_column(0, table.schema.field(0), pa.array(-table["label"].to_numpy(), table["label"].type))
        other = self.shard.with_name(".other")
        if is_arrow:
            with pa.ipc.new_file(str(other), flipped.schema) as writer:
                writer.write_table(flipped)
        else:
            pq.write_table(flipped, other)
        os.replace(other, self.shard)


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
def test_a_shard_replaced_while_in_use_is_refused(
    file_format: str, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streampgs.reading.reused as open_files

    monkeypatch.setattr(open_files, "_OPEN_FILES", 1)
    data = tmp_path / "table"
    shutil.copytree(tables.path("sparse", file_format), data)
    observer = ReplaceShard(data / f"part-00003.{file_format}")
    with pytest.raises(streampgs.StreampgsError, match=r"was replaced|bytes and not"):
        streampgs.train(
            data, run=tmp_path / "run", epochs=9, no_cache=True, observer=observer, memory="60MB", window="1MB"
        )


def test_one_epoch_counts_every_row(tables: Tables, tmp_path: Path) -> None:
    report = streampgs.train(tables.path("dense", "parquet"), run=tmp_path / "run", epochs=1, **SMALL)
    assert report.rows == ROWS
