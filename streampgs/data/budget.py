"""The sizes of a run, chosen once from the memory budget and the catalog, and what they will cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streampgs.base.errors import OptionError, sized
from streampgs.formats.registry import FORMATS
from streampgs.options.commands import DEFAULT_MEMORY, SMALLEST_MEMORY, ModelOptions, Resources
from streampgs.options.solvers import SOLVERS
from streampgs.order.schedule import GroupSizes, Schedule, Sizes
from streampgs.stores.copies import DOWNLOAD_BYTES
from streampgs.table.catalog import Catalog
from streampgs.table.layout import SPARSE

SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 16, 1 << 21
BLOCKS_WANTED = 128
BLOCKS_NEEDED = 64
_FEWEST_KERNEL_ROWS = 1024
_LARGEST_WINDOW = 256 << 20
_ROW_BYTES = 24  # start, stop and label
_ROW_VALUE_BYTES = 8
_INDEX_BYTES, _VALUE_BYTES = 4, 4
READING_BYTES = 24 << 20  # scratch for a block, buffers of the decoders, the rows' order
_DECODING_BYTES = 48 << 20  # pages, dictionaries and slices in the hands of the decoders, as measured
MOST_DECODERS = 2
_FRAGMENTED = 1.15  # the allocator keeps more memory than is in use
_LARGER_BATCHES = 32 << 20  # decoders are measured with the small batches of a sample, and take up to so much more
_SPARE = 1.0625  # see WindowMemory
WHOLE_TABLE = 1 << 50
"""The size of a window that has all rows, for solvers that sweep over columns."""
_LANE_BYTES = 64
"""Memory for a row: its number, its place in the random order, and the numbers of the lane that is in training."""
COLUMN_BYTES = 200
"""Memory for a column in addition to its entries: its feature and bounds, its measurements, its place in the order and its
iterates."""


def group_sizes(catalog: Catalog, row_values: int = 0) -> GroupSizes:
    rows = catalog.group_rows
    # The size of a group decides the order of rows, so it must not depend on shards that arrive later.
    entry_bytes = _VALUE_BYTES + _INDEX_BYTES * catalog.per_group(
        shard.layout.kind == SPARSE for shard in catalog.shards
    )
    row_bytes = _ROW_BYTES + _ROW_VALUE_BYTES * row_values + entry_bytes * catalog.group_entries / np.maximum(1, rows)
    return GroupSizes(
        rows,
        row_bytes,
        catalog.per_group(shard.decoded for shard in catalog.shards),
        catalog.per_group(shard.cached for shard in catalog.shards),
    )


def as_laid_out(catalog: Catalog, groups: GroupSizes, sizes: Sizes) -> tuple[GroupSizes, Sizes]:
    """The sizes of rows and windows if dense rows are laid out as sparse ones, because other shards are sparse."""
    short = catalog.per_group(shard.layout.kind != SPARSE for shard in catalog.shards)
    if catalog.kind != SPARSE or not short.any():
        return groups, sizes
    added = _INDEX_BYTES * short * catalog.group_entries / np.maximum(1, groups.rows)
    laid_out = replace(groups, row_bytes=groups.row_bytes + added)
    longest = float((laid_out.row_bytes / groups.row_bytes).max()) * sizes.window_bytes
    needed = min(longest, float((laid_out.rows * laid_out.row_bytes).sum()))
    return laid_out, replace(sizes, window_bytes=max(sizes.window_bytes, int(needed)))


def decoders_for(decoder_bytes: int, memory: int) -> int:
    """How many groups are decoded at a time: the decoder of a table with hundreds of columns may take hundreds of MB."""
    return MOST_DECODERS if MOST_DECODERS * decoder_bytes <= memory // 2 else 1


def memory_to_decode(decoder_bytes: int) -> int:
    """The least memory with which windows are as large as they usually are."""
    return DEFAULT_MEMORY + decoder_bytes if decoder_bytes > DEFAULT_MEMORY // 2 else 0


def choose_sizes(groups: GroupSizes, resources: Resources, decoder_bytes: int = 0) -> Sizes:
    """Two windows (three if groups are decoded into memory) fill the budget that decoders leave, but no more than mixes
    well."""
    uncached = groups.decoded & ~groups.cached
    windows = 3 if uncached.any() else 2
    share = max(0, decoders_for(decoder_bytes, resources.budget) * decoder_bytes - _DECODING_BYTES)
    fitting = int((resources.budget - READING_BYTES - share) / (windows * _SPARE))
    if fitting < SMALLEST_BLOCK:
        raise OptionError(
            f"a decoder takes {decoder_bytes / 1e6:,.0f} MB for the table's many columns or long values; "
            f"`--memory {resources.budget / 1e6:,.0f}MB` leaves no memory for rows",
            f"give at least `--memory {(2 * decoder_bytes + SMALLEST_MEMORY) / 1e6:,.0f}MB`, or leave out columns with --ignore",
        )
    if resources.window is not None:
        if resources.window > fitting:
            raise OptionError(
                f"`--window {resources.window / 1e6:,.0f}MB` is more than `--memory {resources.budget / 1e6:,.0f}MB` can hold "
                f"{windows} times, with {READING_BYTES >> 20} MiB for reading",
                f"give a window of at most {fitting / 1e6:,.0f}MB",
            )
        window = resources.window
    else:
        most = _LARGEST_WINDOW
        if groups.decoded.any():
            # Row groups are whole in their first epoch: only a larger window mixes more of them.
            sizes = (groups.rows * groups.row_bytes)[groups.decoded]
            most = max(most, int(BLOCKS_NEEDED * sizes.mean()))
        window = min(fitting, most)
    block = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, window // BLOCKS_WANTED))
    return Sizes(window, block)


def table_bytes(catalog: Catalog, options: ModelOptions) -> int:
    """The memory of all rows: as rows and as columns, with what a solver needs for each; for `kernel`, as rows alone."""
    groups = group_sizes(catalog)
    copies, more = (2, _LANE_BYTES) if SOLVERS[options.solver].needs.columns else (1, 0)
    return int(copies * _SPARE * float((groups.rows * groups.row_bytes).sum())) + more * catalog.rows


def refuse_too_large_table(catalog: Catalog, options: ModelOptions, resources: Resources) -> None:
    """Where the solver needs all rows in memory."""
    if not SOLVERS[options.solver].needs.in_memory:
        return
    needed = table_bytes(catalog, options) + READING_BYTES
    if needed > resources.budget:
        other = "--kernel without `--solver kernel`" if options.kernel else "`--solver pgs` with the same --l1"
        raise OptionError(
            f"`--solver {options.solver}` keeps all rows in memory: {catalog.rows:,} rows take {sized(needed)}, and --memory is "
            f"{resources.budget / 1e6:,.0f}MB",
            f"give `--memory {needed // 10**6 + 1}MB`, or use {other}, which reads the rows piece by piece",
        )


def refuse_too_many_supports(options: ModelOptions, resources: Resources) -> None:
    """Windows of few rows mix badly: each row has a kernel with each support."""
    most = (resources.budget - READING_BYTES) // (2 * _VALUE_BYTES * _FEWEST_KERNEL_ROWS)
    if options.solver == "kernel" and options.supports > most:
        needed = 2 * _VALUE_BYTES * _FEWEST_KERNEL_ROWS * options.supports + READING_BYTES
        raise OptionError(
            f"`--supports {options.supports:,}`: the kernels of {_FEWEST_KERNEL_ROWS:,} rows with them, twice, take more than "
            f"`--memory {resources.budget / 1e6:,.0f}MB`",
            f"give at most `--supports {most}`, or at least `--memory {-(-needed // 10**6)}MB`",
        )


def memory_needed(sizes: Sizes, decoder_bytes: int = 0) -> int:
    """By the recorded window of a run."""
    window = 0 if sizes.window_bytes == WHOLE_TABLE else sizes.window_bytes  # see refuse_too_large_table
    return int(2 * _SPARE * window) + READING_BYTES + max(0, decoder_bytes - _DECODING_BYTES)


def check_fits(sizes: Sizes, resources: Resources, decoder_bytes: int = 0) -> None:
    """When a run is resumed, its window must fit into the (new) budget."""
    needed = memory_needed(sizes, decoder_bytes)
    if needed > resources.budget:
        raise OptionError(
            f"the run's windows of {sizes.window_bytes / 1e6:,.0f} MB need `--memory {needed / 1e6:,.0f}MB`; "
            f"{resources.budget / 1e6:,.0f}MB were given",
            "the window is a part of the run (it decides which rows are mixed); give that much memory",
        )


@dataclass(frozen=True)
class Forecast:
    """The memory of the process at its peak."""

    process: int
    """Python, libraries and compiled loops."""
    windows: int
    reading: int
    decoding: int
    model: int
    downloads: int = 0
    """Parts of remote shards that are being written to disk."""
    reached: int = 0
    """The peak before the first row was read: compiling takes memory that it gives back."""

    @property
    def total(self) -> int:
        held = self.windows + self.reading + self.decoding + self.downloads
        return max(self.reached, self.process + held + self.model)


def decoding_bytes(catalog: Catalog, groups: GroupSizes, decoder_bytes: int = 0, memory: int = 0) -> int:
    """The memory of decoders, in addition to the slices that they return."""
    if not groups.decoded.any():
        return 0
    if decoder_bytes:
        decoders = decoders_for(decoder_bytes, memory)
        return _DECODING_BYTES + int(_FRAGMENTED * decoders * (decoder_bytes + min(decoder_bytes, _LARGER_BATCHES)))
    compressed = catalog.per_group(s.decoded and FORMATS[s.format].decodes_whole_groups for s in catalog.shards)
    if not compressed.any():
        return _DECODING_BYTES
    # A compressed batch is decoded whole, with its compressed bytes in memory.
    return _DECODING_BYTES + int(3 * (groups.rows * groups.row_bytes)[compressed].max())


def shard_forecast(
    catalog: Catalog, schedule: Schedule, decoder_bytes: int, memory: int, process: int, model: int
) -> Forecast:
    groups, sizes = as_laid_out(catalog, schedule.groups, schedule.sizes)
    all_bytes = float((groups.rows * groups.row_bytes).sum())
    window = min(all_bytes, sizes.window_bytes)
    if sizes.window_bytes == WHOLE_TABLE:
        model += _LANE_BYTES * catalog.rows
    return Forecast(
        process,
        int(2 * window * _SPARE),
        int(min(all_bytes, 8 * sizes.block_bytes)),
        decoding_bytes(catalog, groups, decoder_bytes, memory),
        model,
        min(DOWNLOAD_BYTES, sum(remote.size for remote in catalog.remote)),
    )
