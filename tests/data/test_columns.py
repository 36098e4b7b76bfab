"""Columns: rows transposed window by window, files of layers, blocks that join them, and the order of their visits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError, RunError
from streampgs.data.columns import Blocks, ColumnSource, MemoryStore
from streampgs.data.memory import MemoryRows, MemorySource
from streampgs.order.columns import SWEEPS, TooLarge, block_bounds
from streampgs.order.cursor import Cursor
from streampgs.reading.column_files import ColumnFiles, LayerDamaged
from streampgs.reading.columns import Columns, Layer, MemoryLayer, Part, joined
from streampgs.reading.window import Window
from streampgs.run.report import StopRequest
from tests.learn.columns import columns_of
from tests.learn.windows import window

FEATURES = 9
Layouts = list[str]


def plain(rows: Any, features: int = FEATURES) -> NDArray[np.float64]:
    """The rows of a window as a matrix."""
    matrix = np.zeros((len(rows.starts), features))
    for r, (start, stop) in enumerate(zip(rows.starts, rows.stops, strict=True)):
        places = rows.indices[start:stop] if rows.indices.size else np.arange(stop - start)
        matrix[r, places] = rows.values[start:stop]
    return matrix


def as_matrix(columns: Columns, features: int = FEATURES) -> NDArray[np.float64]:
    matrix = np.zeros((columns.rows, features))
    for line, (start, stop) in enumerate(pairwise(columns.bounds)):
        places = np.arange(columns.rows) if columns.dense else columns.indices[start:stop]
        assert (np.diff(places.astype(np.int64)) > 0).all()
        matrix[places, columns.columns[line]] = columns.values[start:stop]
    return matrix


def layers_of(sizes: list[int], layouts: Layouts) -> tuple[list[Columns], NDArray[np.float64]]:
    """Layers, and all their rows as a matrix."""
    windows = [
        window(size, FEATURES, layout, seed=k) for k, (size, layout) in enumerate(zip(sizes, layouts, strict=True))
    ]
    layers = [columns_of(one, layout == "dense") for one, layout in zip(windows, layouts, strict=True)]
    return layers, np.concatenate([plain(one) for one in windows])


# Transposed and joined.


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_transposed_rows_agree_with_the_plain_twin(layout: str) -> None:
    rows = window(70, FEATURES, layout)
    columns = columns_of(rows, layout == "dense")
    np.testing.assert_array_equal(as_matrix(columns), plain(rows))
    assert len(columns.values) == len(rows.values)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    first=st.integers(0, FEATURES - 1),
    count=st.integers(1, FEATURES),
    kinds=st.sampled_from(["sparse", "dense", "mixed"]),
    on_disk=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_block_joins_its_columns_of_all_layers(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], first: int, count: int, kinds: str, on_disk: bool
) -> None:
    layouts = [kinds if kinds != "mixed" else ("dense", "sparse")[k % 2] for k in range(len(sizes))]
    layers, matrix = layers_of(sizes, layouts)
    stop = min(FEATURES, first + count)
    files = ColumnFiles(tmp_path_factory.mktemp("columns"))
    kept: list[Layer] = [files.layer(files.keep(one)) if on_disk else MemoryLayer(one) for one in layers]
    parts = []
    for one, layer in zip(layers, kept, strict=True):
        parts.append(Part(layer, *(int(place) for place in np.searchsorted(one.columns, [first, stop]))))
    block = joined(parts, first, stop, kinds == "dense")
    files.close()
    expected = matrix.copy()
    expected[:, :first] = expected[:, stop:] = 0.0
    np.testing.assert_array_equal(as_matrix(block), expected)


def test_long_columns_are_joined_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streampgs.reading.columns._ENTRIES_AT_ONCE", 7)
    layers, matrix = layers_of([60, 50], ["dense", "sparse"])
    parts = [Part(MemoryLayer(layer), 0, len(layer)) for layer in layers]
    np.testing.assert_array_equal(as_matrix(joined(parts, 0, FEATURES, False)), matrix)


# Blocks.


@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=30), most=st.integers(100, 2000))
def test_blocks_hold_half_of_the_memory_unless_all_columns_fit(sizes: list[int], most: int) -> None:
    bounds = block_bounds(np.array(sizes, float), most)
    of_blocks = [sum(sizes[first:stop]) for first, stop in pairwise(bounds)]
    assert (bounds[0], bounds[-1]) == (0, len(sizes))
    assert (np.diff(bounds) > 0).all()
    assert len(of_blocks) == 1 if sum(sizes) <= most else max(of_blocks) <= most / 2


def test_a_column_that_exceeds_a_block_is_refused_with_a_remedy() -> None:
    with pytest.raises(TooLarge):
        block_bounds(np.array([10.0, 60.0, 50.0]), 100.0)
    layers, _ = layers_of([400], ["sparse"])
    with pytest.raises(OptionError, match=r"feature \d takes .* MB(.|\n)*times as much --memory"):
        Blocks([MemoryLayer(layers[0])], False, 500)


# Files.


def test_a_file_is_written_once_and_gives_its_columns_back(tmp_path: Path) -> None:
    (layer,), matrix = layers_of([300], ["sparse"])
    files = ColumnFiles(tmp_path)
    name = files.keep(layer)
    written = files.path(name).stat()
    assert ColumnFiles(tmp_path).keep(layer) == name
    assert files.path(name).stat().st_mtime_ns == written.st_mtime_ns
    found = files.layer(name)
    assert (found.rows, len(found), found.dense) == (300, len(layer), False)
    np.testing.assert_array_equal(as_matrix(joined([Part(found, 0, len(found))], 0, FEATURES, False)), matrix)
    files.close()


def test_changed_bytes_of_a_file_are_noticed(tmp_path: Path) -> None:
    (layer,), _ = layers_of([30], ["sparse"])
    files = ColumnFiles(tmp_path)
    name = files.keep(layer)
    files.close()
    content = files.path(name).read_bytes()
    padding = _padding(layer)
    for place in [*range(0, len(content), 5), *range(len(content) - 80, len(content))]:
        if place in padding:
            continue
        files.path(name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(LayerDamaged):
            _read_whole(files, name)
        files.close()
    for kept in (0, 10, len(content) - 1):
        files.path(name).write_bytes(content[:kept])
        with pytest.raises(LayerDamaged):
            _read_whole(files, name)
    files.forget(name)
    with pytest.raises(LayerDamaged, match="missing"):
        files.layer(name)
    files.keep(layer)
    _read_whole(files, name)
    files.close()


def _padding(layer: Columns) -> set[int]:
    """Bytes between the arrays, which are never read."""
    found, end = set[int](), 0
    for size in (4 * len(layer), 8 * len(layer) + 8, 4 * len(layer.values), 4 * len(layer.values)):
        found |= set(range(end + size, end + -(-size // 8) * 8))
        end += -(-size // 8) * 8
    return found


def _read_whole(files: ColumnFiles, name: str) -> None:
    layer = files.layer(name)
    _, bounds = layer.lines(0, len(layer))
    layer.entries(0, int(bounds[-1]))


def test_a_disk_that_is_full_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (layer,), _ = layers_of([30], ["sparse"])

    def full(path: Path) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streampgs.reading.column_files.new_file", full)
    with pytest.raises(RunError, match=r"No space left on device(.|\n)*free some space"):
        ColumnFiles(tmp_path).keep(layer)


# The source.


def memory_rows(rows: Any) -> MemoryRows:
    return MemoryRows(rows.starts, rows.stops, rows.indices, rows.values, rows.labels, rows.weights, FEATURES)


def windows_of(source: ColumnSource, epochs: int) -> Iterator[Window]:
    source.prepare(epochs)
    cursor = Cursor(())
    while True:
        found = source.window(cursor, StopRequest())
        if found is None:
            return
        assert found.plan is not None
        yield found
        cursor = found.plan.next
        source.release(found)


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("most", [1 << 40, 700])
def test_rows_come_once_and_then_each_column_in_each_sweep(layout: str, most: int) -> None:
    rows = window(50, FEATURES, layout)
    source = ColumnSource(MemorySource(memory_rows(rows), 3), MemoryStore(), 3, layout == "dense", most)
    orders: set[tuple[int, ...]] = set()
    seen: dict[tuple[int, int], list[int]] = {}
    for found in windows_of(source, 3):
        if found.visit is None:
            matrix = plain(found)
            continue
        visit = found.visit
        assert (visit.blocks == 1) == (most > 700)
        assert found.plan is not None
        assert (visit.position == visit.blocks - 1 and visit.sweep == visit.sweeps - 1) == found.plan.next.begins_epoch
        assert visit.begins_epoch == found.plan.start.begins_epoch
        for line, feature in enumerate(found.columns):
            chosen = slice(found.starts[line], found.stops[line])
            column = np.zeros(50)
            column[found.indices[chosen] if found.indices.size else np.arange(50)] = found.values[chosen]
            np.testing.assert_array_equal(column, matrix[:, feature])
        seen.setdefault((visit.epoch, visit.sweep), []).extend(found.columns.tolist())
        orders.add(tuple(found.columns.tolist()))
    source.close()
    assert set(seen) == {(epoch, sweep) for epoch in (1, 2) for sweep in range(SWEEPS)}
    assert all(sorted(features) == list(range(FEATURES)) for features in seen.values())
    assert len(orders) > SWEEPS


def test_rows_without_any_feature_are_refused() -> None:
    rows = window(20, FEATURES, "sparse")
    rows = replace(rows, stops=rows.starts.copy())
    source = ColumnSource(MemorySource(memory_rows(rows), 3), MemoryStore(), 3, False, 1 << 40)
    with pytest.raises(DataError, match=r"no row has a feature(.|\n)*another solver"):
        list(windows_of(source, 2))


def test_a_position_beyond_the_blocks_is_refused() -> None:
    rows = window(50, FEATURES)
    source = ColumnSource(MemorySource(memory_rows(rows), 3), MemoryStore(), 3, True, 1 << 40)
    list(windows_of(source, 1))
    source.prepare(9)
    wrong: list[Callable[[Cursor], Cursor]] = [
        lambda cursor: Cursor((), 1, 1), lambda cursor: Cursor((), 1, 0, SWEEPS), lambda cursor: Cursor((), 1, 0, 0, 99)
    ]  # fmt: skip
    for place in wrong:
        with pytest.raises(RunError, match="does not exist among the columns"):
            source.window(place(Cursor(())), StopRequest())
    source.close()
