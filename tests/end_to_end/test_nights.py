"""Nights that go wrong, and what the user does about them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import streampgs
from streampgs.errors import OptionError
from tests.end_to_end.conftest import ROWS, Tables

SHARD_ROWS = ROWS // 6
SMALL = {"memory": "60MB", "window": "200kB"}


@pytest.fixture
def table(tables: Tables, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A folder with four shards, and two shards that are not in it."""
    data, shards = tmp_path / "table", sorted(tables.path("sparse", "arrow").glob("*.arrow"))
    data.mkdir()
    for shard in shards[:4]:
        shutil.copy(shard, data)
    return data, shards[4:]


# Limits that count from where the run is.


def test_more_epochs_count_from_the_epochs_that_are_done(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, rows = table[0], 4 * SHARD_ROWS
    whole = streampgs.train(data, run=tmp_path / "whole", epochs=4, sigma=1e-5, **SMALL)
    run = tmp_path / "run"
    streampgs.train(data, run=run, epochs=1, sigma=1e-5, **SMALL)
    assert streampgs.resume(run, epochs="+1").rows == 2 * rows
    streampgs.resume(run, rows="+100")  # an epoch that has begun is completed first
    assert streampgs.resume(run, epochs="+1").rows == 4 * rows
    assert streampgs.resume(run).dual_sha256 == whole.dual_sha256
    assert streampgs.history(run)[-1]["limits"] == {"epochs": 4}


def test_more_rows_and_seconds_count_from_the_newest_checkpoint(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, rows=300, sigma=1e-5, **SMALL)
    assert streampgs.resume(run, rows="+70").rows == 370
    report = streampgs.resume(run, seconds="+0.05s", epochs=10_000)
    assert report.stopped_by == "seconds"
    again = streampgs.resume(run, seconds="+0.05s")
    assert again.rows_this_call > 0


@pytest.mark.parametrize("limit", ["+0", "+-1", "++1", "+", "+x"])
def test_a_limit_that_adds_nothing_is_refused(limit: str, table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, rows=300, sigma=1e-5, **SMALL)
    for name in ("epochs", "rows", "seconds"):
        with pytest.raises(OptionError, match=name):
            streampgs.resume(run, **{name: limit})
