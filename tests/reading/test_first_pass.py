"""The first pass over groups that must be decoded: the same rows with and without a cache, and no leftovers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import streampgs
from streampgs.reading.window import RowShape, WindowMemory

from .plain_reader import WRITERS, Setup, rows_in, sparse_table


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "data").mkdir()
    for seed, name in enumerate("ab"):
        WRITERS["parquet"](sparse_table(300, seed=seed), tmp_path / f"data/{name}.parquet", 50)
    return Setup(tmp_path / "data", tmp_path / "cache")


def epochs(setup: Setup, count: int, drop_cache: bool = False) -> list[object]:
    found = []
    with setup.reader() as reader:
        for window in reader.windows(epochs=count):
            found.append(rows_in(window))
            if drop_cache and setup.cache is not None:
                shutil.rmtree(setup.cache, ignore_errors=True)
    return found


def test_rows_from_the_decoder_and_from_the_cache_are_the_same(setup):
    fresh = epochs(setup, 2)
    assert epochs(setup, 2) == fresh
    assert epochs(setup, 2, drop_cache=True) == fresh
    uncached = epochs(replace(setup, cache=None), 1)
    assert len(uncached) > 1
    assert uncached == fresh[: len(uncached)]


def test_a_model_is_the_same_with_a_cache_without_one_and_with_a_deleted_one(setup, tmp_path):
    def trained(name: str, **choices: object) -> streampgs.Report:
        return streampgs.train(setup.source, run=tmp_path / name, window="20kB", **choices)

    kept = trained("kept", epochs=2)
    trained("deleted", epochs=1)
    assert not (tmp_path / "deleted/cache").exists()  # no second epoch was requested
    assert streampgs.resume(tmp_path / "deleted", epochs=2).dual_sha256 == kept.dual_sha256
    first = trained("first", epochs=1)
    assert trained("uncached", epochs=1, no_cache=True).dual_sha256 == first.dual_sha256


def test_a_window_grows_if_rows_have_more_entries_than_predicted():
    """The number of entries of encoded rows is predicted from a sample. The window grows and keeps its rows."""
    memory = WindowMemory()
    window = memory.window
    memory.allocate(6, 4, RowShape(sparse=True, labels=1, weighted=False))
    for first in (0, 2, 4):
        slots = np.array([first, first + 1])
        with memory.room_for(np.array([1, first + 1]), slots):
            for slot in slots:
                window.indices[window.starts[slot] : window.stops[slot]] = slot
                window.values[window.starts[slot] : window.stops[slot]] = slot / 2
    for slot, length in enumerate([1, 1, 1, 3, 1, 5]):
        assert window.indices[window.starts[slot] : window.stops[slot]].tolist() == [slot] * length
        assert window.values[window.starts[slot] : window.stops[slot]].tolist() == [slot / 2] * length
