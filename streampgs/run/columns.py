"""Runs with a solver of columns: what they refuse, how much memory their columns may take, and their source."""

from __future__ import annotations

import shutil
from pathlib import Path

from streampgs.base.errors import OptionError, RunError
from streampgs.data.budget import READING_BYTES
from streampgs.data.columns import LINE_BYTES, ColumnSource
from streampgs.data.shards import ShardSource
from streampgs.learn.learner import learner_named
from streampgs.options.commands import Growth, ModelOptions, Resources
from streampgs.options.solvers import SOLVERS
from streampgs.reading.column_files import ColumnFiles
from streampgs.run.record import RunRecord
from streampgs.selection.grid import targets_of
from streampgs.table.catalog import Catalog

FOLDER = "columns"
_LEAST_SHARE = 4  # of the memory, for columns
_ROOM_TO_GROW = 1.5
_SPARE_SHARE = 8


def is_by_columns(options: ModelOptions) -> bool:
    return SOLVERS[options.solver].by_columns


def refuse_growth_options(options: ModelOptions, growth: Growth) -> None:
    for name in ("passes", "replay"):
        if is_by_columns(options) and getattr(growth, name) is not None:
            raise OptionError(
                f"--{name} with `--solver {options.solver}`, whose epochs visit all rows, old and new ones",
                "leave it out",
            )


def refuse_no_cache(options: ModelOptions, resources: Resources) -> None:
    if is_by_columns(options) and resources.no_cache:
        raise OptionError(
            f"--no-cache with `--solver {options.solver}`, which keeps the columns of the table in the cache",
            "leave it out, or name a place for them with `--cache DIR`",
        )


def refuse_stream(options: ModelOptions) -> None:
    if is_by_columns(options):
        raise OptionError(
            f"`--solver {options.solver}` with a stream: it visits the columns of a whole table several times",
            "write the stream to shards first (an Arrow file is one), or use `--solver pgs`",
        )


def rows_bytes(options: ModelOptions, rows: int) -> int:
    """The bytes that the solver keeps for these rows, all at once."""
    learner, targets = learner_named(options.solver), len(targets_of(options))
    lanes = len(options.losses) * learner.candidates.count(options, targets) * targets
    return rows * learner.bytes_per_row(lanes)


def column_bytes_for(options: ModelOptions, rows: int, resources: Resources) -> int:
    """The most that columns may take in memory, next to those that are kept for the rows, and some room for more rows."""
    kept, budget = rows_bytes(options, rows), resources.budget
    found = budget - READING_BYTES - int(max(_ROOM_TO_GROW * kept, budget / _SPARE_SHARE))
    if found < budget // _LEAST_SHARE:
        needed = (READING_BYTES + _ROOM_TO_GROW * kept) * _LEAST_SHARE / (_LEAST_SHARE - 1)
        raise OptionError(
            f"`--solver {options.solver}` keeps a label and scores of {rows:,} rows in memory, {kept / 1e6:,.0f} MB for all "
            f"its models; `--memory {budget / 1e6:,.0f}MB` is too little",
            f"give at least `--memory {needed / 1e6 + 1:.0f}MB`, or fewer values of --l1",
        )
    return found


def line_bytes(options: ModelOptions) -> int:
    """The memory of a column besides its entries."""
    return LINE_BYTES + learner_named(options.solver).bytes_per_column


def memory_for_columns(record: RunRecord, rows: int) -> int:
    """By the recorded blocks of a run; 0 for other solvers."""
    return READING_BYTES + rows_bytes(record.options, rows) + record.column_bytes if record.column_bytes else 0


def check_columns_fit(record: RunRecord, rows: int, resources: Resources) -> None:
    """When a run is resumed, or has grown, its columns and rows must fit into the (new) budget."""
    needed = memory_for_columns(record, rows)
    if needed > resources.budget:
        raise OptionError(
            f"the columns of the run and {rows:,} rows need `--memory {needed / 1e6 + 1:.0f}MB`; "
            f"{resources.budget / 1e6:,.0f}MB were given",
            "the size of the blocks of columns is a part of the run (it decides their order); give that much memory",
        )


def refuse_full_disk(catalog: Catalog, dense: bool, place: Path) -> None:
    needed = int(catalog.group_entries.sum()) * (4 if dense else 8)
    free = shutil.disk_usage(place).free
    if needed > free:
        raise RunError(
            f"the columns of the table take about {needed / 1e9:,.1f} GB on disk, and {free / 1e9:,.1f} GB are free in "
            f"'{place}'",
            "name a larger disk with `--cache DIR`",
        )


def column_source(rows: ShardSource, record: RunRecord, dense: bool) -> ColumnSource:
    assert record.cache is not None
    files = ColumnFiles(Path(record.cache) / FOLDER)
    return ColumnSource(
        rows, files, record.options.seed, dense, record.column_bytes, line_bytes(record.options), rows.read_again
    )
