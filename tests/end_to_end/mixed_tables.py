"""Ordinary tables with columns of many kinds, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORDS = np.array(["red", "green", "blue", "heavy", "light", "old", "new", "big", "small", "round"])


def mixed(rows: int, seed: int = 0) -> pa.Table:
    """Numbers, categories, text and lists, with nulls; `label` (yes or no) depends on all but the lists."""
    random = np.random.default_rng(seed)
    city, age = random.integers(0, 8, rows), random.normal(40.0, 10.0, rows).astype(np.int32)
    picks = random.integers(0, len(WORDS), (rows, 4))
    score = (age - 40) / 10 + (city % 3 - 1) + (picks == 0).sum(axis=1) - (picks == 1).sum(axis=1)
    label = np.where(score + random.normal(0.0, 0.5, rows) > 0.0, "yes", "no")
    tags = [list(WORDS[pick[:size]]) for pick, size in zip(picks, random.integers(0, 4, rows), strict=True)]
    return pa.table(
        {
            "label": pa.array(label),
            "age": pa.array(age, mask=random.random(rows) < 0.1),
            "income": pa.array(random.normal(1e6, 1e5, rows)),
            "city": pa.array([f"city {number}" for number in city]).dictionary_encode(),
            "joined": pa.array(random.integers(0, 10**12, rows), pa.timestamp("ms")),
            "text": pa.array([" ".join(WORDS[pick]) for pick in picks]),
            "tags": pa.array(tags),
            "scores": pa.array(list(random.normal(size=(rows, 3)).astype(np.float32)), pa.list_(pa.float32(), 3)),
        }
    )


def write(table: pa.Table, path: Path, file_format: str, group_rows: int = 250) -> Path:
    """One file: 'arrow', 'zstd' (compressed Arrow) or 'parquet' (with checksums of its pages)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if file_format == "parquet":
        pq.write_table(table, path, row_group_size=group_rows, write_page_checksum=True)
    else:
        options = pa.ipc.IpcWriteOptions(compression=None if file_format == "arrow" else file_format)
        with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=group_rows)
    return path


def write_shards(table: pa.Table, folder: Path, file_format: str = "parquet", shards: int = 3, **more: Any) -> Path:
    """A folder of shards, in the table's order."""
    ending = "parquet" if file_format == "parquet" else "arrow"
    bounds = np.linspace(0, table.num_rows, shards + 1).astype(int)
    for number in range(shards):
        part = table.slice(bounds[number], bounds[number + 1] - bounds[number])
        write(part, folder / f"part-{number}.{ending}", file_format, **more)
    return folder


def without(table: pa.Table, name: str) -> pa.Table:
    return table.drop_columns([name])


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)
