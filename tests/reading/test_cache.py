"""The cache of decoded groups never changes bits: windows are the same if its files are deleted or damaged."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import RunError
from streampgs.reading.reused import Scratch

from .plain_reader import (
    WRITERS,
    PlainRow,
    Reader,
    Setup,
    dense_table,
    plain_groups,
    plain_window,
    rows_in,
    sparse_table,
    with_classes,
)

EPOCH = 1  # the first epoch that reads slices instead of whole groups


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """Three decoded groups of several slices each, and an uncompressed one. One window holds a whole epoch."""
    (tmp_path / "data").mkdir()
    WRITERS["parquet"](sparse_table(24, seed=1, longest=3), tmp_path / "data/a.parquet", 12)
    WRITERS["arrow, zstd"](sparse_table(10, seed=2, longest=3), tmp_path / "data/b.arrow", 10)
    WRITERS["arrow"](sparse_table(10, seed=3, longest=3), tmp_path / "data/c.arrow", 10)
    return Setup(tmp_path / "data", tmp_path / "cache", window_bytes=1 << 20, block_bytes=250)


def expected(reader: Reader, epoch: int = EPOCH) -> list[PlainRow]:
    (plan,) = reader.plans(first_epoch=epoch)
    return with_classes(plain_window(plan, plain_groups(reader.catalog)), weighted=False)


def files(setup: Setup) -> list[Path]:
    assert setup.cache is not None
    return sorted(setup.cache.iterdir())


def assert_right(setup: Setup, rebuilt: int) -> None:
    """A new reader reads the right rows and rebuilds `rebuilt` files. Afterwards the cache is intact."""
    with setup.reader() as reader:
        assert rows_in(reader.first_window(EPOCH)) == expected(reader)
        assert reader.cache.rebuilt == rebuilt
    with setup.reader() as reader:
        reader.first_window(EPOCH)
        assert reader.cache.rebuilt == 0


def filled(setup: Setup) -> list[Path]:
    assert_right(setup, rebuilt=0)
    found = files(setup)
    assert len(found) == 3
    return found


# Contents of the cache.


def test_each_decoded_group_is_kept_once(setup):
    before = filled(setup)
    stamps = [path.stat().st_mtime_ns for path in before]
    with setup.reader() as reader:
        for epoch in range(3):
            assert rows_in(reader.first_window(epoch)) == expected(reader, epoch)
    assert files(setup) == before
    assert [path.stat().st_mtime_ns for path in before] == stamps


def test_shards_of_the_same_shape_and_time_stamp_do_not_share_a_file(tmp_path):
    """Their footers have the same bytes. Only the values in their pages differ."""
    (tmp_path / "data").mkdir()
    for seed in range(3):
        path = tmp_path / f"data/{seed}.parquet"
        pq.write_table(
            dense_table(20, seed=seed), path, compression="none", use_dictionary=False, write_statistics=False
        )
        os.utime(path, ns=(0, 0))
    setup = Setup(tmp_path / "data", tmp_path / "cache", window_bytes=1 << 20)
    assert len({shard.identity for shard in setup.catalog().shards}) == 1
    with setup.reader() as reader:
        assert rows_in(reader.first_window(EPOCH)) == expected(reader)


def test_runs_may_share_a_cache(setup, tmp_path):
    """Runs with other slices or other shards use their own files."""
    filled(setup)
    (tmp_path / "other").mkdir()
    shutil.copy2(tmp_path / "data/a.parquet", tmp_path / "other/a.parquet")
    for other in (
        Setup(setup.source, setup.cache, window_bytes=1 << 20, block_bytes=400),
        Setup(tmp_path / "other", setup.cache, window_bytes=1 << 20, block_bytes=250),
    ):
        assert_right(other, rebuilt=0)
    assert_right(setup, rebuilt=0)


# Deleted.


def test_a_cache_deleted_between_two_fills_is_rebuilt(setup):
    with setup.reader() as reader:
        for epoch in range(4):
            assert rows_in(reader.first_window(epoch)) == expected(reader, epoch)
            if epoch % 2:
                shutil.rmtree(setup.cache)


# Damaged.


def test_any_damaged_byte_of_a_file_is_detected(setup):
    """Heads of slices, bodies, padding, index, tail."""
    path = filled(setup)[0]
    whole = path.read_bytes()
    catalog = setup.catalog()
    with setup.reader(catalog) as reader:
        right = expected(reader)
    for place in range(0, len(whole), 5):
        data = bytearray(whole)
        data[place] ^= 0xFF if place % 3 == 0 else 1 << (place % 8)
        path.write_bytes(data)
        with setup.reader(catalog) as reader:
            assert rows_in(reader.first_window(EPOCH)) == right, f"byte {place}"
            assert reader.cache.rebuilt == 1, f"byte {place}"
        assert path.read_bytes() == whole


def test_incomplete_files_of_a_killed_process_are_ignored(setup):
    paths = filled(setup)
    for path in paths:
        path.with_name(f".{path.name}-12345-67890").write_bytes(path.read_bytes()[:100])
    paths[0].unlink()
    assert_right(setup, rebuilt=0)


# Writing.


def test_a_cache_that_cannot_be_written_is_an_error_with_a_remedy(setup):
    setup.cache.write_text("a file where the folder should be")
    with (
        setup.reader() as reader,
        pytest.raises(RunError, match=r"the cache in '.*' cannot be written: .*\n.*--cache DIR"),
    ):
        reader.first_window(EPOCH)


# Memory for one block.


def test_scratch_memory_is_valid_until_the_reset():
    scratch = Scratch(64)
    generator = np.random.default_rng(2)
    for _ in range(20):
        scratch.reset()
        sizes = generator.integers(0, 200, 10)
        parts = [scratch.take(int(size)) for size in sizes]
        for number, part in enumerate(parts):
            part[:] = number
        for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            assert (part.size, part.ctypes.data % 64) == (size, 0) or size == 0
            assert (part == number).all()
    used = [part.ctypes.data for part in (scratch.take(10), scratch.take(10))]
    assert all(b - a == 64 for a, b in pairwise(used))
