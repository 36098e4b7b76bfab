"""The sizes of a run: windows fit the memory budget, also at a resume, and mix enough blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import OptionError
from streampgs.data.budget import (
    BLOCKS_NEEDED,
    LARGEST_BLOCK,
    SMALLEST_BLOCK,
    check_fits,
    choose_sizes,
    group_sizes,
    shard_forecast,
)
from streampgs.formats.format import Fingerprint
from streampgs.options.commands import SMALLEST_MEMORY, Resources
from streampgs.order.schedule import GroupSizes, Schedule, Sizes
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import DENSE, SPARSE, Layout

ROOM_TO_GROW = 1 + 1 / 16  # how much larger than its rows a window's memory may be


def shard(kind: str, rows: list[int], entries: list[int], decoded: bool = False, cached: bool = False) -> Shard:
    layout = Layout(kind, ("label", "features"))
    return Shard(Path("s"), "arrow", Fingerprint(0, 0, ""), layout, decoded, cached, tuple(rows), tuple(entries))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    kind = draw(st.sampled_from([SPARSE, DENSE]))
    shards = []
    for _ in range(draw(st.integers(1, 8))):
        rows = draw(st.lists(st.integers(0, 10**7), min_size=1, max_size=5))
        entries = [r * draw(st.integers(0, 5000)) for r in rows]
        decoded = draw(st.booleans())
        shards.append(shard(kind, rows, entries, decoded, decoded and draw(st.booleans())))
    return Catalog(shards)


def groups_of(rows: list[int], row_bytes: float, decoded: bool = False, cached: bool = False) -> GroupSizes:
    count = len(rows)
    return GroupSizes(
        np.array(rows, np.int64), np.full(count, row_bytes), np.full(count, decoded), np.full(count, cached)
    )


MEMORY = st.integers(SMALLEST_MEMORY, 1 << 42)
PLAIN = groups_of([1000], 100.0)


# Sizes of rows.


def test_the_bytes_of_a_row_are_those_of_the_arrays_of_a_window():
    """Start, stop and label take 8 bytes each. An entry is a float32, and sparse rows add an index of 4 bytes."""
    catalog = Catalog([shard(SPARSE, [10, 4], [70, 0], decoded=True), shard(SPARSE, [2], [6])])
    assert group_sizes(catalog).row_bytes.tolist() == [24 + 8 * 7, 24, 24 + 8 * 3]
    assert group_sizes(catalog, row_values=1).row_bytes.tolist() == [32 + 8 * 7, 32, 32 + 8 * 3]
    assert group_sizes(Catalog([shard(DENSE, [10], [280])])).row_bytes.tolist() == [24 + 4 * 28]


def test_later_shards_do_not_change_the_sizes_of_groups():
    """The sizes of groups determine the order of rows, and must not change in the middle of an epoch."""
    dense, sparse = shard(DENSE, [10, 20], [30, 60]), shard(SPARSE, [5], [10])
    before = group_sizes(Catalog([dense])).row_bytes.tolist()
    assert group_sizes(Catalog([dense, sparse])).row_bytes.tolist() == [*before, 24 + 8 * 2]


# Windows and blocks.


@given(catalogs(), MEMORY, st.booleans())
def test_windows_fit_the_budget(catalog, memory, weighted):
    groups, resources = group_sizes(catalog, weighted), Resources(memory=memory)
    sizes = choose_sizes(groups, resources)
    # Groups that are decoded into memory need a third window, for decoded rows before they are copied.
    windows = 3 if (groups.decoded & ~groups.cached).any() else 2
    assert windows * ROOM_TO_GROW * sizes.window_bytes <= memory
    check_fits(sizes, resources)  # the run can be resumed with the same budget


@given(catalogs(), MEMORY)
def test_block_sizes_are_within_bounds_and_a_window_holds_many_blocks(catalog, memory):
    sizes = choose_sizes(group_sizes(catalog), Resources(memory=memory))
    assert SMALLEST_BLOCK <= sizes.block_bytes <= LARGEST_BLOCK
    assert sizes.window_bytes >= BLOCKS_NEEDED * sizes.block_bytes


@given(catalogs(), MEMORY, MEMORY)
def test_more_memory_never_gives_a_smaller_window(catalog, one, other):
    groups = group_sizes(catalog)
    small, large = (choose_sizes(groups, Resources(memory=memory)) for memory in sorted([one, other]))
    assert small.window_bytes <= large.window_bytes
    assert small.block_bytes <= large.block_bytes


@given(catalogs(), MEMORY, st.integers(1, 1 << 40))
def test_a_requested_window_is_used_or_refused(catalog, memory, window):
    groups = group_sizes(catalog)
    fitting = (memory - (24 << 20)) / ((3 if (groups.decoded & ~groups.cached).any() else 2) * ROOM_TO_GROW)
    if 2 * window > memory:
        with pytest.raises(OptionError, match="--memory"):
            Resources(memory=memory, window=window)
    elif window > fitting:
        with pytest.raises(OptionError, match=r"--window .* is more than --memory"):
            choose_sizes(groups, Resources(memory=memory, window=window))
    else:
        sizes = choose_sizes(groups, Resources(memory=memory, window=window))
        assert sizes.window_bytes == window
        assert SMALLEST_BLOCK <= sizes.block_bytes <= LARGEST_BLOCK


# Resume.


@given(MEMORY, MEMORY)
def test_a_recorded_window_fits_or_is_refused_with_the_memory_it_needs(first, later):
    sizes = choose_sizes(PLAIN, Resources(memory=first))
    if 2 * ROOM_TO_GROW * sizes.window_bytes + (24 << 20) <= later:
        check_fits(sizes, Resources(memory=later))
    else:
        with pytest.raises(OptionError, match=r"the run's windows of .* MB need --memory [\d,]+MB"):
            check_fits(sizes, Resources(memory=later))


def test_a_budget_smaller_than_the_windows_need_is_refused():
    with pytest.raises(OptionError, match=r"windows of 100 MB need --memory 238MB; 200MB were given"):
        check_fits(Sizes(100 * 10**6, 1 << 20), Resources(memory=200 * 10**6))
    check_fits(Sizes(100 * 10**6, 1 << 20), Resources(memory=240 * 10**6))


# The forecast.


@given(catalogs(), MEMORY, st.integers(0, 10**8), st.integers(0, 100))
def test_the_forecast_of_windows_and_reading_stays_within_the_budget(catalog, memory, features, feature_bytes):
    groups = group_sizes(catalog)
    sizes = choose_sizes(groups, Resources(memory=memory))
    model = features * feature_bytes
    found = shard_forecast(catalog, Schedule(0, groups, sizes), 0, memory, 200 * 10**6, model)
    assert found.windows + found.reading <= memory
    assert found.model == model
    assert found.total == 200 * 10**6 + found.windows + found.reading + found.decoding + model
