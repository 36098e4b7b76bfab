"""The slow plain twin of reading: shards of many writers, and the rows of a window read with pyarrow and lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.data.budget import group_sizes
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.labels import LabelSpec
from streampgs.kernels.randomness import shuffled
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule, Sizes, WindowPlan
from streampgs.reading.cache import BlockCache
from streampgs.reading.loader import WindowFiller
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window, WindowMemory
from streampgs.table.catalog import Catalog, build_catalog, with_cache
from streampgs.table.layout import Columns

PlainRow = tuple[float, tuple[int, ...], tuple[float, ...], float | None]
"""(label, indices, values, weight); a dense row has no indices."""

# Tables.


def sparse_table(rows: int, seed: int = 0, values: bool = True, longest: int = 7) -> pa.Table:
    """Rows of 0 … `longest` entries, indices in random order, labels 0 and 1, weights."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, longest + 1, rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    indices = [generator.permutation(50)[:n] for n in lengths]
    columns = {
        "text": pa.array([f"row {r}" for r in range(rows)]),
        "weight": pa.array(generator.integers(0, 9, rows) / 4),
        "indices": pa.ListArray.from_arrays(offsets, pa.array(np.concatenate([[], *indices]), pa.int32())),
        "label": pa.array(generator.integers(0, 2, rows), pa.int8()),
    }
    if values:
        numbers = generator.normal(size=int(lengths.sum())).astype(np.float32)
        columns["values"] = pa.ListArray.from_arrays(offsets, pa.array(numbers))
    return pa.table(columns)


def dense_table(rows: int, seed: int = 0, width: int = 5, fixed: bool = True) -> pa.Table:
    generator = np.random.default_rng(seed)
    child = pa.array(generator.normal(size=rows * width).astype(np.float32))
    if fixed:
        features = pa.FixedSizeListArray.from_arrays(child, width)
    else:
        features = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width), child)
    labels = pa.array(generator.integers(0, 2, rows) * 2 - 1, pa.int8())
    return pa.table({"features": features, "weight": pa.array(generator.random(rows)), "label": labels})


# Writers: (table, path, rows of a group).

Write = Callable[[pa.Table, Path, int], None]


def arrow_writer(compression: str | None = None) -> Write:
    def write(table: pa.Table, path: Path, group_rows: int) -> None:
        with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=group_rows)

    return write


def parquet_writer(**options: object) -> Write:
    return lambda table, path, group_rows: pq.write_table(table, path, row_group_size=group_rows, **options)


def _polars_arrow(table: pa.Table, path: Path, group_rows: int) -> None:
    pl.from_arrow(table).write_ipc(path, record_batch_size=group_rows)


def _polars_parquet(table: pa.Table, path: Path, group_rows: int) -> None:
    pl.from_arrow(table).write_parquet(path, row_group_size=group_rows)


def _duckdb_parquet(table: pa.Table, path: Path, group_rows: int) -> None:
    duckdb.from_arrow(table).write_parquet(str(path), row_group_size=group_rows)


WRITERS: dict[str, Write] = {
    "arrow": arrow_writer(),
    "arrow, lz4": arrow_writer("lz4"),
    "arrow, zstd": arrow_writer("zstd"),
    "parquet": parquet_writer(),
    "parquet, zstd, small pages": parquet_writer(compression="zstd", data_page_size=64, write_page_checksum=True),
    "polars, arrow": _polars_arrow,
    "polars, parquet": _polars_parquet,
    "duckdb, parquet": _duckdb_parquet,
}


# The expected rows of a window.


def plain_groups(catalog: Catalog) -> list[list[PlainRow]]:
    """The rows of every group, read with pyarrow."""
    groups = []
    for shard in catalog.shards:
        for number in range(len(shard.group_rows)):
            if shard.format == "parquet":
                with pq.ParquetFile(shard.path) as file:
                    table = file.read_row_group(number)
            else:
                with pa.OSFile(str(shard.path)) as file:
                    table = pa.Table.from_batches([pa.ipc.open_file(file).get_batch(number)])
            groups.append(list(_plain_rows(table)))
    return groups


def _plain_rows(table: pa.Table) -> Iterator[PlainRow]:
    for row in table.to_pylist():
        weight = row.get("weight")
        if "features" in row:
            yield float(row["label"]), (), tuple(row["features"]), weight
        else:
            indices = tuple(row["indices"])
            yield float(row["label"]), indices, tuple(row.get("values", [1.0] * len(indices))), weight


