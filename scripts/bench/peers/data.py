"""The rows for all peers, in every format that a peer reads; written once and reused."""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scripts.bench.peers.rows import COLUMNS, arrow_batches, parquet_batches, shard_paths
from streampgs.packing.synth import write_dataset

_TEST_ROWS = 50_000
_FORMATS = ("parquet", "arrow")
_ARROW_BATCH_ROWS = 4096
_ROW_GROUP_ROWS = 50_000
_TEXT_BATCH_ROWS = 8192


@dataclass(frozen=True)
class Dataset:
    train: dict[str, Path]
    """Folders of shards by format."""
    test: dict[str, Path]
    rows: int
    features: int
    notebook: Notebook


class Notebook:
    """Facts about a data set, kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def note(self, name: str, fact: Any) -> None:
        self.facts[name] = fact
        self.path.write_text(json.dumps(self.facts, indent=1))


def synthetic(folder: Path, rows: int) -> Dataset:
    """Synthetic sparse rows, in both formats."""
    train, test = {}, {}
    for file_format in _FORMATS:
        name = f"sparse-{rows}-{file_format}"
        train[file_format], test[file_format] = folder / name, folder / f"{name}-test"
        if not test[file_format].exists():
            with tempfile.TemporaryDirectory(dir=folder) as unfinished:
                made = Path(unfinished) / name
                shards = min(8, rows)
                write_dataset(
                    made, rows=rows, kind="sparse", shards=shards, format=file_format, seed=0, test_rows=_TEST_ROWS
                )
                made.rename(train[file_format])
                made.with_name(f"{name}-test").rename(test[file_format])
    return _described(folder, train, test)


def given(folder: Path, train: Path, test: Path) -> Dataset:
    """Given folders of sparse rows; the missing format is written."""
    return _described(folder, _both_formats(folder, train), _both_formats(folder, test))


def text(folder: Path, dataset: Dataset) -> tuple[Path, Path]:
    """Training and test rows in the text format of Vowpal Wabbit."""
    paths = []
    for shards in (dataset.train["arrow"], dataset.test["arrow"]):
        path = folder / f"{shards.name}-{_identity(shards)}.vw"
        if not path.exists():
            began, unfinished = time.perf_counter(), path.with_suffix(".writing")
            with unfinished.open("wb") as file:
                for batch in arrow_batches(str(shards)):
                    for first in range(0, batch.num_rows, _TEXT_BATCH_ROWS):
                        _write_lines(batch.slice(first, _TEXT_BATCH_ROWS), file)
            unfinished.rename(path)
            if shards == dataset.train["arrow"]:
                dataset.notebook.note("seconds_converting_to_text", time.perf_counter() - began)
        paths.append(path)
    return paths[0], paths[1]


def _write_lines(batch: pa.RecordBatch, file: BinaryIO) -> None:
    indices, values = batch["indices"], batch["values"]
    pairs = pc.binary_join_element_wise(indices.flatten().cast("string"), values.flatten().cast("string"), ":")
    offsets = pc.subtract(indices.offsets, indices.offsets[0])
    features = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), " ")
    labels = pc.if_else(pc.greater(batch["label"], 0), "1 | ", "-1 | ")
    lines = pc.binary_join_element_wise(labels, features, "\n", "")
    whole = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")
    file.write(whole[0].as_buffer())


def _both_formats(folder: Path, shards: Path) -> dict[str, Path]:
    found = [file_format for file_format in _FORMATS if shard_paths(str(shards), file_format)]
    if len(found) != 1:
        raise SystemExit(f"{shards} holds {' and '.join(found) or 'no'} shards; name a folder of one format")
    (has,) = found
    (missing,) = set(_FORMATS) - set(found)
    paths = shard_paths(str(shards), has)
    absent = set(COLUMNS) - set(_schema(paths[0]).names)
    if absent:
        raise SystemExit(f"{paths[0]} has no column {' and '.join(sorted(absent))}; the bench is about sparse rows")
    made = folder / f"{shards.name}-{_identity(shards)}-{missing}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            converted = Path(unfinished) / made.name
            converted.mkdir()
            for number, path in enumerate(paths):
                _convert(path, converted / f"part-{number:05}.{missing}")
            converted.rename(made)
    return {has: shards, missing: made}


def _schema(shard: Path) -> pa.Schema:
    if shard.suffix == ".parquet":
        return pq.read_schema(shard)
    with pa.OSFile(str(shard)) as file:
        return pa.ipc.open_file(file).schema


def _convert(source: Path, target: Path) -> None:
    if source.suffix == ".parquet":
        schema = pa.schema([_schema(source).field(name) for name in COLUMNS])
        with pa.ipc.new_file(str(target), schema) as shard:
            for batch in parquet_batches([source]):
                for first in range(0, batch.num_rows, _ARROW_BATCH_ROWS):
                    shard.write_batch(batch.slice(first, _ARROW_BATCH_ROWS))
    else:
        with pa.OSFile(str(source)) as file:
            table = pa.ipc.open_file(file).read_all().select(COLUMNS)
        pq.write_table(table, target, row_group_size=_ROW_GROUP_ROWS, compression="zstd", use_dictionary=False)


def _described(folder: Path, train: dict[str, Path], test: dict[str, Path]) -> Dataset:
    notebook = Notebook(folder / f"{train['parquet'].name}-{_identity(train['parquet'])}.json")
    if "features" not in notebook.facts:
        rows, largest = _counted(train["arrow"])
        _, largest_in_test = _counted(test["arrow"])
        notebook.note("rows", rows)
        notebook.note("features", max(largest, largest_in_test) + 1)
    return Dataset(train, test, notebook.facts["rows"], notebook.facts["features"], notebook)


def _counted(shards: Path) -> tuple[int, int]:
    """The number of rows and the largest index."""
    rows = largest = 0
    for batch in arrow_batches(str(shards)):
        rows += batch.num_rows
        largest = max(largest, pc.max(batch["indices"].flatten()).as_py() or 0)
    return rows, largest


def files_in(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())


def _identity(folder: Path) -> str:
    """A digest that differs for folders of the same name and for changed contents."""
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files_in(folder)]
    return f"{zlib.crc32(repr(states).encode()):08x}"
