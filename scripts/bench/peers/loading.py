"""Reading the rows without learning: a lower bound for every trainer that reads them all."""

from __future__ import annotations

import pyarrow.parquet as pq

from scripts.bench.peers.rows import COLUMNS, arrow_batches, load_parquet, shard_paths
from scripts.bench.peers.trial import Task, Trial

_READ_BYTES = 1 << 22


def parquet_into_memory(task: Task, trial: Trial) -> None:
    with trial.loading:
        load_parquet(task.parquet, task.features)


def parquet_decoded(task: Task, trial: Trial) -> None:
    with trial.loading:
        for path in shard_paths(task.parquet, "parquet"):
            for _ in pq.ParquetFile(path).iter_batches(columns=COLUMNS):
                pass


def parquet_bytes(task: Task, trial: Trial) -> None:
    with trial.loading:
        for path in shard_paths(task.parquet, "parquet"):
            with path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass


def arrow_copied(task: Task, trial: Trial) -> None:
    with trial.loading:
        for _ in arrow_batches(task.arrow):
            pass
