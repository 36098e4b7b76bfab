"""The tables of the benchmarks of growth, each as an Arrow table with the column `label`.

Real tables are read from the folder of published files and written once, in the form of scripts/real_data.py.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from scripts import real_data
from streampgs.packing.synth import write_dataset

SYNTHETIC_FEATURES = 47_236


@dataclass(frozen=True)
class Folders:
    source: Path
    """Of the published files."""
    work: Path
    """For what is made of them."""


def read(folder: Path, most: int) -> pa.Table:
    """The first rows of the shards of a folder."""
    batches, rows = [], 0
    for shard in sorted(folder.glob("*.arrow")):
        with pa.OSFile(str(shard)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                if rows >= most:
                    break
                batches.append(reader.get_batch(number))
                rows += batches[-1].num_rows
    return pa.Table.from_batches(batches).slice(0, most)


def _synthetic(folders: Folders, most: int, seed: int) -> pa.Table:
    folder = folders.work / f"synthetic-{most}-{seed}"
    if not folder.exists():
        write_dataset(folder, rows=most, kind="sparse", shards=1, seed=seed, features=SYNTHETIC_FEATURES)
    return read(folder, most).select(["label", "indices", "values"])


def _real(name: str) -> Callable[[Folders, int, int], pa.Table]:
    def table(folders: Folders, most: int, seed: int) -> pa.Table:
        folder, rest = folders.work / name, folders.work / f"{name}-test"
        if not rest.exists():
            real_data.DATA_SETS[name](folders.source, folder, rest)
        return pa.concat_tables([read(folder, most), read(rest, most)]).slice(0, most)

    return table


def _unpacked(path: Path) -> io.BytesIO:
    with gzip.open(path) as file:
        return io.BytesIO(file.read())


def _magic(folders: Folders, most: int, seed: int) -> pa.Table:
    table = pa.csv.read_csv(
        _unpacked(folders.source / "magic04.data.gz"),
        read_options=pa.csv.ReadOptions(column_names=[*(f"column_{number}" for number in range(10)), "label"]),
    )
    columns = [table[f"column_{number}"].slice(1).cast(pa.string()).cast(pa.float64()) for number in range(10)]
    names = [f"column_{number}" for number in range(10)]
    return pa.table([table["label"].slice(1), *columns], names=["label", *names]).slice(0, most)


def _weather(folders: Folders, most: int, seed: int) -> pa.Table:
    table = pa.csv.read_csv(_unpacked(folders.source / "weather_by_day.csv.gz"))
    names = ["label" if name == "target" else name for name in table.column_names]
    return table.rename_columns(names).slice(0, most)


TABLES: dict[str, Callable[[Folders, int, int], pa.Table]] = {
    "synthetic": _synthetic,
    "a9a": _real("a9a"),
    "reuters": _real("reuters"),
    "names": _real("names"),
    "magic": _magic,
    "weather": _weather,
}
"""By name: a table of at most so many rows. Only the generated one depends on the seed."""

IN_TIME_ORDER = ("weather", "reuters")
MADE_HERE = ("synthetic",)
"""Tables that need no published files."""


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


def write(table: pa.Table, folder: Path, name: str, shards: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // shards)
    for number in range(shards):
        part = table.slice(number * size, size).combine_chunks()
        if part.num_rows:
            with pa.ipc.new_file(str(folder / f"{name}-{number:02}.arrow"), part.schema) as writer:
                writer.write_table(part, max_chunksize=1024)