def plain_window(plan: WindowPlan, groups: list[list[PlainRow]]) -> list[PlainRow]:
    """The plan's rows in visiting order: row k of the plan's pieces goes to slot order[k]."""
    rows: list[PlainRow] = []
    for group, start, stop in zip(plan.pieces.group, plan.pieces.start, plan.pieces.stop, strict=True):
        rows += groups[group][start:stop]
    order = shuffled(np.uint64(plan.shuffle_key), len(rows))
    slots: list[PlainRow | None] = [None] * len(rows)
    for row, slot in zip(rows, order, strict=True):
        slots[slot] = row
    assert None not in slots
    return slots  # type: ignore[return-value]


def rows_in(window: Window) -> list[PlainRow]:
    """The rows of a window."""
    found = []
    for r in range(len(window)):
        span = slice(window.starts[r], window.stops[r])
        weight = float(window.weights[r]) if window.weights.size else None
        indices = tuple(window.indices[span].tolist()) if window.indices.size else ()
        found.append((float(window.labels[r]), indices, tuple(window.values[span].tolist()), weight))
    return found


def with_classes(rows: list[PlainRow], weighted: bool) -> list[PlainRow]:
    """The plain rows as a classifier sees them: labels -1 or +1, and weights only if they are used."""
    return [(1.0 if label == 1.0 else -1.0, i, v, w if weighted else None) for label, i, v, w in rows]


# A reader with all its parts.


@dataclass(frozen=True)
class Setup:
    """A dataset and the options with which it is read."""

    source: Path
    cache: Path | None = None
    window_bytes: int = 8_000
    block_bytes: int = 1_000
    weighted: bool = False
    offset: str | None = None
    skip_bad_rows: bool = False
    features: int | None = None
    classifies: bool = True
    lowest_label: float = -math.inf
    positive: float | None = None
    classes: tuple[float, ...] | None = None
    seed: int = 1

    @property
    def columns(self) -> Columns:
        labels = LabelSpec(self.classes, self.positive, lowest=self.lowest_label)
        return Columns("label", "weight" if self.weighted else None, (labels,), offset=self.offset)

    def catalog(self) -> Catalog:
        catalog = build_catalog([str(self.source)], self.columns)
        return Catalog(with_cache(catalog.shards, 0, (1 << 40) if self.cache else 0)[0])

    def schedule(self, catalog: Catalog) -> Schedule:
        sizes = Sizes(self.window_bytes, self.block_bytes)
        return Schedule(self.seed, group_sizes(catalog, self.weighted + (self.offset is not None)), sizes)

    def reader(self, catalog: Catalog | None = None) -> Reader:
        return Reader(self, catalog or self.catalog())


class Reader:
    """A filler with its schedule. The catalog may be older than the files, to test files that change."""

    def __init__(self, setup: Setup, catalog: Catalog, encoding: Encoding | None = None) -> None:
        self.setup = setup
        self.catalog = catalog
        self.schedule = setup.schedule(catalog)
        self.cache = BlockCache(setup.cache) if setup.cache else None
        rules = RowRules(
            replace(setup.columns, encoding=encoding), setup.classifies, setup.skip_bad_rows, setup.features
        )
        self.filler = WindowFiller(catalog, self.schedule.slice_rows, rules, self.cache)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.filler.close()

    def plans(self, epochs: int = 1, first_epoch: int = 0) -> Iterator[WindowPlan]:
        arrival = Arrival(0, 0, len(self.catalog.shards), self.catalog.groups)
        cursor = Cursor((arrival,), epoch=first_epoch)
        while cursor.epoch < first_epoch + epochs:
            plan = self.schedule.window(cursor)
            yield plan
            cursor = plan.next

    def windows(self, epochs: int = 1, first_epoch: int = 0) -> Iterator[Window]:
        """The windows of some epochs. All use the memory of one window."""
        memory = WindowMemory()
        for plan in self.plans(epochs, first_epoch):
            yield self.filler.fill(plan, memory)

    def first_window(self, epoch: int = 0) -> Window:
        return next(self.windows(first_epoch=epoch))


def assert_windows_are_right(setup: Setup, epochs: int = 2) -> list[int]:
    """Fill the windows of some epochs and compare each row with the twin's. Return the sizes of the windows."""
    sizes = []
    with setup.reader() as reader:
        groups = plain_groups(reader.catalog)
        for window in reader.windows(epochs):
            assert window.span is not None
            assert rows_in(window) == with_classes(plain_window(window.span, groups), setup.weighted)
            assert not window.counts.skipped
            sizes.append(len(window))
    return sizes
