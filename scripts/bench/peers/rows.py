"""Sparse rows from Parquet and Arrow shards, read with plain pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

COLUMNS = ["label", "indices", "values"]

Decide = Callable[[csr_matrix], Any]
"""Gives the scores of rows; above 0 means the positive class."""


class Rows(NamedTuple):
    labels: NDArray[np.float64]
    """Labels as 1 and -1."""
    features: csr_matrix


def shard_paths(folder: str, file_format: str) -> list[Path]:
    return sorted(Path(folder).rglob(f"*.{file_format}"))


def rows_of(batch: pa.RecordBatch, features: int) -> Rows:
    """The lists of a record batch as a sparse matrix, without copying them."""
    indices, values = batch["indices"], batch["values"]
    offsets = indices.offsets.to_numpy()
    entries = values.flatten().to_numpy(), indices.flatten().to_numpy(), offsets - offsets[0]
    labels = np.where(batch["label"].to_numpy() > 0, 1.0, -1.0)
    return Rows(labels, csr_matrix(entries, shape=(len(labels), features), copy=False))


def load_parquet(folder: str, features: int) -> Rows:
    """All rows at once, in memory."""
    table = pq.read_table(folder, columns=COLUMNS).combine_chunks()
    (batch,) = table.to_batches()
    return rows_of(batch, features)


def parquet_batches(paths: Iterable[str | Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from pq.ParquetFile(path).iter_batches(columns=COLUMNS)


def arrow_batches(folder: str) -> Iterator[pa.RecordBatch]:
    for path in shard_paths(folder, "arrow"):
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as shard:
            for number in range(shard.num_record_batches):
                yield shard.get_batch(number).select(COLUMNS)


def accuracy(decide: Decide, test: str, features: int) -> float:
    """Accuracy on the rows of an Arrow folder, a batch at a time, so that it does not raise the peak memory of the peer."""
    right = count = 0
    for batch in arrow_batches(test):
        labels, matrix = rows_of(batch, features)
        right += int(np.count_nonzero((np.ravel(decide(matrix)) > 0) == (labels > 0)))
        count += len(labels)
    return right / count
