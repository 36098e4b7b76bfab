"""The command line as a part of shell scripts: what goes to which stream, and what its JSON and exit codes say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.commands import streampgs
from tests.end_to_end.conftest import Tables


@pytest.fixture(scope="module")
def run(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert streampgs("train", tables.path("sparse", "arrow"), "--run", run, "--epochs", 1, "--quiet").code == 0
    return run


def test_results_go_to_standard_output_alone(run: Path, tables: Tables) -> None:
    for words in (["inspect", run], ["inspect", tables.path("sparse", "arrow")], ["history", run]):
        text, record = streampgs(*words), streampgs(*words, "--json")
        assert (text.code, text.err, record.code, record.err) == (0, "", 0, "")
        assert text.out.count("\n") >= 3
        json.loads(record.out)


def test_a_reader_that_stops_reading_is_not_a_traceback(run: Path) -> None:
    command = [sys.executable, "-m", "streampgs", "inspect", str(run), "--top", "500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is written
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


@pytest.fixture
def night(tables: Tables, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of five shards with a finished run on them; a sixth shard is put aside."""
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(tables.path("sparse", "parquet"), data)
    (data / "part-00005.parquet").rename(tmp_path / "new.parquet")
    (data / "notes.txt").write_text("by hand")
    first = streampgs("train", data, "--run", run, "--epochs", 2, "--json")
    assert first.code == 0, first.err
    assert (first.json["outcome"], first.json["rows_this_call"]) == ("trained", 10_000)
    assert (first.json["new_shards"], first.json["new_rows"]) == ([], 0)
    assert list(first.json["ignored_files"]) == [str(data / "notes.txt")]
    return data, run


def test_a_night_without_new_rows(night: tuple[Path, Path]) -> None:
    _, run = night
    done = streampgs("resume", run, "--json")
    assert done.code == 0
    told = {
        name: done.json[name] for name in ("outcome", "rows_this_call", "new_shards", "new_rows", "incomplete_files")
    }
    assert told == {
        "outcome": "nothing new",
        "rows_this_call": 0,
        "new_shards": [],
        "new_rows": 0,
        "incomplete_files": [],
    }
    (note,) = done.json["notes"]
    assert note == (
        f"no new rows, and 2 epochs done; to train longer on the same rows: streampgs resume {run} --epochs +1"
    )
    assert note in done.err


def test_a_night_with_new_rows(night: tuple[Path, Path]) -> None:
    data, run = night
    shard = data / "part-00005.parquet"
    shutil.copy(data.parent / "new.parquet", shard)
    pq.write_table(pq.read_table(shard).slice(0, 0), data / "part-00006.parquet")
    shutil.copy(shard, data / "part-00007.parquet")
    done = streampgs("resume", run, "--json")
    assert (done.code, done.json["outcome"]) == (0, "trained")
    assert 3 * 1_000 <= done.json["rows_this_call"] <= 10 * 1_000
    assert done.json["new_shards"] == [str(shard), str(data / "part-00006.parquet")]
    assert done.json["new_rows"] == 1_000
    assert "a copy of" in done.json["ignored_files"][str(data / "part-00007.parquet")]
    assert any("2 new shards with 1,000 rows, trained on 3 times in an update" in n for n in done.json["notes"])
    pq.write_table(pq.read_table(shard).slice(0, 0), data / "part-00008.parquet", compression="gzip")
    again = streampgs("resume", run, "--json")
    assert (again.json["outcome"], again.json["new_rows"]) == ("nothing new", 0)
    assert "1 new shard without rows" in again.json["notes"]
    history = streampgs("history", run).out
    assert "None" not in history
    assert "2 shards with 1,000 rows joined" in history
