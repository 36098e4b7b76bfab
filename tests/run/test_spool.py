"""The spool of a stream: no row is lost, the disk is bounded, and what stays is a uniform sample that the seed decides."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import ArrayLike

from streampgs.formats.format import Fingerprint
from streampgs.run import spool
from streampgs.run.report import StopRequest
from streampgs.run.spool import Spooler, leaving, rows_in_spool, shards_in
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import DENSE, Layout
from tests.end_to_end.streaming import calls_until, standard_input, written

SHARDS, LIMIT = 12, 80


def catalog_of(shards: int = SHARDS) -> Catalog:
    """Three quarters of the limit hold six of these shards."""
    layout = Layout(DENSE, ("label", "features"))
    return Catalog(
        [Shard(Path(f"{n}"), "arrow", Fingerprint(10, 0, ""), layout, False, False, (1,), (1,)) for n in range(shards)]
    )


def test_shards_that_leave_a_full_spool_are_a_uniform_sample(assert_uniform: Callable[[ArrayLike], None]) -> None:
    counts = np.zeros(SHARDS)
    for seed in range(500):
        gone = leaving(catalog_of(), (), seed, LIMIT)
        assert len(gone) == 6, "as few as make room"
        counts[gone] += 1
    assert_uniform(counts)


def test_the_seed_decides_which_shards_stay_and_not_when_others_left() -> None:
    found = [leaving(catalog_of(), (), seed, LIMIT) for seed in range(20)]
    assert len(set(map(tuple, found))) > 10
    for seed, at_once in enumerate(found):
        assert leaving(catalog_of(), (), seed, LIMIT) == at_once
        one_by_one: set[int] = set()
        for shards in range(1, SHARDS + 1):
            one_by_one.update(leaving(catalog_of(shards), one_by_one, seed, LIMIT))
        assert sorted(one_by_one) == at_once


def test_nothing_leaves_a_spool_with_room() -> None:
    assert leaving(catalog_of(6), (), 0, LIMIT) == []


def stream(rows: int) -> pa.Table:
    return pa.table({"label": np.arange(rows) % 2, "x": np.random.default_rng(0).normal(size=rows)})


def rows_of(path: Path) -> pa.Table:
    with pa.ipc.open_file(str(path)) as file:
        return file.read_all()


def test_a_full_spool_makes_the_producer_wait_and_gives_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_BATCH_BYTES", 2_000)
    table, limit = stream(20_000), 16 * 8_000

    def used() -> int:
        return sum(path.stat().st_size for path in shards_in(tmp_path))

    stop, given = StopRequest(), []
    with standard_input(written(table, [100])):
        spooler = Spooler(tmp_path, limit, 30.0)
        spooler.read(1 << 20, stop, 0)
        calls_until(lambda: used() + limit // spool.SHARDS_OF_SPOOL > limit)
        for _ in range(20):
            threading.Event().wait(0.01)
            assert used() <= limit + spool._BATCH_BYTES
        while (path := spooler.next(stop)) is not None:
            given.append(rows_of(path))
            spooler.remove([path])
        spooler.close()
    assert pa.concat_tables(given).equals(table)
    assert rows_in_spool(tmp_path) == table.num_rows, "the newest shard stays: its name is the place in the stream"


def test_a_shard_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no row that was acknowledged is lost when the power fails."""
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("sync the folder" if name == folder else f"sync {name.name}, {os.fstat(fd).st_size} bytes")
        fsync(fd)

    def noted_rename(old: Any, new: Any) -> None:
        steps.append(f"rename to {Path(new).name}")
        rename(old, new)

    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    with standard_input(written(stream(300), [100])):
        spooler, stop = Spooler(folder, 1 << 30, 30.0), StopRequest()
        spooler.read(1 << 20, stop, 0)
        path = spooler.next(stop)
        spooler.close()
    assert path is not None
    assert steps[-3:] == [f"sync .unfinished, {path.stat().st_size} bytes", f"rename to {path.name}", "sync the folder"]
