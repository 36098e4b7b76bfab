"""What a run has come to, and what a dataset looks like before a run is started on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.model import newest_checkpoint, solver_of
from streampgs.options import Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import GroupSizes, Schedule, Sizes
from streampgs.planning import choose_sizes, group_sizes
from streampgs.run.folder import RunFolder
from streampgs.table.arrow_columns import read_column
from streampgs.table.catalog import Catalog, build_catalog, with_cache
from streampgs.table.layout import Columns
from streampgs.table.shard_files import ArrowFile, ParquetShard, read_exactly

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of those that must be decoded whole
# A window of W blocks whose labels correlate by ρ inside a block varies in its mean label as W/ρ independent rows
# would. Below this many it shows in the accuracy (MATH: 10 blocks of sorted rows lose 14 points, 64 lose one half).
_INDEPENDENT_BLOCKS_NEEDED = 32


def inspect_run(run: Path) -> dict[str, Any]:
    checkpoint = newest_checkpoint(run)
    solver = solver_of(checkpoint)
    record = checkpoint.record
    cursor = Cursor.from_json(record["cursor"])
    catalog = RunFolder(run).catalog().first(cursor.arrivals[-1].shards)
    tallies = solver.tallies()
    weights = solver.weights()
    return {
        "run": str(run),
        "checkpoint": str(checkpoint.path),
        "damaged_checkpoints": [f"{path.name}: {why}" for path, why in checkpoint.damaged],
        "options": record["options"],
        "settings": record["settings"],
        "limits": record["limits"],
        "t": solver.steps,
        "rows": record["totals"]["rows"],
        "epoch": cursor.epoch,
        "features": solver.features,
        "nonzeros": int(np.count_nonzero(weights[1:])),
        "intercept": float(weights[0]) * solver.settings.intercept,
        "dual_sha256": solver.dual_sha256(),
        "gap": solver.gap() if solver.steps else None,
        "progressive_loss": tallies.loss / tallies.weight if tallies.weight else None,
        "progressive_accuracy": tallies.correct / tallies.weight if tallies.weight else None,
        "seconds_training": record["totals"]["seconds_training"],
        "sizes": record["sizes"],
        "catalog": summary(catalog),
        "arrivals": [asdict(arrival) for arrival in cursor.arrivals],
    }


def summary(catalog: Catalog) -> dict[str, Any]:
    kinds = sorted({shard.kind for shard in catalog.shards})
    return {
        "shards": len(catalog.shards),
        "rows": catalog.rows,
        "groups": catalog.groups,
        "entries": int(catalog.group_entries.sum()),
        "bytes": sum(shard.fingerprint.size for shard in catalog.shards),
        "formats": kinds,
        "layout": catalog.kind,
        "columns": list(catalog.shards[0].layout.columns),
        "digest": catalog.digest(),
    }


def inspect_data(sources: Sequence[str], columns: Columns, resources: Resources) -> dict[str, Any]:
    """The catalog, the windows that training would use, and whether they can mix the shards."""
    catalog, located = build_catalog(sources, columns)
    shards, _ = with_cache(catalog.shards, 0, 0 if resources.no_cache else 1 << 62)
    catalog = Catalog(shards)
    groups = group_sizes(catalog, columns.weight is not None)
    sizes = choose_sizes(groups, resources)
    schedule = Schedule(0, groups, sizes)
    arrivals = (Arrival(0, 0, len(catalog.shards), catalog.groups),)
    first = schedule.window(Cursor(arrivals))
    later = schedule.window(Cursor(arrivals, epoch=1))
    clustering, block_rows = label_clustering(catalog, groups, sizes, columns)
    warnings = []
    for name, epoch, plan in (("the first epoch's", 0, first), ("later", 1, later)):
        whole = plan.blocks >= schedule.epoch_length(epoch, arrivals)
        if not whole and clustering * _INDEPENDENT_BLOCKS_NEEDED > plan.blocks:
            needed = int(np.ceil(clustering * _INDEPENDENT_BLOCKS_NEEDED))
            warnings.append(
                f"labels cluster inside blocks ({clustering:.2f}) and {name} windows mix too few blocks ({plan.blocks}): "
                f"at least {needed} would be needed. Give more --memory"
                + ("" if name == "later" else ", write smaller row groups, or train for more than one epoch")
            )
        if not whole and plan.blocks < _INDEPENDENT_BLOCKS_NEEDED and not warnings:
            warnings.append(f"{name} windows mix few blocks ({plan.blocks}); 64 and more are on the safe side")
    return {
        "catalog": summary(catalog),
        "ignored_files": len(located.ignored),
        "window_bytes": sizes.window_bytes,
        "block_bytes": sizes.block_bytes,
        "blocks_per_window_first_epoch": first.blocks,
        "blocks_per_window_later": later.blocks,
        "rows_per_window": later.pieces.rows(),
        "clustering": clustering,
        "clustering_block_rows": block_rows,
        "warnings": warnings,
    }


def label_clustering(catalog: Catalog, groups: GroupSizes, sizes: Sizes, columns: Columns) -> tuple[float, int]:
    """How alike the labels inside one block are: their intraclass correlation, 0 well mixed, 1 sorted.

    By analysis of variance over a sample of blocks; with it comes the mean number of rows of a block.
    """
    counts, means, spreads = [], [], []
    for labels in _sampled_labels(catalog, groups, sizes, columns):
        counts.append(len(labels))
        means.append(labels.mean())
        spreads.append(((labels - labels.mean()) ** 2).sum())
    n = np.array(counts, np.float64)
    if len(n) < 2 or n.sum() <= len(n):
        return 0.0, int(n.mean()) if len(n) else 0
    mean = float((n * means).sum() / n.sum())
    between = float((n * (np.array(means) - mean) ** 2).sum()) / (len(n) - 1)
    within = float(np.sum(spreads)) / (n.sum() - len(n))
    usual = (n.sum() - (n**2).sum() / n.sum()) / (len(n) - 1)
    total = between + (usual - 1.0) * within
    return (max(0.0, float((between - within) / total)) if total > 0.0 else 0.0), int(n.mean())


def _sampled_labels(
    catalog: Catalog, groups: GroupSizes, sizes: Sizes, columns: Columns
) -> Iterator[NDArray[np.float64]]:
    schedule = Schedule(0, groups, sizes)
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        labels = _group_labels(catalog, number, in_file, columns)
        slice_rows = int(schedule.slice_rows[group])
        yield from (labels[first : first + slice_rows] for first in range(0, len(labels), slice_rows))
    sliced = np.flatnonzero(~groups.decoded & (groups.rows > 0))
    blocks = np.repeat(sliced, schedule.slices[sliced])
    for place in np.sort(random.permutation(len(blocks))[:_SAMPLED_BLOCKS]).tolist():
        group = int(blocks[place])
        part = place - int(np.searchsorted(blocks, group))
        start = part * int(schedule.slice_rows[group])
        stop = min(start + int(schedule.slice_rows[group]), int(groups.rows[group]))
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        with ArrowFile(shard.path, shard.fingerprint, columns) as file:
            body = file.body_offset(in_file)

            def read(offset: int, size: int, body: int = body, file: ArrowFile = file) -> NDArray[np.uint8]:
                return np.frombuffer(read_exactly(file.fd, size, body + offset, file.path), np.uint8)

            place_of_label = file.places[str(columns.label)]
            yield _finite(read_column(place_of_label, file.metadata(in_file), start, stop, read))


def _group_labels(catalog: Catalog, number: int, in_file: int, columns: Columns) -> NDArray[np.float64]:
    shard = catalog.shards[number]
    label = str(columns.label)
    if shard.kind == "parquet":
        parquet = ParquetShard(shard.path, shard.layout, only=(label,))
        try:
            parts = [batch.column(label) for batch in parquet.decoded_slices(in_file, 1 << 16)]
        finally:
            parquet.close()
    else:
        with ArrowFile(shard.path, shard.fingerprint, columns) as file:
            parts = [batch.column(label) for batch in file.decoded_slices(in_file, 1 << 16)]
    return np.concatenate([_finite(part) for part in parts]) if parts else np.empty(0)


def _finite(array: pa.Array) -> NDArray[np.float64]:
    labels = array.cast(pa.float64(), safe=False).drop_null().to_numpy(zero_copy_only=False)
    return np.asarray(labels[np.isfinite(labels)])
